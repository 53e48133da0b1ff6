"""The files of an export: weights and configuration of an encoder, its tokenizer, tensors, JSON, and the README.md.

Foreign texts in a README.md, recipes, prompts and names of others, become neither Markdown nor HTML.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save
from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.data_prep.tokenizers.frame import Frames, Ids, read
from deepsiam.data_prep.tokenizers.tokenizer import SPLIT, TOKENIZER_CONFIG, Tokenizer
from deepsiam.models.config import MethodConfig, Side
from deepsiam.trainer.interop.folder import WEIGHTS
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.settings import CONFIG, MODULES, SETTINGS, TOKENIZER, TRANSFORMER

LIBRARY_MODULES = {  # of a SentenceTransformer: class names that every version resolves
    "": "sentence_transformers.models.Transformer",
    "1_Pooling": "sentence_transformers.models.Pooling",
    "2_Normalize": "sentence_transformers.models.Normalize",
}


def refuse(trained: LoadedModel, library: str, beyond: Mapping[str, bool], or_else: str = "") -> None:
    """Raise InputError if a run has one of the settings that a library cannot compute."""
    for feature, is_used in beyond.items():
        if is_used:
            raise InputError(f"{trained.checkpoint}: {library} cannot {feature}; use the run{or_else}")


def write_encoder(trunk: PreTrainedModel, folder: Path) -> None:
    """Write weights and configuration of the plain Hugging Face class, with exactly the keys that it expects."""
    stock = type(trunk)(copy.deepcopy(trunk.config))
    names = (dict(trunk.named_parameters(remove_duplicate=flag)).keys() for flag in (False, True))
    tied = next(names) - next(names)  # T5's embedding has two names
    state = {name: tensor.detach() for name, tensor in trunk.state_dict().items() if name not in tied}
    for name in stock.state_dict().keys() - trunk.state_dict().keys():
        if not name.startswith("pooler."):
            raise InputError(f"{type(stock).__name__}: this encoder lacks {name} and cannot be exported")
        # BERT's class adds a pooler, which is not trained here, and would initialise it randomly at every load.
        # With identity weights it is tanh of the first state: deterministic, and still useful if used by mistake.
        like = stock.state_dict()[name]
        state[name] = torch.eye(len(like)) if like.ndim == 2 else torch.zeros_like(like)
    save_tensors(state, folder / WEIGHTS)
    stock.config.architectures = [type(stock).__name__]
    stock.config.save_pretrained(folder)


def class_for(trunk: PreTrainedModel, classes: Any) -> PreTrainedModel | None:
    """Return a model of the class that `classes` of transformers has for a trunk's type, without memory for weights.

    Its head has all the biases that ours has; None if there is no such class.
    """
    model_class = classes.get(type(trunk.config), None)
    if model_class is None:
        return None
    config = copy.deepcopy(trunk.config)
    # ModernBERT's classes have them all or none; those of the trunk, which has none, are written as zeros
    for key in ("classifier_bias", "decoder_bias", "norm_bias"):
        if hasattr(config, key):
            setattr(config, key, True)
    with torch.device("meta"):
        model: PreTrainedModel = model_class(config)
    return model


def write_headed(model: PreTrainedModel, trunk: PreTrainedModel, head: Mapping[str, Tensor], folder: Path) -> None:
    """Write a trunk and the tensors of a head, by their names in `model` of `class_for`, with its configuration."""
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    state = {f"{model.base_model_prefix}.{name}": tensor for name, tensor in trunk.state_dict().items()} | dict(head)
    model_state = model.state_dict()
    for name in model_state.keys() - state.keys() - tied:
        if not name.endswith(".bias"):
            raise InputError(f"{type(model).__name__}: this model lacks {name} and cannot be exported")
        state[name] = torch.zeros(model_state[name].shape)
    save_tensors({name: state[name] for name in model_state if name in state}, folder / WEIGHTS)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)


def write_tokenizer(
    tokenizer: Tokenizer,
    max_tokens: int,
    folder: Path,
    *,
    inputs: Sequence[str] = (),
    truncation_side: str = "right",
    markers: Sequence[str] = (),
    pair_frame: tuple[Ids, Ids, Ids] | None = None,
) -> None:
    """Write a tokenizer that encodes and frames texts as in training, and truncates if asked.

    Args:
        tokenizer: the run's tokenizer.
        max_tokens: of a text with its frame; longer texts are truncated.
        folder: an existing folder.
        inputs: what the model takes besides ids and mask.
        truncation_side: the side on which a longer text is truncated.
        markers: tokens whose ids follow the tokenizer's own; they are recognised in any text.
        pair_frame: the ids before, between and after the texts of a pair; by default the tokenizer's own.

    Raises:
        InputError: the ids after the tokenizer's own are not free.
    """
    backend = tokenizers.Tokenizer.from_file(str(tokenizer.path))
    backend.no_truncation()
    backend.no_padding()
    frames = Frames(tokenizer.text_frame, pair_frame or tokenizer.pair_frame)
    if frames != read(backend):
        backend.post_processor = _template(frames, tokenizer)
    backend.add_tokens([AddedToken(marker, normalized=False) for marker in markers])
    if any(backend.token_to_id(marker) != tokenizer.vocab_size + i for i, marker in enumerate(markers)):
        raise InputError(f"{tokenizer.path}: its ids have gaps, so {markers[0]} cannot get the one it was trained with")
    backend.save(str(folder / TOKENIZER))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_tokens,
        "model_input_names": ["input_ids", "attention_mask", *inputs],
        "truncation_side": truncation_side,
        SPLIT: tokenizer.split_special_tokens,  # whether "[MASK]" written in a text is text, as in training
        "clean_up_tokenization_spaces": False,
    }
    special = {f"{name}_token": token for name, token in tokenizer.special_tokens.items()}
    write_json(folder / TOKENIZER_CONFIG, settings | special)


def _template(frames: Frames, tokenizer: Tokenizer) -> TemplateProcessing:
    """Return what makes frames; the second text of a pair, and what follows it, have type 1."""
    names = {token: name for name, token in tokenizer.vocabulary().items() if token in tokenizer.special}
    (prefix, suffix), (start, between, end) = (
        [[names[token] for token in part] for part in parts] for parts in (frames.text, frames.pair)
    )
    return TemplateProcessing(
        single=[*prefix, "$A", *suffix],
        pair=[*start, "$A", *between, "$B:1", *(f"{name}:1" for name in end)],
        special_tokens=[(name, token) for token, name in names.items()],
    )


def write_modules(
    folder: Path,
    types: Mapping[str, str],
    max_tokens: int,
    prompts: Mapping[Side, str],
    settings: Mapping[str, Any],
) -> None:
    """Turn a Hugging Face folder into a sentence-transformers folder.

    Args:
        folder: has the encoder and the tokenizer.
        types: the class of each module by its folder, in order; the folders are created.
        max_tokens: of a text.
        prompts: the library finds them by these names; a side without one is named too, so that none is put there.
        settings: of the whole model.
    """
    modules = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(types.items())]
    write_json(folder / MODULES, modules)
    for path in types:
        (folder / path).mkdir(exist_ok=True)
    # the tokenizer itself lower-cases
    write_json(folder / TRANSFORMER, {"max_seq_length": max_tokens, "do_lower_case": False})
    named_prompts = {side: prompts.get(side, "") for side in ("query", "document")} if prompts else {}
    write_json(folder / SETTINGS, {"prompts": named_prompts, "default_prompt_name": None, **settings})


def prompt_card(method: MethodConfig) -> str:
    """Return a README.md's paragraph on the prompts of a method, which the folder's library does not know."""
    placed = " and ".join(f"{as_code(repr(text))} before a {side}" for side, text in method.prompts().items())
    return f"\nIt was trained with {placed}: put it there.\n" if placed else ""


def write_pooling(folder: Path, pooling: str, width: int, *, include_prompt: bool = True) -> None:
    """Write the configuration of a SentenceTransformer's pooling of states of a width."""
    switches = {
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_lasttoken": pooling == "last",
        "include_prompt": include_prompt,
    }
    write_json(folder / "1_Pooling" / CONFIG, {"word_embedding_dimension": width, **switches})


def save_tensors(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a safetensors file with ordinary permissions: only the owner can read the files of save_file."""
    path.write_bytes(save({name: tensor.detach().contiguous() for name, tensor in state.items()}, {"format": "pt"}))


def write_json(path: Path, content: Any) -> None:
    """Write a human-readable JSON file."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def as_text(text: object) -> str:
    """Return a text on one line, for a sentence or a cell of a table."""
    return re.sub(r"[\\`*\[\]<>|&]", r"\\\g<0>", printable(str(text)))


def as_code(text: object) -> str:
    """Return a text on one line, as code within a sentence."""
    line = printable(str(text))
    blank = " " if line.startswith("`") or line.endswith("`") else ""
    return blank.join((fence(line, 1), line, fence(line, 1)))


def fence(text: str, min_length: int = 3) -> str:
    """Return a fence of at least `min_length` backticks that a text does not contain, to put it between two of them."""
    return "`" * max(min_length, *(len(ticks) + 1 for ticks in re.findall("`+", text)), 0)
