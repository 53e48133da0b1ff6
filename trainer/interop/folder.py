"""A published folder, opened: its settings, modules, tokenizer and weights, each file read once, when it is needed.

The weights are in one safetensors file, or in several with an index. No code of the folder is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from pydantic import PositiveInt
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.data_prep.common.files import read_bytes
from deepsiam.data_prep.common.json_file import Count, Record, parse_json
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.tokenizer import TOKENIZER_CONFIG, Tokenizer
from deepsiam.models.build_trunk import REFUSALS, build_trunk, plain_encoder, settings_of
from deepsiam.models.sizes import check_sizes
from deepsiam.trainer.interop.settings import CONFIG, MARK, MODULES, SETTINGS, TOKENIZER, TRANSFORMER

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
COPY_REMEDY = "copy the folder again"
MARK_REMEDY = "damaged; export the run again, or copy the folder again"
PACKAGES = ("sentence_transformers.", "pylate.")  # whose modules are known; others are code of the folder
MASKED_LM = "MLMTransformer"  # a sparse model's encoder, with its head
TWO_SIDED = ("Router", "Asym")
TRANSFORMERS = [  # names of TRANSFORMER in older releases
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]


class Module(NamedTuple):
    """A step of a model: its class, with the package if it is not the library's, and its folder."""

    kind: str
    folder: Path


class Mark(Record):
    """What trainer.export wrote into a folder about its encoder and its vectors; nothing in any other folder."""

    tokenizer: str  # its fingerprint
    added_tokens: Count | None = None  # unknown of an older export
    dimensions: list[PositiveInt] = []
    max_query_tokens: PositiveInt | None = None


class Folder:
    """A folder that may be published, open for reading.

    What it holds is read when something first asks for it; InputError says which file is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._contents: dict[Path, bytes] = {}
        self._tensors: dict[Path, dict[str, Tensor]] = {}

    def content(self, path: Path) -> bytes:
        """Return the bytes of one of its smaller files."""
        if path not in self._contents:
            self._contents[path] = read_bytes(path)
        return self._contents[path]

    def keys(self, path: Path, *, allow_absent: bool = False) -> dict[str, Any]:
        """Return a JSON object; with `allow_absent` an empty one if the file is absent."""
        if allow_absent and not path.exists():
            return {}
        return parse_json(self.content(path), path, dict[str, Any], COPY_REMEDY)

    def tensors(self, path: Path) -> dict[str, Tensor]:
        """Return the tensors of one of its safetensors files, which is mapped into memory."""
        if path not in self._tensors:
            self._tensors[path] = read_tensors(path)
        return self._tensors[path]

    @property
    def has_modules(self) -> bool:
        """Whether it is a sentence-transformers folder."""
        return (self.path / MODULES).is_file()

    @cached_property
    def steps(self) -> list[Module]:
        """The modules of a sentence-transformers folder, in their order, as its modules.json lists them."""
        path, modules = self.path / MODULES, []
        try:
            for module in parse_json(self.content(path), path, list[Any], COPY_REMEDY):
                place = PurePath(module["path"])
                if place.is_absolute() or ".." in place.parts:
                    raise InputError(f"{path}: path is {module['path']!r:.80}, outside of the folder")
                kind = str(module["type"])
                kind = kind.rpartition(".")[2] if kind.startswith(PACKAGES) else kind
                modules.append(Module("Transformer" if kind == MASKED_LM else kind, self.path / place))
        except (KeyError, TypeError):
            raise InputError(f"{path}: not a list of modules with type and path; {COPY_REMEDY}") from None
        return modules

    @cached_property
    def modules(self) -> dict[str, Path]:
        """The folder of each module by its class: Transformer, the encoder, alone, or with Pooling, Dense, ..."""
        if not self.has_modules:
            return {"Transformer": self.path}
        modules = dict(self.steps)
        if "Transformer" not in modules:
            first_kind = next(iter(modules), "")
            configs = sorted(self.path.glob(f"*/{CONFIG}"))
            encoders = [path.parent for path in configs if "model_type" in self.keys(path)]  # others are of modules
            raise InputError(
                f"{self.path / MODULES}: has no Transformer module"
                + (f", but a {first_kind}, whose sides have modules of their own" if first_kind in TWO_SIDED else "")
                + f": name the folder of an encoder instead{f', such as {encoders[0]}' if encoders else ''}"
            )
        return modules

    @property
    def encoder(self) -> Path:
        """The folder of its encoder, which may be itself."""
        return self.modules["Transformer"]

    @property
    def settings(self) -> dict[str, Any]:
        """What a sentence-transformers folder says of the whole model."""
        return self.keys(self.path / SETTINGS, allow_absent=True)

    @property
    def transformer_file(self) -> Path:
        """The file of the library's module of the encoder, which may be absent."""
        files = (self.encoder / name for name in TRANSFORMERS)
        return next((file for file in files if file.exists()), self.encoder / TRANSFORMER)

    @property
    def transformer(self) -> dict[str, Any]:
        """What the library's module of the encoder says."""
        return self.keys(self.transformer_file, allow_absent=True)

    @property
    def tokenizer_config(self) -> dict[str, Any]:
        """What transformers wrote beside tokenizer.json."""
        return self.keys(self.encoder / TOKENIZER_CONFIG, allow_absent=True)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of its encoder."""
        return tokenizers.load(self.encoder / TOKENIZER, self.content)

    @property
    def mark(self) -> Mark:
        """The mark of an export; an empty one in any other folder."""
        path = self.encoder / MARK
        return parse_json(self.content(path), path, Mark, MARK_REMEDY) if path.is_file() else Mark(tokenizer="")

    @property
    def architecture(self) -> str:
        """The name of the class that config.json says the weights are of; "" if it says none."""
        names = self.keys(self.encoder / CONFIG, allow_absent=True).get("architectures")
        return str(names[0]) if isinstance(names, list) and names else ""

    @cached_property
    def config(self) -> PreTrainedConfig:
        """The encoder's configuration, of a class of transformers, and not of quantised weights."""
        path = self.encoder / CONFIG
        keys = self.keys(path, allow_absent=True)
        with as_input_error(str(path)):
            check_sizes(keys.items(), "")
        _refuse_code(path, keys)
        try:
            config: PreTrainedConfig = AutoConfig.from_pretrained(
                self.encoder, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, RecursionError, *REFUSALS) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{path}: not the configuration of an encoder ({reason})") from None
        if getattr(config, "quantization_config", None):
            raise InputError(
                f"{path}: quantization_config: its weights are quantised; name a folder with the full weights"
            )
        return config

    def trunk(self) -> PreTrainedModel:
        """Build its encoder with its weights, whatever head it was published with."""
        settings, weights = settings_of(self.config), self.weights
        with as_input_error(str(self.encoder)):
            return build_trunk(settings, weights)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """Its tensors by their published names; model.safetensors takes precedence, as in transformers."""
        files = self.weight_files
        if len(files) == 1:
            return self.tensors(files[0])
        places = self._places
        weights: dict[str, Tensor] = {}
        owners: dict[str, str] = {}
        for file in files[1:]:
            tensors = self.tensors(file)
            if doubled := sorted(tensors.keys() & weights.keys()):
                raise InputError(f"{file}: has {doubled[0]}, which is also in {owners[doubled[0]]}: which one counts?")
            weights |= tensors
            owners |= dict.fromkeys(tensors, file.name)
        if absent_names := sorted(name for name, file in places.items() if owners.get(name) != file):
            file = self.encoder / places[absent_names[0]]
            raise InputError(f"{file}: lacks {absent_names[0]}, which {INDEX} expects there; {COPY_REMEDY}")
        return weights

    @property
    def weight_files(self) -> list[Path]:
        """The files of the weights, which may be missing: one, or the index and those that it names."""
        if (self.encoder / WEIGHTS).exists() or not (self.encoder / INDEX).exists():
            return [self.encoder / WEIGHTS]
        return [self.encoder / file for file in (INDEX, *sorted(set(self._places.values())))]

    @property
    def _places(self) -> dict[str, str]:
        """The file of each tensor from the index, all of them in the index's folder."""
        path = self.encoder / INDEX
        try:
            places = self.keys(path)["weight_map"]
            files = set(places.values())
        except (KeyError, TypeError, AttributeError):
            raise InputError(f"{path}: not an index with a weight_map from tensors to files; {COPY_REMEDY}") from None
        for file in sorted(files, key=str):
            if not isinstance(file, str) or Path(file).name != file or Path(file).suffix != Path(WEIGHTS).suffix:
                raise InputError(f"{path}: weight_map: {file!r} is not the name of a safetensors file in its folder")
        if absent := sorted(file for file in files if not (path.parent / file).is_file()):
            raise InputError(
                f"{path}: {len(absent)} of its {len(files)} files are missing, such as {absent[0]}; {COPY_REMEDY}"
            )
        if not files:
            raise InputError(f"{path}: names no file; {COPY_REMEDY}")
        return dict(places)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file; raise InputError if it is missing or damaged."""
    if not path.is_file():
        raise InputError(
            f"{path}: cannot read the weights (no such file); only safetensors files are read, since others can run "
            "code: save the model again with save_pretrained of transformers"
        )
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot read the weights ({error}): the file is damaged; {COPY_REMEDY}") from None


def _refuse_code(path: Path, keys: Mapping[str, Any]) -> None:
    """Raise InputError where the encoder is a class of the folder's code, and transformers has none of this name."""
    kind = str(keys.get("model_type"))
    config_class = CONFIG_MAPPING[kind] if kind in set(CONFIG_MAPPING) else PreTrainedConfig  # its `get` finds none
    class_names = {config_class.__name__, getattr(plain_encoder(config_class)[1], "__name__", "")}
    code = keys.get("auto_map")
    for name in ("AutoConfig", "AutoModel"):
        if isinstance(code, dict) and name in code and str(code[name]).rpartition(".")[2] not in class_names:
            raise InputError(
                f"{path}: auto_map: its encoder is code ({code[name]!s:.80}), which is never run, and transformers has "
                f"no class of this name for model_type {kind!r:.80}: name another folder"
            )
