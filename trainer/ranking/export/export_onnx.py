"""ONNX graphs of a Siamese network or a cross-encoder: token ids to embeddings or scores, for any batch and length."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.models.matching.cross_encoder import CrossEncoder, CrossEncoderConfig
from deepsiam.models.matching.siamese import Siamese
from deepsiam.models.vectors import Vectors
from deepsiam.trainer.ranking.export.export_cross_encoder import write_pair_tokenizer
from deepsiam.trainer.ranking.export.export_files import prompt_card, write_tokenizer
from deepsiam.trainer.training.checkpoints.load import TrainedModel

TOLERANCE = 1e-5  # largest difference between a graph's and the run's outputs, relative to the largest number or 1
CARD = """---
library_name: onnx
tags: [onnx, {task}, deepsiam]
---
# {name}

{what}, trained with deepsiam, as ONNX. From {run}, step {step}. The outputs equalled the run's, up to {tolerance}, on
inputs of several sizes.

```python
import onnxruntime
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{out}")
model = onnxruntime.InferenceSession("{out}/{graph}.onnx")
batch = tokenizer({texts}, padding=True, truncation=True, return_tensors="np")
(outputs,) = model.run(None, dict(batch))
```
"""
QUERIES = """
This graph is of documents; `query.onnx` is of queries.
"""
CUT_QUERIES = """
It was trained with the last {tokens} tokens of a query; the tokenizer keeps the first of a text: cut longer queries
before it reads them.
"""


class Embedding(nn.Module):
    """One side of a Siamese network."""

    inputs: tuple[str, ...] = ("input_ids", "attention_mask")
    output = "sentence_embedding"

    def __init__(self, model: Siamese, embed: Callable[[Tensor, Tensor], Vectors]) -> None:
        """Make the graph of `embed`, a method of `model`."""
        super().__init__()
        self.model, self.embed = model, embed

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Embed texts, int64 [B, T] both: fp32 [B, H]."""
        return self.embed(input_ids, attention_mask.bool()).vectors[:, 0]


class PairScore(nn.Module):
    """A cross-encoder."""

    output = "scores"

    def __init__(self, model: CrossEncoder) -> None:
        """Take token types only if the model tells the two texts apart by them."""
        super().__init__()
        self.model = model
        self.inputs = (*Embedding.inputs, "token_type_ids") if model.has_types else Embedding.inputs

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Score pairs, int64 [P, T] all: fp32 [P], or logits [P, C] of classes."""
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        return self.model.score_pairs(input_ids, attention_mask.bool(), types)


def write(trained: TrainedModel, method: MatchingConfig, folder: Path, facts: Mapping[str, Any]) -> str:
    """Write a tokenizer and `model.onnx`, or `query.onnx` and `document.onnx`; return the README.md.

    Each graph has a separate weights file.

    Raises:
        InputError: the model has no graph, a package of the extra is missing, or the outputs differ from the run's.
    """
    graphs = _graphs(trained)
    require("onnx", "onnx", "onnxscript", "onnxruntime", what="--format onnx")
    if isinstance(method, CrossEncoderConfig):
        write_pair_tokenizer(trained, method, folder)
    else:
        write_tokenizer(trained.tokenizer, trained.text_tokens, folder)
    for name, graph in graphs.items():
        path = folder / f"{name}.onnx"
        _export(graph, path)
        if (difference := _difference(trained, method, graph, path)) > TOLERANCE:
            raise InputError(
                f"{path.name}: its outputs differ from the run's by {difference:.1e} of the largest, more than "
                f"{TOLERANCE}; try another version of torch"
            )
    pairs = isinstance(method, CrossEncoderConfig)
    text = CARD.format(
        **facts,
        tolerance=TOLERANCE,
        task="text-ranking" if pairs else "sentence-similarity",
        what="A cross-encoder, pairs of texts to scores" if pairs else "A Siamese text encoder, texts to embeddings",
        texts='["a query"] * 2, ["a document", "another"]' if pairs else '["a document", "another"]',
        graph=[*graphs][-1],
    )
    if getattr(method, "kept_of_query", "start") == "end":
        text += CUT_QUERIES.format(tokens=method.max_query_tokens)
    return text + (QUERIES if len(graphs) == 2 else "") + prompt_card(method)


def _graphs(trained: TrainedModel) -> dict[str, Embedding | PairScore]:
    """Return the graphs by name; raise InputError for a model without graphs."""
    model = trained.model
    if isinstance(model, CrossEncoder):
        return {"model": PairScore(model)}
    if not isinstance(model, Siamese):
        raise InputError(f"{trained.checkpoint}: --format onnx is for siamese and cross_encoder, not {trained.kind}")
    if model.keys.document_chunks > 1:
        raise InputError(f"{trained.checkpoint}: --format onnx cannot read documents in chunks; use the run")
    if model.keys.prompts() and not model.keys.prompt_in_pooling:
        raise InputError(
            f"{trained.checkpoint}: --format onnx cannot leave a prompt out of the mean (method.prompt_in_pooling); "
            "use the run"
        )
    documents = Embedding(model, model.embed_documents)
    if model.keys.towers == 1:
        return {"model": documents}
    return {"query": Embedding(model, model.embed_queries), "document": documents}


def _export(graph: Embedding | PairScore, path: Path) -> None:
    """Write a graph with torch's exporter, and its weights to `path` with .data added."""
    example = tuple(torch.ones(2, 5, dtype=torch.int64) for _ in graph.inputs)
    with _quiet(), torch.no_grad():
        torch.onnx.export(
            graph.eval(),
            example,
            path,
            input_names=graph.inputs,
            output_names=[graph.output],
            dynamic_shapes=tuple({0: "batch", 1: "tokens"} for _ in example),
            external_data=True,  # a single ONNX file is limited to 2 GB
            verbose=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the warnings of torch's exporter about itself; errors are raised."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _difference(trained: TrainedModel, method: MatchingConfig, graph: Embedding | PairScore, path: Path) -> float:
    """Return the largest difference between a written graph's and the run's outputs, relative to the largest or 1."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng, longest, worst = np.random.default_rng(0), max(method.input_lengths.values()), 0.0
    ordinary = np.setdiff1d(np.arange(trained.tokenizer.vocab_size), trained.tokenizer.special)
    for number, most in ((1, 1), (4, longest), (3, longest // 2)):
        texts = [rng.choice(ordinary, length) for length in (most, *rng.integers(most + 1, size=number - 1))]
        arrays = [array.astype(np.int64) for array in _arrays(trained, method, texts)][: len(graph.inputs)]
        with torch.no_grad():
            own = graph(*map(torch.from_numpy, arrays)).numpy()
        (other,) = session.run(None, dict(zip(graph.inputs, arrays, strict=True)))
        worst = max(worst, float(np.abs(other - own).max() / max(1.0, np.abs(own).max())))
    return worst


def _arrays(trained: TrainedModel, method: MatchingConfig, texts: list[np.ndarray]) -> Iterable[np.ndarray]:
    """Return the inputs of a graph, as the model frames texts, or pairs of them."""
    if isinstance(method, CrossEncoderConfig):
        return method.pair_framing(trained.tokenizer).arrays(texts, texts[::-1]).values()
    sides = method.query_framing(trained.tokenizer), method.document_framing(trained.tokenizer)
    return max(sides, key=lambda side: side.max_tokens).arrays(texts).values()
