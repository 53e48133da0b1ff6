"""Read small JSON files into types with bounds: whatever is wrong in one is a line with file and key."""

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import LARGEST_JSON, read_bytes

T = TypeVar("T")
Count = Annotated[int, Field(ge=0, lt=2**48)]  # of texts, tokens, bytes or steps: no sum or product of two overflows
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
FileName = Annotated[str, Field(pattern=r"^[\w-][\w.-]*$", max_length=255)]
InsideName = Annotated[str, Field(pattern=r"^[\w-][\w.-]*(/[\w-][\w.-]*)*$", max_length=4000)]  # of a file in a folder


class Record(BaseModel):
    """A JSON object with the keys of a subclass; other keys, of newer code, are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


def read_json(path: Path, kind: type[T], remedy: str, limit: int = LARGEST_JSON) -> T:
    """Read a file of at most `limit` bytes, as `parse_json` does; raise InputError if it cannot be read either."""
    return parse_json(read_bytes(path, limit), path, kind, remedy)


def parse_json(content: bytes, path: Path, kind: type[T], remedy: str) -> T:
    """Parse what the file at `path` has, or is to have; a message ends with the `remedy`.

    `kind` is a `Record`, or anything else that pydantic can validate: dict[str, Any], list[str].
    """
    try:
        return TypeAdapter(kind).validate_json(content)
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}; {remedy}") from None


def first_problem(error: ValidationError, within: str = "") -> str:
    """Describe the first thing that is wrong as `key: what`; the key is preceded by the key `within`."""
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    message = problem["msg"].removeprefix("Value error, ")
    key = ".".join(str(part)[:80] for part in (*([within] if within else []), *problem["loc"]))
    return f"{key}: {message[0].lower()}{message[1:]}" if key else f"not its kind of JSON ({message})"
