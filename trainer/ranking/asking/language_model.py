"""Queries by a causal language model of a folder, the same for a document whatever is asked beside it.

A matrix product may round a row otherwise when its shape changes, and another rounding may choose another token. So all
batches have the same number of rows, a row is padded to the next multiple of WIDTH tokens of its own length, and a draw
takes its random numbers from the document's hash: a text depends on the model, the prompt, the seed and the document,
not on its neighbours, the block or the rank. This holds for one kind of device and one precision.

What all prompts of a kind begin with, the examples above all, the model reads once: each batch starts from a copy of
its keys and values. Padding stands behind it, before the tokens that differ; no token sees it.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jinja2 import TemplateError
from safetensors import SafetensorError
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    PreTrainedTokenizerBase,
    StoppingCriteria,
)
from transformers.cache_utils import DynamicLayer  # keys and values of all tokens, without a window
from transformers.utils.logging import disable_progress_bar

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import sha256_of
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.models.build_trunk import REFUSALS
from deepsiam.trainer.interop.causal_lm import CLASSES
from deepsiam.trainer.interop.folder import COPY_REMEDY, Folder
from deepsiam.trainer.interop.settings import CONFIG
from deepsiam.trainer.ranking.asking.checks import line_of
from deepsiam.trainer.ranking.asking.prompts import Prompt
from deepsiam.trainer.ranking.asking.writer import NEW_TOKENS, Answer, Request, Writer
from deepsiam.trainer.ranking.ranker import DTYPES, usual_precision
from deepsiam.trainer.training.engine.device import this_device

ROWS = {"cpu": 16}  # of each batch
ROWS_OF_GPU = 64
WIDTH = 64  # tokens that the padded length of a prompt, without its beginning, is a multiple of
BATCHES = 16  # in a block, if its prompts had one length and one kind
ENDLESS = 1 << 16  # tokens, of a model that names no limit
FEWEST = 16  # tokens of a document
FILES = ("*.json", "*.jinja", "*.safetensors", "*.model")  # that decide what is written


class Beginning(NamedTuple):
    """Tokens that prompts begin with, and what the model computed of them; nothing where it does not reuse that."""

    ids: list[int]
    cache: DynamicCache | None


class LanguageModel(Writer):
    """A model of a folder with its tokenizer, on this process's device."""

    def __init__(self, path: Path, precision: str | None, temperature: float, document_tokens: int) -> None:
        """Load the folder.

        Raises:
            InputError: it has no causal language model, or one that cannot be loaded.
        """
        self.path, self.temperature, self.document_tokens = path, temperature, document_tokens
        self.device = this_device()
        precision = precision or usual_precision(self.device)
        self.model: Any
        self.model, self.tokenizer = _load(path, DTYPES[precision])
        self.model.to(self.device)
        self.rows = ROWS.get(self.device.type, ROWS_OF_GPU)
        self.block = BATCHES * self.rows
        positions = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        self.longest = (positions or ENDLESS) - NEW_TOKENS  # of a prompt, in tokens
        self.beginnings = dict[Prompt, Beginning]()
        ends = self.model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        self.ends = sorted({end for end in [*ends, self.tokenizer.eos_token_id] if end is not None})
        if not self.ends:
            raise InputError(f"{path}: neither its configuration nor its tokenizer names the token that ends a text")
        self.about = {
            "model": str(path),
            "fingerprint": _fingerprint(path),
            "precision": precision,
            "device": self.device.type,
            "temperature": temperature,
            "document_tokens": document_tokens,
        }

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Raise InputError for a prompt that the model cannot take."""
        for prompt in prompts:
            if prompt.needs_chat and not self.tokenizer.chat_template:
                raise InputError(f"{self.path}: has no chat template, which a prompt of several messages needs")
            tokens = len(self._encode(prompt, ""))
            if tokens + FEWEST > self.longest:
                raise InputError(
                    f"{self.path}: reads {self.longest:,} tokens and writes {NEW_TOKENS}; the prompt of {prompt.kind} "
                    f"with its examples has {tokens:,}: give fewer or shorter examples"
                )

    def write(self, requests: Sequence[Request], report: Callable[[int], None]) -> list[Answer]:
        """Answer in batches of prompts of one kind with the same padded length."""
        prompts = [self._prompt(request) for request in requests]
        beginnings = [self._beginning(request.prompt, ids) for request, (ids, _) in zip(requests, prompts, strict=True)]
        kinds = [
            (request.prompt.kind, len(beginning.ids), -(-(len(ids) - len(beginning.ids)) // WIDTH))
            for request, beginning, (ids, _) in zip(requests, beginnings, prompts, strict=True)
        ]
        order, answers = sorted(range(len(prompts)), key=lambda i: kinds[i]), dict[int, Answer]()
        while order:
            batch = [i for i in order[: self.rows] if kinds[i] == kinds[order[0]]]
            order = order[len(batch) :]
            rows = batch + batch[-1:] * (self.rows - len(batch))  # copies of the last fill the batch up
            tokens = self.generate([prompts[i][0] for i in rows], [requests[i] for i in rows], beginnings[batch[0]])
            answers |= {i: Answer(*text, prompts[i][1]) for i, text in zip(batch, self._texts(tokens), strict=False)}
            report(len(answers))
        return [answers[i] for i in range(len(requests))]

    def _prompt(self, request: Request) -> tuple[list[int], bool]:
        """Return the tokens of a prompt, and whether its document had to be cut."""
        offsets = self.tokenizer(request.document, add_special_tokens=False, return_offsets_mapping=True).offset_mapping
        most = min(len(offsets), self.document_tokens)
        while True:
            text = request.document if most == len(offsets) else request.document[: offsets[most - 1][1]]
            ids = self._encode(request.prompt, text)
            if len(ids) <= self.longest:
                return ids, most < len(offsets)
            most = max(1, most - (len(ids) - self.longest))

    def _encode(self, prompt: Prompt, document: str) -> list[int]:
        if not self.tokenizer.chat_template:
            return list(self.tokenizer(prompt.plain(document), verbose=False).input_ids)
        try:
            text = self.tokenizer.apply_chat_template(
                prompt.chat(document), tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise InputError(f"{self.path}: its chat template does not take the prompt ({error})") from None
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids)

    def _beginning(self, prompt: Prompt, ids: Sequence[int]) -> Beginning:
        """Return what the model has read of a prompt's `ids` before; nothing if they begin otherwise than its others.

        A window of attention counts padding, too, and a recurrent layer reads it; a model with either reads every
        prompt from its first token.
        """
        if prompt not in self.beginnings:
            one, other = (self._encode(prompt, text) for text in "a1")
            same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
            if any(type(layer) is not DynamicLayer for layer in DynamicCache(config=self.model.config).layers):
                same = 0
            self.beginnings[prompt] = Beginning(one[:same], self._read(one[:same]) if same else None)
        beginning = self.beginnings[prompt]
        known = len(beginning.ids)
        return beginning if [*ids[:known]] == beginning.ids and len(ids) > known else Beginning([], None)

    @torch.inference_mode()
    def _read(self, ids: Sequence[int]) -> DynamicCache:
        cache = DynamicCache(config=self.model.config)
        self.model(torch.tensor([ids], device=self.device), past_key_values=cache, use_cache=True)
        return cache

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Sequence[int]], requests: Sequence[Request], beginning: Beginning) -> Tensor:
        """Return the tokens after prompts with the same beginning, int64 [prompts, at most NEW_TOKENS] on the CPU.

        Where a text has ended before others, its row goes on with tokens that end a text.
        """
        known = len(beginning.ids)
        width = known + -(-(max(map(len, prompts)) - known) // WIDTH) * WIDTH
        padding = [width - len(ids) for ids in prompts]
        rows = [
            [*row[:known], *[self.ends[0]] * pads, *row[known:]] for pads, row in zip(padding, prompts, strict=True)
        ]
        ids = torch.tensor(rows)  # [prompts, width]
        mask = torch.tensor([[1] * known + [0] * pads + [1] * (width - known - pads) for pads in padding])
        cache = copy.deepcopy(beginning.cache)
        if cache is not None:
            cache.batch_repeat_interleave(len(prompts))
        written: Tensor = self.model.generate(
            ids.to(self.device),
            attention_mask=mask.to(self.device),
            past_key_values=cache,
            generation_config=GenerationConfig(
                max_new_tokens=NEW_TOKENS, eos_token_id=self.ends, pad_token_id=self.ends[0], do_sample=False
            ),
            logits_processor=[_Draw(requests, self.temperature, width)] if self.temperature else [],
            stopping_criteria=[_EndOfLine(self._texts, width)],
        )
        return written[:, width:].cpu()

    def _texts(self, tokens: Tensor) -> list[tuple[str, bool]]:
        """Return the text of each row, and whether it has come to an end, of itself or of its first line."""
        rows = tokens.tolist()
        lengths = [next((at for at, token in enumerate(row) if token in self.ends), len(row)) for row in rows]
        written = [row[:length] for row, length in zip(rows, lengths, strict=True)]
        texts = self.tokenizer.batch_decode(written, skip_special_tokens=True)
        are_short = [length < len(row) for row, length in zip(rows, lengths, strict=True)]
        return [(text, is_short or line_of(text)[1]) for text, is_short in zip(texts, are_short, strict=True)]


class _EndOfLine(StoppingCriteria):
    """Stops a text after its first line, which is all that is read."""

    def __init__(self, texts: Callable[[Tensor], list[tuple[str, bool]]], width: int) -> None:
        self.texts, self.width = texts, width

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        are_whole = [is_whole for _, is_whole in self.texts(input_ids[:, self.width :])]
        return torch.tensor(are_whole, device=input_ids.device)


class _Draw(LogitsProcessor):
    """Draws the next token of each text by its request's own random numbers, one a token."""

    def __init__(self, requests: Sequence[Request], temperature: float, width: int) -> None:
        draws = [keyed_rng(f"ask {request.prompt.kind}", *request.key).random(NEW_TOKENS) for request in requests]
        self.draws, self.temperature, self.width = torch.from_numpy(np.stack(draws)), temperature, width

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        shares = (scores.double() / self.temperature).softmax(dim=-1).cumsum(dim=-1)
        draw = self.draws[:, input_ids.shape[1] - self.width, None].to(scores.device) * shares[:, -1:]
        tokens = torch.searchsorted(shares, draw, right=True).clamp_(max=scores.shape[1] - 1)
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens, 0.0)


def _load(path: Path, dtype: torch.dtype) -> tuple[Any, PreTrainedTokenizerBase]:
    folder = Folder(path)
    if not folder.architecture.endswith(CLASSES):
        kind = folder.architecture or "no architecture"
        raise InputError(f"{path / CONFIG}: has {kind}, not a causal language model: name the folder of one")
    _ = folder.config, folder.weights  # refuse code, quantised weights and damaged files
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    disable_progress_bar()  # of loading, which takes seconds; it would be drawn into files, too
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, **options)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path, **options, use_safetensors=True, dtype=dtype, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, RuntimeError, RecursionError, SafetensorError, *REFUSALS) as error:
        raise InputError(f"{path}: cannot be loaded ({error}); {COPY_REMEDY}") from None
    model, report = loaded
    if absent := sorted(report["missing_keys"]):
        raise InputError(f"{path}: lacks {absent[0]}, which {folder.architecture} has; {COPY_REMEDY}")
    if not tokenizer.is_fast:
        raise InputError(f"{path}: has no tokenizer.json; save its tokenizer again with transformers")
    ends = model.generation_config.eos_token_id
    model.generation_config = GenerationConfig(eos_token_id=ends)  # its published penalties and draws are not ours
    return model.eval(), tokenizer


def _fingerprint(path: Path) -> str:
    files = sorted(file for pattern in FILES for file in path.glob(pattern))
    return hashlib.sha256("".join(f"{file.name} {sha256_of(file)}\n" for file in files).encode()).hexdigest()
