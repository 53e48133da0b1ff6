"""Shards opened and read for a run: the order of its steps, what is refused, the room that their cache needs."""

import json
import re
import shutil
from collections.abc import Iterator
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards import manifest, packing
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import NAME, Manifest
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.jobs.trace import digest, trace
from deepsiam.trainer.training.data.lanes import Lanes
from deepsiam.trainer.training.data.open_shards import shard_data
from deepsiam.trainer.training.data.opened import HeldOut, check_cache_room, most_in_a_window
from deepsiam.trainer.training.data.order import Order
from deepsiam.trainer.training.data.shard_source import ShardSource
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy
from tests.trainer.training.data.integers import Echo, Numbers, lanes_of, order_of

STEPS = 20


def with_source(shards: Path, folder: Path, **source: object) -> Path:
    """A copy of shards with other entries in the `source` of its manifest."""
    shutil.copytree(shards, folder)
    record = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps({**record, "source": {**record["source"], **source}}))
    return folder


UTTERANCES = {"method": {"name": "poly", "pairs": "utterances"}, "batch": {"size": 1, "micro": 1}}


def test_utterances_of_shards_without_dialogues_are_refused(shards: Path, tmp_path: Path) -> None:
    folder = with_source(shards, tmp_path / "shards", dialogues=False)
    recipe = toy.seed_recipe(tmp_path / "run.yaml", folder, **UTTERANCES)
    with pytest.raises(InputError, match=f"^method.pairs=utterances: the documents of {folder} are not dialogues"):
        shard_data(load(PretrainRecipe, recipe))
    dialogues = with_source(shards, tmp_path / "dialogues", dialogues=True)
    for usable in ("method.pairs=sentences", f"data.shards={shards}", f"data.shards={dialogues}"):  # unknown, or known
        assert shard_data(load(PretrainRecipe, recipe, [usable]))


@pytest.fixture(scope="module")
def others(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second source of pairs."""
    return toy.write_pairs(tmp_path_factory.mktemp("others") / "shards", shards, count=200, seed=8)


def mixed_recipe(path: Path, first: Path, second: Path, *overrides: str, **changes: Any) -> PretrainRecipe:
    """Four micro-batches of two pairs per step, all of one source."""
    mix = {"first": {"shards": str(first), "weight": 3}, "second": {"shards": str(second), "weight": 1}}
    keys = {"name": "pairs", "max_query_tokens": 16, "max_document_tokens": 32, "negatives": "step"}
    values: dict[str, Any] = {
        "data": {"mix": mix, "one_source_per": "step", "lanes": 8, "window": 2},
        "batch": {"size": 8, "micro": 2},
        "method": keys,
    }
    return load(PretrainRecipe, toy.seed_recipe(path, first, **{**values, **changes}), overrides)


def test_a_step_has_the_same_pairs_of_one_source_for_any_number_of_ranks_and_workers(
    pair_shards: Path, others: Path, tmp_path: Path
) -> None:
    recipe = mixed_recipe(tmp_path / "run.yaml", pair_shards, others)
    data = shard_data(recipe)

    def digests(ranks: int, workers: int, steps: int) -> list[str]:
        made = []
        for _, batches in islice(trace(recipe, data, 1, ranks, workers), steps):
            made.append(digest([batch.micro_batch for batch in batches]))
            assert len({batch.source for batch in batches}) == 1
            sources.append(batches[0].source)
        return made

    sources: list[int] = []
    alone = digests(1, 0, STEPS)
    assert len(set(alone)) == STEPS
    assert (sources.count(0), sources.count(1)) == (STEPS * 3 / 4, STEPS / 4)
    for ranks, workers in ((2, 2), (4, 0)):
        steps = 4 if workers else STEPS
        assert digests(ranks, workers, steps) == alone[:steps], (ranks, workers)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["data.one_source_per=micro_batch"], "data.mix.first: its losses compare .* set data.one_source_per=step"),
        (["batch.size=1", "batch.micro=1"], "batch.size=1 leaves no other document to compare a query with: set it to"),
        (["batch.micro=1", "method.negatives=micro_batch"], "batch.micro=1 leaves no other .*: set it to 2 or more$"),
        (["data.mix.second.shards=TEXT"], "^method.name=pairs: the documents of .* are not pairs .* `data_prep pairs`"),
        (["validation={shards: TEXT, every: 5}"], "^method.name=pairs: the documents of .* are not pairs"),
        ([f"method.query_prompt={'ab ' * 20}"], "^method: query_prompt has .* leave a text no room"),
        (["method.prompt_in_pooling=false"], "method.prompt_in_pooling=false is for method.pooling=mean"),
    ],
)
def test_what_does_not_suit_is_one_line(
    shards: Path, pair_shards: Path, others: Path, tmp_path: Path, overrides: list[str], words: str
) -> None:
    changes = [change.replace("TEXT", str(shards)) for change in overrides]
    with pytest.raises(InputError, match=words) as caught:
        shard_data(mixed_recipe(tmp_path / "run.yaml", pair_shards, others, *changes))
    assert "\n" not in str(caught.value)


def test_documents_that_are_no_pairs_are_refused_where_they_are_read(shards: Path, tmp_path: Path) -> None:
    """The manifest may be wrong."""
    folder = with_source(shards, tmp_path / "shards", pairs=True)
    data = shard_data(mixed_recipe(tmp_path / "run.yaml", folder, folder))
    with pytest.raises(InputError, match="^method: a document has .* segments, not two, .*: name shards of `data_prep"):
        next(data.order.stream(data.order.start(), 0, 1))


def test_a_method_of_text_reads_pairs_as_text(pair_shards: Path, tmp_path: Path) -> None:
    method = {"name": "mlm", "max_tokens": 32}
    data = shard_data(load(PretrainRecipe, toy.seed_recipe(tmp_path / "run.yaml", pair_shards, method=method)))
    assert next(data.order.stream(data.order.start(), 0, 1)).micro_batch.tokens


def test_a_shard_source_reads_every_document_and_refuses_a_damaged_shard_by_name(shards: Path, tmp_path: Path) -> None:
    source = ShardSource(Manifest.load(Path(shutil.copytree(shards, tmp_path / "shards"))))
    read = [d for s, chunks in enumerate(source.chunks) for c in range(chunks) for d in source.read(s, c)]
    assert len(read) == source.manifest.total("documents")
    assert sum(len(segment) for document in read for segment in document.segments) == source.manifest.total("tokens")
    source = ShardSource(source.manifest)
    victim = tmp_path / "shards" / source.manifest.shards[3].name
    victim.write_bytes(victim.read_bytes()[:-512])
    source.read(0, 0)
    with pytest.raises(InputError, match=victim.name):
        source.read(3, 0)


def write_one_shard(folder: Path, tokenizer_json: Path, documents: list[TokenDocument]) -> Manifest:
    """Write one shard with two documents per chunk."""
    folder.mkdir()
    vocabulary = tokenizers.load(shutil.copy(tokenizer_json, folder))
    chunks = [packing.encode_chunk(documents[i : i + 2], vocabulary.dtype, folder) for i in range(0, len(documents), 2)]
    manifest.write(folder, vocabulary, {}, [packing.write_shard(folder / manifest.shard_name(0), 0, chunks)])
    return Manifest.load(folder)


SEGMENTS = [np.array([5, 6]), np.array([7]), np.array([8, 9, 10])]


def test_documents_have_all_attributes_that_the_shard_stores(shards: Path, tmp_path: Path) -> None:
    documents = [
        TokenDocument(SEGMENTS, "a", headings=(0, 2)),
        TokenDocument(SEGMENTS[:1], "b#2", "b"),
        TokenDocument(SEGMENTS, "reddit/t3_c/t1_x", "reddit/t3_c", context=2),
        TokenDocument(SEGMENTS, "d", headings=(1,), context=1),
        TokenDocument(SEGMENTS, "e"),
    ]
    source = ShardSource(write_one_shard(tmp_path / "one", shards / "tokenizer.json", documents))
    read = [document for chunk in range(3) for document in source.read(0, chunk)]
    expected = [[segment.tolist() for segment in document.segments] for document in documents]
    assert [[segment.tolist() for segment in document.segments] for document in read] == expected
    assert [(document.headings, document.context, document.group) for document in read] == [
        ((0, 2), 0, "a"),
        ((), 0, "b"),
        ((), 2, "reddit/t3_c"),
        ((1,), 1, "d"),
        ((), 0, "e"),
    ]
    assert source.name(0, 1, 0) == "shard-000000.tar chunk 1 document 0 (reddit/t3_c/t1_x)"


def test_attributes_that_do_not_fit_the_document_are_refused(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepsiam.trainer.training.data.shard_source.RETRIES", ())
    for document in (TokenDocument(SEGMENTS, "a", context=4), TokenDocument(SEGMENTS, "b", headings=(3,))):
        source = ShardSource(write_one_shard(tmp_path / document.id, shards / "tokenizer.json", [document]))
        with pytest.raises(InputError, match="shard-000000.tar: chunk 0: .*more segments than the 3 of a document"):
            source.read(0, 0)


CHUNKS = st.lists(st.integers(1, 6), min_size=4, max_size=8)


class Cached(Numbers):
    """Shards of as many bytes as chunks, as one rank has them; `open` are those that it has read and not released."""

    def __init__(self, chunks: list[int], number: int = 0) -> None:
        super().__init__(chunks)
        self.number, self.open = number, set[int]()
        self.beside, self.most = [self], 0  # all sources of all ranks of the host; the most bytes ever open, of all

    def read(self, shard: int, chunk: int) -> list[int]:
        self.open.add(shard)
        cached = {(source.number, i): source.chunks[i] for source in self.beside for i in source.open}
        self.most = max(self.most, sum(cached.values()))
        return super().read(shard, chunk)

    def release(self, shard: int) -> None:
        self.open.remove(shard)

    def cached_bytes(self, shards: int) -> int:
        return sum(sorted(self.chunks)[-shards:])


def needed(order: Order, *held_out: HeldOut, **world: int) -> int:
    """Return what the message says; it is accepted."""
    with pytest.raises(InputError, match="lanes of a host.* keep open at once") as refused:
        check_cache_room(order, held_out, 0, **world)
    (found,) = re.findall(r"set at least (\d+),", str(refused.value))
    check_cache_room(order, held_out, int(found), **world)
    return int(found)


def lanes_over(source: Cached, window: int, number: int = 0) -> Lanes:
    made = lanes_of(source.chunks, window=window, number=number)
    made.source = source
    return made


@given(CHUNKS, CHUNKS, CHUNKS, st.integers(1, 9), st.integers(1, 2))
def test_what_fits_the_check_is_never_exceeded(
    first: list[int], second: list[int], validation: list[int], window: int, ranks: int
) -> None:
    def rank() -> tuple[Order, HeldOut, list[Cached]]:
        sources = [Cached(chunks, number) for number, chunks in enumerate([first, second, validation])]
        order = order_of(lanes_over(sources[0], window), lanes_over(sources[1], window, 1), weights=(0.5, 0.5))
        return order, HeldOut(sources[2], Echo(), seed=1, window=window, micro_batch=2), sources

    host = [rank() for _ in range(ranks)]
    every = [source for _, _, sources in host for source in sources]
    for source in every:
        source.beside = every
    limit = needed(*host[0][:2], world_size=ranks, local_size=ranks, workers=0)
    streams = [order.stream(order.start(), i, ranks) for i, (order, _, _) in enumerate(host)]
    for _ in range(4):
        for _, stream in product(range(12), streams):
            next(stream)
        validating: list[Iterator[object]] = [part.micro_batches(i, ranks) for i, (_, part, _) in enumerate(host)]
        while validating:  # the ranks in turn
            validating = [each for each in validating if next(each, None) is not None]
    assert max(source.most for source in every) <= limit


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 8))
@example([1, 1, 1], 3)
def test_the_most_shards_in_a_window_are_those_of_the_worst_order(chunks: list[int], window: int) -> None:
    def touched(order: tuple[int, ...]) -> int:
        shards = [shard for shard, count in enumerate(order) for _ in range(count)]
        return max(len(set(shards[start : start + window])) for start in range(len(shards)))

    assert most_in_a_window(chunks, window) == max(map(touched, set(permutations(chunks))))


def test_each_host_needs_room_for_its_own_lanes_and_readers() -> None:
    order = order_of(lanes_over(Cached([4] * 20), window=4), weights=(1.0,))

    assert needed(order, world_size=4, local_size=4, workers=0) == 4 * (4 + 4)  # a window can touch two shards
    assert needed(order, world_size=4, local_size=2, workers=0) == 4 * (2 + 2)
    assert needed(order, world_size=2, local_size=1, workers=2) == 4 * (2 + 2)
