"""Encode texts into vectors, compared with SentenceTransformer.encode."""

from __future__ import annotations

import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers.utils import logging

from benchmarks.common import machine
from benchmarks.common.calibration import cpu_seconds
from benchmarks.common.made_up_pairs import PairSizes, made_up_pairs, write_encoder, write_tokenizer
from benchmarks.common.side_by_side import ratios, rounds, spread
from deepsiam.models.matching.siamese import Siamese, SiameseConfig
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder

OURS, LIBRARY = "deepsiam", "sentence-transformers"
BF16 = {"AVX512-BF16", "AMX-BF16"}  # instructions without which bf16 is slower than fp32
ALIKE = {torch.float32: 1e-4, torch.bfloat16: 0.05}  # the largest allowed difference of two vectors' numbers


class Encoders:
    """One model, loaded by both libraries, and the texts that both encode."""

    def __init__(self, sizes: PairSizes, dtype: torch.dtype, folder: Path) -> None:
        """Write the model and load it twice."""
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        vocabulary = write_tokenizer(sizes.words, folder / "tokenizer.json")
        write_encoder(sizes, vocabulary, folder)
        self.texts = [json.loads(line)["document"] for line in made_up_pairs(sizes)]
        loaded = load_any(folder / "encoder")
        assert isinstance(loaded.model, Siamese)
        assert isinstance(loaded.method, SiameseConfig)
        self.model, self.tokenizer = loaded.model.to(dtype), loaded.tokenizer
        self.framing = loaded.method.document_framing(loaded.tokenizer)
        self.library = SentenceTransformer(str(folder / "encoder"), device="cpu", local_files_only=True).to(dtype)

    def ours(self) -> np.ndarray:
        """Tokenise and encode as trainer.index and trainer.evaluate do."""
        return TextEncoder(self.model.embed_documents, self.framing).embeddings(self.tokenizer.encode(self.texts))

    def theirs(self) -> np.ndarray:
        """Let the library tokenise and encode, with its defaults."""
        return np.asarray(self.library.encode(self.texts))


def measure(sizes: PairSizes, seconds: float) -> dict[str, Any]:
    """Compare passages per CPU second in each precision within about `seconds`."""
    end = time.monotonic() + seconds
    dtypes = [torch.float32] + ([torch.bfloat16] if BF16 & set(machine.describe()["instructions"]) else [])
    results: dict[str, Any] = {"unit": "passages/s", "rounds": {}, "rates": {}, "ratios": {}}
    for number, dtype in enumerate(dtypes):
        share = (end - time.monotonic()) / (len(dtypes) - number)
        compare(sizes, dtype, time.monotonic() + share, results)
    return results


def compare(sizes: PairSizes, dtype: torch.dtype, end: float, results: dict[str, Any]) -> None:
    """Add the rates and their ratio in one precision, after each has encoded once and the vectors agree."""
    precision = str(dtype).removeprefix("torch.")
    with tempfile.TemporaryDirectory() as folder:
        rivals = Encoders(sizes, dtype, Path(folder))
        np.testing.assert_allclose(rivals.ours(), rivals.theirs(), atol=ALIKE[dtype])
        calls = {OURS: partial(cpu_seconds, rivals.ours), LIBRARY: partial(cpu_seconds, rivals.theirs)}
        rates = {name: [sizes.pairs / value for value in values] for name, values in rounds(calls, end).items()}
    results["rounds"][precision] = len(rates[OURS])
    results["rates"] |= {f"{name}, {precision}": spread(values) for name, values in rates.items()}
    results["ratios"][f"{OURS} / {LIBRARY}, {precision}"] = ratios(rates[OURS], rates[LIBRARY])
