"""What kind of model a published folder has, and what is done with all that its files say (`table.TABLE`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.json_file import parse_json
from deepsiam.data_prep.tokenizers.other_formats import refuse_other_formats
from deepsiam.data_prep.tokenizers.tokenizer import TOKENIZER_CONFIG, Tokenizer
from deepsiam.models.config import MethodConfig
from deepsiam.trainer.interop import (
    causal_lm,
    colbert,
    cross_encoder,
    poly_encoder,
    pretrained,
    prompts,
    sentence_transformer,
    sparse,
)
from deepsiam.trainer.interop.colbert import is_colbert, unmarked_prompts
from deepsiam.trainer.interop.cross_encoder import is_cross_encoder, is_of_library
from deepsiam.trainer.interop.folder import COPY_REMEDY, Folder
from deepsiam.trainer.interop.masked_lm import read_masked_lm_head
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.same_reading import require_same_reading
from deepsiam.trainer.interop.sentence_transformer import MIN_TEXT_TOKENS, NO_EFFECT, longest_texts
from deepsiam.trainer.interop.settings import (
    CAUSAL,
    COLBERT,
    COMPUTED,
    CONFIG,
    DECODER,
    DENSE,
    ENCODER,
    METADATA,
    MODULES,
    PAIRS,
    SETTINGS,
    SPARSE,
    TOKENIZER,
    TRANSFORMER,
    Kind,
)
from deepsiam.trainer.interop.start import Opener, PretrainedEncoder, check_ids, rows_after
from deepsiam.trainer.interop.table import unused

Keys = dict[str, Any]


class FolderKind(NamedTuple):
    """What this project does with one kind of folder.

    Attributes:
        is_mine: whether a folder with an encoder is one.
        load: makes the model that ranks as the folder's; None where it needs a fine-tuning first.
        write: writes a model of ours; None where no library loads one.
        keys: the keys that a method of the same kind starts with; None if there are none.
    """

    is_mine: Callable[[Folder], bool]
    load: Callable[[Folder, Opener], LoadedModel] | None
    write: Callable[..., str] | None
    keys: Callable[[Folder, MethodConfig], Keys] | None = None


# in this order: a folder is of the first kind that knows it
FOLDER_KINDS: dict[Kind, FolderKind] = {
    PAIRS: FolderKind(is_cross_encoder, cross_encoder.load, cross_encoder.write, cross_encoder.start_keys),
    CAUSAL: FolderKind(causal_lm.is_mine, causal_lm.load, None),
    COLBERT: FolderKind(is_colbert, colbert.load, colbert.write, colbert.start_keys),
    SPARSE: FolderKind(sparse.is_mine, None, sparse.write, sparse.start_keys),
    DENSE: FolderKind(lambda folder: folder.has_modules, sentence_transformer.load, sentence_transformer.write),
    ENCODER: FolderKind(lambda _: True, None, pretrained.write),
}
WRITERS: dict[str, Callable[..., str]] = {  # by the kind of folder of a method
    **{name: kind.write for name, kind in FOLDER_KINDS.items() if kind.write},
    poly_encoder.KIND: poly_encoder.write,
}


def kind_of(folder: Folder) -> Kind | None:
    """Return the kind of a published folder; None for a run, a checkpoint, and whatever has no encoder.

    Raises:
        InputError: its modules or its configuration are damaged.
    """
    refuse_other_formats(folder.path)
    refuse_other_formats(folder.encoder)
    if not (folder.encoder / CONFIG).is_file():
        return None
    return next(name for name, kind in FOLDER_KINDS.items() if kind.is_mine(folder))


def load(folder: Folder, kind: Kind) -> LoadedModel:
    """Load a published folder's model to rank with; its remarks say what a recipe replaces.

    Raises:
        InputError: it needs a fine-tuning first, is damaged, or has a setting that is not supported.
    """
    loader = FOLDER_KINDS[kind].load
    if loader is None:
        model = "a SparseEncoder" if kind == SPARSE else "an encoder without a pooling and a similarity"
        raise InputError(f"{folder.path}: {model}: fine-tune it first, with init_from")
    without = check_settings(folder, kind, to_rank=True)
    loaded_model = loader(folder, lambda: open_encoder(folder, folder.tokenizer, kind))
    if kind != CAUSAL or not folder.has_modules:
        return loaded_model
    remark = (
        f"{folder.path}: is read as a plain language model, with the prompt and the labels of a recipe, such as "
        f"recipes/yes_no.yaml, in place of {', '.join(['its chat template', *without])}"
    )
    return replace(loaded_model, remarks=(*loaded_model.remarks, remark))


def open_encoder(folder: Folder, tokenizer: Tokenizer, kind: Kind) -> PretrainedEncoder:
    """Open the encoder of a published folder, with its heads, for data of a tokenizer.

    Raises:
        InputError: the folder is damaged, or its token ids differ from those of `tokenizer`.
    """
    encoder, mark = folder.encoder, folder.mark
    if mark.tokenizer != tokenizer.fingerprint:
        check_ids(folder.path, folder.tokenizer, tokenizer)
    trunk = folder.trunk()
    markers: Sequence[int] = ()
    if kind == COLBERT:
        heads, markers = colbert.read_projection(folder), colbert.read_markers(folder)
    elif (encoder / DECODER).is_file():
        heads = folder.tensors(encoder / DECODER)
    else:
        heads = cross_encoder.read_heads(folder) | read_masked_lm_head(folder, trunk)
    special = rows_after(folder.tokenizer, mark.added_tokens or 0)
    rows = 1 + max([tokenizer.vocab_size - 1, *special[-1:], *markers])
    if trunk.config.vocab_size < rows:
        raise InputError(
            f"{encoder / CONFIG}: {trunk.config.vocab_size:,} token embeddings are fewer than the {rows:,} tokens of "
            "its tokenizer.json and its training: they are not of one model"
        )
    if folder.tokenizer.fingerprint == tokenizer.fingerprint:  # else the data's differs on purpose, with the same ids
        require_same_reading(folder)
    return PretrainedEncoder(folder, trunk, dict(heads), mark.added_tokens, special, markers)


def start_keys(start: Folder, method: MethodConfig) -> Keys:
    """Return the keys of `method` that a published folder gives, to compute what its model computes.

    Raises:
        InputError: the folder is damaged, or its model does more than ours.
    """
    kind = FOLDER_KINDS.get(cast(Kind, method.folder_kind))
    if kind and kind.keys and kind.is_mine(start) and (keys := kind.keys(start, method)):
        return keys
    keys = sentence_transformer.keys_of(start, method) if method.folder_kind in (DENSE, ENCODER) else {}
    if "query_prompt" in method.start_keys:
        ranking = method.ranking_config
        keys |= _prompt_keys(start, ranking, keys.get("pooling", getattr(ranking, "pooling", "")))
    return keys


def prompt_remarks(start: Folder, method: MethodConfig) -> list[str]:
    """Return a line on the prompts that a model has of the folder that it starts from."""
    method = method.ranking_config
    if "query_prompt" not in method.start_keys:
        return []
    keys = _prompt_keys(start, method, getattr(method, "pooling", ""))
    assignments = [f"{key}={value!r}" for key, value in keys.items() if getattr(method, key) == value]
    return [f"{start.path}: of its prompts, training starts with {', '.join(assignments)}"] if assignments else []


def _prompt_keys(start: Folder, method: MethodConfig, pooling: str) -> Keys:
    """Return the prompts that a folder has for a model; those of a ColBERT's folder follow its markers."""
    if not is_colbert(start):
        return prompts.keys_of(start, method, pooling)
    return colbert.start_prompts(start) if method.folder_kind == COLBERT else {}


def check_settings(folder: Folder, kind: Kind, *, to_rank: bool, method: str = "") -> list[str]:
    """Look up every key of every file of settings; return what training, or a ranker by labels, does without.

    Args:
        folder: a published one.
        kind: of the folder.
        to_rank: also refuse what a fine-tuning starts without, and keys that are not known.
        method: the kind of the model that starts from the folder: one of another kind takes the encoder alone.

    Raises:
        InputError: a setting would change what is computed, and is not supported.
    """
    longest_texts(folder, MIN_TEXT_TOKENS)  # refuses an invalid length
    computed_modules = COMPUTED.get(kind, ()) if to_rank or method == kind else ()
    without = []
    for path, name, keys in _settings(folder, kind, to_rank=to_rank):
        module = name.partition("/")[0] if "/" in name else ""
        if module and module not in computed_modules:
            without += [f"its {module}"] if module != NO_EFFECT else []
        else:
            without += [f"its {key}" for key in unused(path, name, keys, kind, to_rank=to_rank)]
    return without


def left_out(start: Folder, method: str) -> list[str]:
    """Return a line on what training leaves of the folder that it starts from, if it leaves anything."""
    kind = kind_of(start)
    if kind is None:
        return []
    without = check_settings(start, kind, to_rank=False, method=method)
    if kind == method == COLBERT and (texts := unmarked_prompts(start)):
        without.append(f"its prompts ({texts})")
    return [f"{start.path}: training starts without {', '.join(without)}"] if without else []


def _settings(folder: Folder, kind: Kind, *, to_rank: bool) -> Iterator[tuple[Path, str, Keys]]:
    """Yield the files of settings that a folder has, their names in the table, and their keys."""
    encoder, path = folder.encoder, folder.path
    if folder.has_modules:
        modules = parse_json(folder.content(path / MODULES), path / MODULES, list[Keys], COPY_REMEDY)
        yield from ((path / MODULES, MODULES, module) for module in modules)
        yield path / SETTINGS, SETTINGS, folder.settings
        for module in folder.steps:
            if module.folder != encoder:
                file = module.folder / CONFIG
                yield file, f"{module.kind}/{CONFIG}", folder.keys(file, allow_absent=True)
    if kind != PAIRS or is_of_library(folder):
        yield folder.transformer_file, TRANSFORMER, folder.transformer
    yield encoder / TOKENIZER_CONFIG, TOKENIZER_CONFIG, folder.tokenizer_config
    yield encoder / METADATA, METADATA, folder.keys(encoder / METADATA, allow_absent=True)
    if to_rank and "truncation_side" not in folder.tokenizer_config:
        file = encoder / TOKENIZER
        yield file, TOKENIZER, folder.keys(file, allow_absent=True)  # a large file
