"""What kind of model a published folder has, and what is done with all that its files say (`table.TABLE`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepsiam.data_prep.common.json_file import read_json
from deepsiam.data_prep.tokenizers.other_formats import refuse_other_formats
from deepsiam.data_prep.tokenizers.tokenizer import TOKENIZER_CONFIG
from deepsiam.trainer.interop.causal_lm import is_causal_lm, is_logit_score
from deepsiam.trainer.interop.colbert import is_colbert, unmarked_prompts
from deepsiam.trainer.interop.cross_encoder import is_cross_encoder, is_of_library
from deepsiam.trainer.interop.hugging_face import AGAIN, CONFIG, read_keys
from deepsiam.trainer.interop.modules import (
    encoder_of,
    is_sentence_transformer,
    modules_in_order,
    modules_of,
)
from deepsiam.trainer.interop.sentence_transformer import (
    NO_EFFECT,
    SHORTEST,
    SPARSE_MODULES,
    longest_texts,
    transformer_file,
)
from deepsiam.trainer.interop.settings import (
    CAUSAL,
    COLBERT,
    COMPUTED,
    DENSE,
    ENCODER,
    MODULES,
    PAIRS,
    SETTINGS,
    SPARSE,
    STANFORD,
    TOKENIZER,
    TRANSFORMER,
    Kind,
)
from deepsiam.trainer.interop.table import unused

Keys = dict[str, Any]


def kind_of(folder: Path) -> Kind | None:
    """Return the kind of a published folder; None for a run, a checkpoint, and whatever has no encoder.

    Raises:
        InputError: its modules or its configuration are damaged.
    """
    refuse_other_formats(folder)
    encoder = encoder_of(folder)
    refuse_other_formats(encoder)
    if not (encoder / CONFIG).is_file():
        return None
    if is_cross_encoder(folder):
        return PAIRS
    if is_logit_score(folder):
        return CAUSAL
    if is_colbert(folder):
        return COLBERT
    if is_sentence_transformer(folder):
        return SPARSE if SPARSE_MODULES & modules_of(folder).keys() else DENSE
    return CAUSAL if is_causal_lm(folder) else ENCODER


def check_settings(folder: Path, kind: Kind, *, to_rank: bool, method: str = "") -> list[str]:
    """Look up every key of every file of settings; return what training, or a ranker by labels, does without.

    Args:
        folder: a published one.
        kind: of the folder.
        to_rank: also refuse what a fine-tuning starts without, and keys that are not known.
        method: the kind of the model that starts from the folder: one of another kind takes the encoder alone.

    Raises:
        InputError: a setting would change what is computed, and is not supported.
    """
    longest_texts(encoder_of(folder), SHORTEST)  # refuses an invalid length
    computed_modules = COMPUTED.get(kind, ()) if to_rank or method == kind else ()
    without = []
    for path, name, keys in _settings(folder, kind, to_rank=to_rank):
        module = name.partition("/")[0] if "/" in name else ""
        if module and module not in computed_modules:
            without += [f"its {module}"] if module != NO_EFFECT else []
        else:
            without += [f"its {key}" for key in unused(path, name, keys, kind, to_rank=to_rank)]
    return without


def left_out(start: Path, method: str) -> list[str]:
    """Return a line on what training leaves of the folder that it starts from, if it leaves anything."""
    kind = kind_of(start)
    if kind is None:
        return []
    without = check_settings(start, kind, to_rank=False, method=method)
    if kind == method == COLBERT and (texts := unmarked_prompts(start)):
        without.append(f"its prompts ({texts})")
    return [f"{start}: training starts without {', '.join(without)}"] if without else []


def _settings(folder: Path, kind: Kind, *, to_rank: bool) -> Iterator[tuple[Path, str, Keys]]:
    """Yield the files of settings that a folder has, their names in the table, and their keys."""
    encoder = encoder_of(folder)
    if is_sentence_transformer(folder):
        yield from ((folder / MODULES, MODULES, module) for module in read_json(folder / MODULES, list[Keys], AGAIN))
        yield folder / SETTINGS, SETTINGS, read_keys(folder / SETTINGS, missing=True)
        for module in modules_in_order(folder):
            if module.folder != encoder:
                path = module.folder / CONFIG
                yield path, f"{module.kind}/{CONFIG}", read_keys(path, missing=True)
    for path, name in (
        *([(transformer_file(encoder), TRANSFORMER)] if kind != PAIRS or is_of_library(folder) else []),
        (encoder / TOKENIZER_CONFIG, TOKENIZER_CONFIG),
        (encoder / STANFORD, STANFORD),
    ):
        yield path, name, read_keys(path, missing=True)
    if to_rank and "truncation_side" not in read_keys(encoder / TOKENIZER_CONFIG, missing=True):
        yield encoder / TOKENIZER, TOKENIZER, read_keys(encoder / TOKENIZER, missing=True)  # a large file
