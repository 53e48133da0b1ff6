"""How many tokens of source text every method reads, each counted once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.common import training
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.trainer.training.data.open_shards import shard_data
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy

LANES = training.SAMPLED  # all lanes are sampled, with their only window: the estimate is exact


def recipe(shards: Path, **method: Any) -> PretrainRecipe:
    data = {"shards": str(shards), "lanes": LANES, "window": 1000}
    batch = {"size": 4, "micro": 2}
    return build(PretrainRecipe, {**toy.SEED_RECIPE, "data": data, "batch": batch, "method": method}, "test")


def windows(of: PretrainRecipe) -> list[tuple[list[Any], list[Any]]]:
    """The documents of the first window of every lane, and their examples."""
    (lanes,) = shard_data(of).order.sources.values()
    found = []
    for lane in range(LANES):
        _, _, items = next(lanes.windows(lane, training.START, []))
        documents = [document for _, document in items]
        found.append((documents, lanes.batcher.examples(documents)))
    return found


def sentences(document: Any) -> int:
    return sum(len(segment) > 0 for segment in document.segments)


def tokens(document: Any) -> int:
    return sum(map(len, document.segments))


def test_a_masked_lm_reads_the_tokens_of_its_blocks(shards: Path) -> None:
    mlm = recipe(shards, name="mlm", max_tokens=32)
    specials = (2, 3)  # [CLS], [SEP]
    vocabulary = tokenizer.load(shards / "tokenizer.json")
    assert (vocabulary.cls, vocabulary.sep) == specials
    blocks = [block for _, examples in windows(mlm) for block in examples]
    in_blocks = sum(int((~np.isin(block, specials)).sum()) for block in blocks)
    assert training.tokens_a_step(mlm) == pytest.approx(4 * in_blocks / len(blocks))


@pytest.mark.parametrize(
    "method",
    [
        {"name": "poly", "max_tokens": 32, "tokens": 128},  # an inner sentence is in two pairs
        {"name": "skip_thought", "max_tokens": 32},  # a sentence is also the neighbour of two others
        {"name": "ict", "max_tokens": 32, "max_query_tokens": 16},  # a sentence is a query and part of its passage
    ],
)
def test_a_sentence_in_several_examples_counts_once(shards: Path, method: dict[str, Any]) -> None:
    one = recipe(shards, **method)
    read = examples = all_read = 0
    for documents, of_window in windows(one):
        # a document of one sentence gives these methods no example
        read += sum(tokens(document) for document in documents if sentences(document) > 1)
        all_read += sum(map(tokens, documents))
        examples += len(of_window)
    if method["name"] == "ict":  # passages that hold one sentence give no example either
        assert 0 < training.tokens_a_step(one) <= 4 * read / examples
    else:
        assert training.tokens_a_step(one) == pytest.approx(4 * read / examples)
    assert read < all_read


def test_sources_count_by_their_weight(shards: Path, tmp_path: Path) -> None:
    """One source's sentences are four times as long as the other's, and so are its examples."""
    vocabulary = tokenizer.load(shards / "tokenizer.json")
    lengths = {"short": 2, "long": 8}
    for name, length in lengths.items():
        with ShardWriter(tmp_path / name, vocabulary, chunk_tokens=100, chunks_per_shard=1) as writer:
            for i in range(100):
                writer.add(f"{name}{i}", [np.full(length, 10, vocabulary.dtype)] * 4)
    values = {name: recipe(tmp_path / name, name="skip_thought", max_tokens=32) for name in lengths}
    one = {name: training.tokens_a_step(values[name]) for name in lengths}
    assert one == {"short": 4 * 2, "long": 4 * 8}  # a sentence is an example
    mix = {name: {"shards": str(tmp_path / name), "weight": weight} for name, weight in (("short", 3), ("long", 1))}
    both = values["short"].model_dump(mode="json")
    both["data"] |= {"shards": None, "mix": mix}
    assert training.tokens_a_step(build(PretrainRecipe, both, "test")) == pytest.approx(4 * (3 * 2 + 8) / 4)


def test_the_launcher_gets_the_ranks_and_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(training, "run_or_exit", commands.append)
    training.train("trainer.pretrain", "recipe.yaml", Path("runs/x"), {"steps": 3})
    training.train("trainer.pretrain", "recipe.yaml", Path("runs/x"), {"steps": 3}, ranks=1)
    for command, ranks in zip(commands, "21", strict=True):  # 2 is the default
        assert command[command.index("--num_accelerators") + 1] == ranks
        words = "trainer.pretrain recipe.yaml --resume run=runs/x steps=3"
        assert command[command.index("--module") + 1 :] == words.split()
