"""The cases of benchmarks.step: recipes of this repository at the sizes of a GPU or a CPU, on made-up text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.common.made_up_text import make_document
from deepsiam.data_prep.common.rng import keyed_rng, keyed_rngs
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.config import MethodConfig
from deepsiam.models.interface import MicroBatch
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.training.engine import ds_config
from deepsiam.trainer.training.recipe.build import build_batcher, build_model
from deepsiam.trainer.training.recipe.objective import Objective
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load

RECIPES = Path(__file__).parents[2] / "recipes"
DEMO_WORDS = 8192
STEPS = 2  # optimizer steps on different data in a measurement
# small enough for a CPU to train in a benchmark's time
SMALL = (
    f"trunk.vocab_size={DEMO_WORDS}",
    "trunk.hidden_size=192",
    "trunk.num_hidden_layers=2",
    "trunk.num_attention_heads=3",
    "trunk.intermediate_size=768",
)


@dataclass(frozen=True)
class Case:
    """A recipe, and the changes to it on a GPU and on a CPU."""

    recipe: str
    gpu: tuple[str, ...] = ()
    cpu: tuple[str, ...] = ()

    def changes(self, gpu: bool) -> tuple[str, ...]:
        """Return the changes for one of the two sizes."""
        return self.gpu if gpu else self.cpu


CASES = {
    "seed-demo": Case("seed_small.yaml", *2 * [("method.decoder_layers=1",)]),
    "mlm-demo": Case("mlm_small.yaml"),
    "seed-512": Case("seed_base.yaml", ("batch.size=64", "batch.micro=32"), (*SMALL, "batch.size=4", "batch.micro=2")),
    "mlm-512": Case("mlm_base.yaml", ("batch.size=64", "batch.micro=32"), (*SMALL, "batch.size=4", "batch.micro=2")),
    "cross-thought-64": Case(
        "cross_thought_base.yaml",
        ("batch.size=1", "trunk.vocab_size=32768"),
        (*SMALL, "batch.size=1", "method.sequences=32"),
    ),
    # no pair of made-up sentences is longer; padding to 512 in the plain way would be a straw man
    "poly": Case(
        "poly_base.yaml",
        ("batch.size=2", "method.max_tokens=128"),
        (*SMALL, "batch.size=2", "method.max_tokens=128", "method.tokens=2000"),
    ),
}


@dataclass(frozen=True)
class Step:
    """One rank's input of one optimizer step."""

    micro_batches: list[MicroBatch]
    seeds: list[int]  # for the dropout of each micro-batch

    @cached_property
    def targets(self) -> dict[str, int]:
        """The number of targets of each loss term."""
        terms = self.micro_batches[0].counts
        return {term: sum(batch.counts[term] for batch in self.micro_batches) for term in terms}

    def objective(self, methods: Sequence[MethodConfig]) -> Objective:
        """Return what the step differentiates; `methods` are those of the sources of a mix of shards, all the same."""
        return Objective(methods[0], methods[0].weights, self.targets)

    @property
    def tokens(self) -> int:
        """Tokens of text, without special tokens and padding."""
        return sum(batch.tokens for batch in self.micro_batches)


@dataclass(frozen=True)
class Workload:
    """A prepared case: its recipe, and the steps that every rival takes."""

    recipe: PretrainRecipe
    steps: list[Step]
    batching_seconds: float  # for numpy to make the micro-batches of a step, in one process

    @property
    def tokens(self) -> int:
        """Text tokens of all steps."""
        return sum(step.tokens for step in self.steps)

    @property
    def precision(self) -> torch.dtype:
        """The dtype that the recipe's DeepSpeed configuration trains in."""
        return ds_config.precision(ds_config.load(self.recipe.deepspeed)[1])

    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the made-up text."""
        return vocabulary_of(self.recipe)

    def model(self) -> TrunkModel:
        """Build the model, always with the same weights."""
        torch.manual_seed(self.recipe.seed)
        return build_model(self.recipe.method, build_trunk(self.trunk_settings(self.recipe.method.added_tokens)))

    def trunk_settings(self, added_tokens: int = 0) -> dict[str, object]:
        """Return the Hugging Face configuration of the trunk."""
        vocabulary = self.vocabulary()
        settings = dict(self.recipe.trunk or {})
        return {**settings, "vocab_size": vocabulary.vocab_size + added_tokens, "pad_token_id": vocabulary.pad}


def recipe_of(name: str, gpu: bool, changes: Sequence[str] = ()) -> PretrainRecipe:
    """Return the recipe of a case, with further `key=value` changes."""
    case = CASES[name]
    return load(PretrainRecipe, RECIPES / case.recipe, [*case.changes(gpu), *changes])


def workload_of(recipe: PretrainRecipe) -> Workload:
    """Make the micro-batches of STEPS optimizer steps, by the method's own batcher."""
    batcher = build_batcher(recipe.method, vocabulary_of(recipe))
    size, micro = recipe.batch.size, recipe.batch.micro
    # more than needed: some examples are not full, namely the last one and groups of pairs
    documents = make_documents(2 * (STEPS * size + 1) * recipe.method.example_tokens, recipe)
    examples = batcher.examples(documents)[: STEPS * size]
    assert len(examples) == STEPS * size
    start = time.perf_counter()
    batches = [
        batcher.micro_batch(examples[i : i + micro], keyed_rngs("benchmark", [(i + j,) for j in range(micro)]))
        for i in range(0, len(examples), micro)
    ]
    seconds = (time.perf_counter() - start) / STEPS
    count = recipe.batch.micro_batches
    steps = [Step(batches[i : i + count], list(range(i, i + count))) for i in range(0, len(batches), count)]
    return Workload(recipe, steps, seconds)


def vocabulary_of(recipe: PretrainRecipe) -> Vocabulary:
    """Return the vocabulary that the recipe's trunk names, or the demo's."""
    words = (recipe.trunk or {}).get("vocab_size", DEMO_WORDS)
    return Vocabulary(words, pad=0, unk=1, cls=2, sep=3, mask=4)


def make_documents(tokens: int, recipe: PretrainRecipe) -> list[TokenDocument]:
    """Make documents with at least `tokens` tokens in total, of 5 to 40 sentences each."""
    vocabulary, rng = vocabulary_of(recipe), keyed_rng("benchmark text")
    documents, made = [], 0
    while made < tokens:
        document = make_document(rng, vocabulary, range(5, 41), log_tokens=2.5)
        documents.append(document)
        made += sum(map(len, document.segments))
    return documents


def rate_of_pass(
    model: TrunkModel, batch: MicroBatch, forward: Callable[..., dict[str, Tensor]], dtype: torch.dtype
) -> float:
    """Return the tokens a second of one forward and backward pass."""
    arrays = {name: torch.from_numpy(array) for name, array in batch.arrays.items()}
    start = time.perf_counter()
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        total = sum(loss / max(1, batch.counts[term]) for term, loss in forward(**arrays).items())
    assert isinstance(total, Tensor)
    total.backward()
    return batch.tokens / (time.perf_counter() - start)
