"""The consistency filter: which pairs are kept, against plain loops; resumed; what is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.trainer import mine
from deepsiam.trainer.ranking.consistency import Filter
from tests import toy
from tests.trainer.ranking.indexes.five_blocks import tree
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}


@pytest.fixture(scope="module")
def pairs(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.write_pairs(tmp_path_factory.mktemp("few") / "shards", shards, count=120)


@pytest.fixture(scope="module")
def run(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    keys = {"name": "pairs", "similarity": "cosine", "pooling": "mean", "query_prompt": "ab ", **LENGTHS}
    return write_run(tmp_path_factory.mktemp("run") / "pairs", pairs / "tokenizer.json", **keys)


def documents_of(folder: Path) -> list[TokenDocument]:
    manifest = Manifest.load(folder)
    return [document for i in range(len(manifest.shards)) for document in Shard.open(manifest, i).documents()]


def expected(pairs: Path, run: Path, k: int, pool: int | None) -> list[str]:
    """The ids of the pairs whose document ranks among the first k different texts of the pool."""
    documents = documents_of(pairs)
    ranker = Filter.open(pairs, run, k, pool, 3, None).ranker
    queries, found = (
        embed.embeddings([document.segments[side] for document in documents])
        for side, embed in enumerate((ranker.queries, ranker.documents))
    )
    drawn = range(len(documents))
    if pool and pool < len(documents):
        drawn = sorted(keyed_rng("consistency pool", 3).choice(len(documents), pool, replace=False).tolist())
    scores = (queries.astype(np.float64) @ found.astype(np.float64).T).astype(np.float32)
    texts = [tuple(document.segments[1].tolist()) for document in documents]
    kept = []
    for i, document in enumerate(documents):
        better = {texts[j] for j in drawn if texts[j] != texts[i] and scores[i, j] > scores[i, i]}
        kept += [document.id] * (len(better) < k)
    return kept


@pytest.mark.parametrize(("k", "pool"), [(5, None), (2, 20), (1, 1000)])
def test_pairs_whose_document_is_found_are_kept_in_their_order(
    pairs: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], k: int, pool: int | None
) -> None:
    out = tmp_path / "kept"
    size = [f"--pool={pool}"] if pool else []
    mine.main([f"--pairs={pairs}", f"--consistent={k}", f"--system={run}", f"--out={out}", "--seed=3", *size])
    *lines, last = capsys.readouterr().out.splitlines()
    kept, before = documents_of(out), {document.id: document for document in documents_of(pairs)}
    assert [document.id for document in kept] == expected(pairs, run, k, pool)
    assert 0 < len(kept) < len(before)
    for document in kept:
        for own, given in zip(document.segments, before[document.id].segments, strict=True):
            np.testing.assert_array_equal(own, given)
    source = Manifest.load(out).source
    assert source["pairs"] is True
    assert source["consistent"].items() >= {"k": k, "pool": pool, "kept": len(kept)}.items()
    assert len(lines) == len(Manifest.load(pairs).shards) + 1
    assert lines[-1].startswith(f"all: {len(kept):,} of 120 pairs kept")
    assert last == f"wrote {out}: the pairs that are kept, in their order"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]


def test_a_stopped_filter_goes_on(pairs: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Filter.open(pairs, run, 2, 30, 1, None)
    list(whole.write(tmp_path / "whole"))
    stopped = whole.write(tmp_path / "stopped")
    next(stopped), next(stopped)  # two shards
    stopped.close()
    scored, kept = [], Filter._kept
    monkeypatch.setattr(Filter, "_kept", lambda self, *pairs: scored.append(1) or kept(self, *pairs))
    monkeypatch.setattr(Filter, "_pool_texts", lambda self: pytest.fail("the pool is read again"))
    lines = list(whole.write(tmp_path / "stopped"))
    assert len(scored) == len(lines) - 1 - 2
    assert tree(tmp_path / "stopped") == tree(tmp_path / "whole")
    other = Filter.open(pairs, run, 2, 30, 2, None)
    with pytest.raises(InputError, match=r"stopped.kept: was made from another pairs, model, --precision, --con"):
        next(other.write(tmp_path / "stopped"))


@pytest.mark.slow  # separate processes
def test_two_ranks_keep_the_same_pairs_as_one(pairs: Path, run: Path, tmp_path: Path) -> None:
    list(Filter.open(pairs, run, 2, 60, 1, None).write(tmp_path / "1"))
    given = [f"--pairs={pairs}", "--consistent=2", "--pool=60", f"--system={run}", f"--out={tmp_path / '2'}"]
    done = toy.launch(2, "trainer.mine", *given, OMP_NUM_THREADS=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all: ") == done.stdout.count("wrote ") == 1  # only rank 0 prints
    assert tree(tmp_path / "2") == tree(tmp_path / "1")
    assert not (tmp_path / "2.kept").exists()


def test_refusals_are_told(shards: Path, pairs: Path, run: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    colbert = write_run(tmp_path / "colbert", pairs / "tokenizer.json", name="colbert", **LENGTHS)
    usual = [f"--pairs={pairs}", "--consistent=2", f"--system={run}"]
    for given, words in (
        ([f"--pairs={shards}", *usual[1:]], "its documents are not pairs: name shards of"),
        ([*usual[:2], f"--system={colbert}"], "a colbert has no one vector for a text"),
        ([usual[0], usual[2]], "--pairs needs --consistent K"),
        ([*usual[:2], f"--score={run}"], "K and one --system"),
        ([*usual, "--depth=3"], "--depth does not go with --pairs: leave it out"),
    ):
        assert words in refused(mine.main, *given, f"--out={tmp_path / 'out'}")
        assert not (tmp_path / "out").exists()
