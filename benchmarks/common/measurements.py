"""Long measurements, kept on disk so that a stopped benchmark resumes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from deepsiam.data_prep.common.files import whole_file

Value = TypeVar("Value")  # anything that JSON can represent


class Measurements(Generic[Value]):
    """Values by key, in a JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Value] = json.loads(path.read_text()) if path.is_file() else {}

    def get(self, key: str, measure: Callable[[], Value]) -> Value:
        """Return the value of a key; measure it and write the file where it is not there yet."""
        if key not in self.values:
            self.values[key] = measure()
            with whole_file(self.path) as file:
                file.write(json.dumps(self.values).encode())
        return self.values[key]
