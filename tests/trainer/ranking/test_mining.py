"""Which retrieved documents become a query's negatives, against plain sets; groups with added negatives or scores."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.relevant import Relevant
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.batching.candidates import Candidates, Example
from deepsiam.models.matching.siamese import SiameseConfig
from deepsiam.trainer.ranking.miners import Miners
from deepsiam.trainer.ranking.mining import (
    COPY_SIMILARITY,
    SHINGLE,
    Mined,
    Negatives,
    limited,
    merged,
    mine,
    mining_texts,
    with_negatives,
    with_scores,
)
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import open_ranker, ranker_of
from deepsiam.trainer.ranking.retrieval.search import Ranked
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.build import build_model
from tests import toy
from tests.trainer.ranking.retrieval.fakes import overlap_run, plain_overlap, ranked_as
from tests.trainer.runs import write_run

QUERIES = 30
LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}
WORDS = [" ".join(sentences) for sentences in toy.documents(150, seed=8)]


def written(
    folder: Path, tokenizer_json: Path, texts: Sequence[str], judged: Mapping[str, str], pools: Mapping[str, str] = {}
) -> Collection:
    """A collection of documents d0, d1, ...; queries are a document's first words; some splits have judgements."""
    corpus = {f"d{i}": text for i, text in enumerate(texts)}
    queries = {f"q{i}": " ".join(text.split()[:4]) or "none" for i, text in enumerate(texts)}
    toy.write_beir(folder, corpus, queries, **judged)
    (folder / "pools").mkdir()
    for split, names in pools.items():
        (folder / "pools" / f"{split}.txt").write_text(names)
    return build("beir", [folder], folder, tokenizers.load(tokenizer_json))


@pytest.fixture(scope="module")
def planted(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """Each of the first documents is relevant to its query and has a copy, a near-copy and a copy of its first half."""
    first = [f"{a} {b}" for a, b in zip(WORDS[:QUERIES], WORDS[QUERIES : 2 * QUERIES], strict=True)]
    near = [f"{text} and" for text in first]
    halves = [" ".join(text.split()[: len(text.split()) // 2]) for text in first]
    rows = "".join(f"q{i}\td{i}\t1\nq{i}\td{(i + 1) % QUERIES}\t{i % 2}\n" for i in range(QUERIES))
    folder = tmp_path_factory.mktemp("planted") / "c"
    texts = [*first, *first, *near, *halves, *WORDS[2 * QUERIES :], ""]
    return written(folder, shards / "tokenizer.json", texts, {"train": rows})


def plain_copies(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether the Jaccard similarity of the 5-gram sets, as tuples, reaches COPY_SIMILARITY."""
    first, second = ({tuple(x[i : i + SHINGLE]) for i in range(max(1, len(x) - SHINGLE + 1))} for x in (a, b))
    return len(first & second) >= COPY_SIMILARITY * len(first | second)


@pytest.mark.parametrize(
    ("margin", "skip"), [(None, 0), (0.0, 0), (1.5, 0), ("20%", 0), ("0%", 0), (None, 5), ("20%", 30)]
)
def test_negatives_are_those_of_a_plain_filter(planted: Collection, margin: float | str | None, skip: int) -> None:
    texts = mining_texts(planted, "train")
    assert texts.queries == list(range(QUERIES))
    assert sorted(texts.pool) == list(range(len(planted.corpus)))
    relevant = Relevant.of_groups(planted, planted.groups("train"))
    ranked = Bm25Ranker(texts.collection).system(texts).rank(60)
    ranked[3] = ranked_as(np.random.default_rng(0).permutation(len(texts.pool)).tolist())  # all documents
    mined = mine(texts, relevant, ranked, margin, skip)
    seen: dict[str, int] = {}
    for query, found in zip(texts.queries, ranked, strict=True):
        known = {query} | ({(query + 1) % QUERIES} if query % 2 else set())
        documents = [texts.pool[i] for i in found.documents]
        of_relevant = [s for d, s in zip(documents, found.scores.tolist(), strict=True) if d in known]
        limit = max(of_relevant, default=-np.inf)  # query 3's relevant documents have negative scores
        if isinstance(margin, str):
            limit -= {"20%": 0.2, "0%": 0}[margin] * abs(limit) if of_relevant else 0
        elif margin is not None:
            limit -= margin
        expected = []
        for rank, (document, score) in enumerate(zip(documents, found.scores.tolist(), strict=True)):
            tokens = planted.corpus.tokens(document).tolist()
            if document in known:
                reason = "relevant"
            elif rank < skip:
                reason = "skipped"
            elif margin is not None and not (of_relevant and score <= limit):
                reason = "margin"
            elif not tokens:
                reason = "empty"
            elif any(plain_copies(tokens, planted.corpus.tokens(other).tolist()) for other in known):
                reason = "copy"
            else:
                expected.append((document, score))
                continue
            seen[reason] = seen.get(reason, 0) + 1
        negatives = mined.negatives[query]
        assert list(zip(negatives.documents.tolist(), negatives.scores.tolist(), strict=True)) == expected
    assert mined.left_out == seen
    assert seen["copy"] >= 2 * QUERIES or margin or skip
    reasons = {"relevant", "copy", "empty", *(["margin"] if margin is not None else []), *(["skipped"] if skip else [])}
    assert set(seen) - {"copy"} == reasons - {"copy"}


def test_a_relevant_document_that_was_not_found_leaves_nothing_within_a_margin(planted: Collection) -> None:
    texts, relevant = mining_texts(planted, "train"), Relevant.of_groups(planted, planted.groups("train"))
    ranked = [Ranked(np.array([texts.pool.index(140)]), np.array([-5.0], np.float32))] * QUERIES
    for margin, expected in ((0.0, []), (None, [140])):
        found = mine(texts, relevant, ranked, margin).negatives.values()
        assert all(negatives.documents.tolist() == expected for negatives in found)


@pytest.mark.parametrize("pools", [{}, {"test": "d8\nd9\nd0\n"}, {"train": "d0\nd3\nd7\n", "test": "d8\n"}])
def test_what_is_mined_from(pools: dict[str, str], shards: Path, tmp_path: Path) -> None:
    """A split's own pool, or everything except documents that only other splits' pools have; d0 is in both splits."""
    judged = {"train": "q0\td0\t1\nq1\td1\t1\n", "test": "q2\td8\t1\n"}
    opened = written(tmp_path / "c", shards / "tokenizer.json", WORDS[:10], judged, pools)
    expected = {0: range(10), 1: range(8), 2: (0, 3, 7)}[len(pools)]
    assert sorted(mining_texts(opened, "train").pool) == list(expected)


@pytest.mark.parametrize(("margin", "excluded"), [(None, False), (0.5, False), (None, True)])
def test_a_querys_own_text_and_what_is_relevant_to_it_under_another_id_are_not_mined(
    shards: Path, tmp_path: Path, margin: float | None, excluded: bool
) -> None:
    """q0 and q1 have one text. q2 is the document of that id, which says more, and d4, which says the same."""
    corpus = {"d0": "hij hi b", "d1": "hij hi c", "d2": "hij hi d", "q2": "hij hi f e", "d4": "hij hi f", "d5": "hij g"}
    queries = {"q0": "hij hi", "q1": "hij hi", "q2": "hij hi f"}
    folder = toy.write_beir(tmp_path / "c", corpus, queries, train="q0\td0\t1\nq1\td1\t1\nq2\td2\t1\n")
    if excluded:
        (folder / "queries.jsonl").write_text(
            "".join(json.dumps({"_id": i, "text": t, "excluded_ids": ["d5"]}) + "\n" for i, t in queries.items())
        )
    opened = build("beir", [folder], folder, tokenizers.load(shards / "tokenizer.json"))
    texts = mining_texts(opened, "train")
    place = {opened.corpus.ids[document]: at for at, document in enumerate(texts.pool)}
    order = {0: ["d5", "d1", "q2", "d2", "d0"], 1: ["d0", "d4"], 2: ["d4", "q2", "d2", "d5", "d0"]}
    ranked = [ranked_as([place[name] for name in names]) for names in order.values()]
    mined = mine(texts, Relevant.of_groups(opened, opened.groups("train")), ranked, margin)
    negatives = [[opened.corpus.ids[int(i)] for i in mined.negatives[query].documents] for query in range(3)]
    # with a margin, a document must score less than the best relevant one; the query's own text is not one of these
    of_first, of_last = ["d5", "q2", "d2"][bool(margin or excluded) :], ["d5", "d0"][excluded:]
    assert negatives == [of_first, ["d4"], of_last]
    reasons = {"margin": int(bool(margin)), "excluded": 2 * excluded}
    assert mined.left_out == {"relevant": 4, "own": 2, **{why: n for why, n in reasons.items() if n}}


def test_every_group_of_a_query_gets_its_negatives_behind_its_own(planted: Collection) -> None:
    groups, texts = planted.groups("train"), mining_texts(planted, "train")
    mined = mine(texts, Relevant.of_groups(planted, groups), Bm25Ranker(texts.collection).system(texts).rank(20), None)
    queries, ends, documents, labels, found_by, scores, taught = with_negatives(groups, merged([mined], 3))
    np.testing.assert_array_equal(queries, groups.queries)
    start = 0
    for i, end in enumerate(ends.tolist()):
        query, given, given_labels = groups[i]
        negatives = mined.negatives[query]
        new = ~np.isin(negatives.documents, given)
        expected = [*given.tolist(), *negatives.documents[new].tolist()]
        assert documents[start:end].tolist() == expected
        assert labels[start:end].tolist() == [*given_labels.tolist(), *[0.0] * new.sum()]
        assert found_by[start:end].tolist() == [0] * len(given) + [3] * new.sum()
        np.testing.assert_array_equal(scores[start:end], [*[np.nan] * len(given), *negatives.scores[new]])
        start = end
    assert len(documents) == len(labels) == len(found_by) == len(scores) == start > 3 * len(groups.labels)
    assert taught is None
    assert all(array.dtype == dtype for array, dtype in ((labels, np.float32), (found_by, np.uint8)))
    given_scores = np.arange(len(groups.labels), dtype=np.float32)
    taught = with_negatives(replace(groups, scores=given_scores), merged([mined], 3)).scores
    assert taught is not None
    assert taught.dtype == np.float32
    np.testing.assert_array_equal(taught[found_by == 0], given_scores)
    assert np.isnan(taught[found_by == 3]).all()


def test_what_several_systems_found_is_merged_in_turn() -> None:
    rng = np.random.default_rng(0)
    lists = [{query: rng.permutation(12)[: rng.integers(0, 9)] for query in range(40)} for _ in range(3)]
    mined = [
        Mined({q: Ranked(d, (100 * i - np.arange(len(d))).astype(np.float32)) for q, d in of_system.items()})
        for i, of_system in enumerate(lists, start=1)
    ]
    for query, found in merged(mined, 5).items():
        expected: list[tuple[int, float, int]] = []
        for place in range(12):
            for i, of_system in enumerate(lists, start=1):
                if place < len(of_system[query]) and of_system[query][place] not in [row[0] for row in expected]:
                    expected.append((int(of_system[query][place]), 100.0 * i - place, i + 4))
        assert list(zip(*(array.tolist() for array in found), strict=True)) == expected
        assert [array.dtype for array in found] == [np.int64, np.float32, np.uint8]


def test_a_document_serves_the_queries_that_have_it_nearest_the_top() -> None:
    rng = np.random.default_rng(1)
    negatives = {}
    for query in rng.permutation(50).tolist():
        documents = rng.permutation(20)[: rng.integers(0, 15)]
        negatives[query] = Negatives(documents, rng.random(len(documents)), np.ones(len(documents), np.uint8))
    for most in (1, 3, 50):
        whole = {query: found.documents.tolist() for query, found in negatives.items()}
        kept = {query: found.documents.tolist() for query, found in limited(negatives, most).items()}
        for document in range(20):
            users = sorted((rows.index(document), query) for query, rows in whole.items() if document in rows)
            assert {query for query, rows in kept.items() if document in rows} == {query for _, query in users[:most]}
        assert all(rows == [d for d in whole[query] if d in rows] for query, rows in kept.items())
        uses = Counter(document for rows in kept.values() for document in rows)
        assert max(uses.values()) <= most
    nothing = {3: Negatives(np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.uint8))}
    assert not len(limited(nothing, 1)[3].documents)


def test_a_teacher_scores_every_candidate_and_replaces_no_label(planted: Collection) -> None:
    groups = planted.groups("train")
    candidates = with_scores("train", ranker_of(overlap_run(planted), planted))
    np.testing.assert_array_equal(candidates.documents, groups.candidates.flat)
    np.testing.assert_array_equal(candidates.ends, groups.candidates.ends)
    expected = []
    for i in range(len(groups)):
        query, documents, _ = groups[i]
        tokens = planted.queries.tokens(query)[:6].tolist()
        expected += [plain_overlap(tokens, planted.corpus.tokens(d)[:14].tolist()) for d in documents.tolist()]
    assert candidates.scores is not None
    np.testing.assert_allclose(candidates.scores, expected)
    np.testing.assert_array_equal(candidates.labels, groups.labels)
    assert len(set(expected)) > 5


@pytest.mark.parametrize("learnt", [False, True])
def test_a_model_learns_nothing_from_itself(planted: Collection, tmp_path: Path, learnt: bool) -> None:
    keys = {"name": "siamese", "similarity": "cosine", "temperature": 0.05, "learn_temperature": learnt, **LENGTHS}
    teacher = load_trained(write_run(tmp_path / "run", planted.directory / "tokenizer.json", noise=0.5, **keys))
    scored, groups = with_scores("train", ranker_of(teacher, planted)), planted.groups("train")
    ends = scored.ends.tolist()
    assert scored.scores is not None
    examples = [
        Example(planted.queries.tokens(groups[i][0]), scored.documents[a:b], scored.scores[a:b], np.array([0]))
        for i, (a, b) in enumerate(zip([0, *ends], ends, strict=False))
    ]
    method = SiameseConfig(**keys, loss="kl")  # type: ignore[arg-type]
    student = build_model(method, teacher.model.trunk)
    student.load_state_dict(teacher.model.state_dict())
    batcher = method.batcher(planted.tokenizer, Candidates(planted.corpus, np.arange(5)))
    arrays = batcher.micro_batch(examples, [np.random.default_rng(0)] * len(examples)).arrays
    losses = student.eval()(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    assert np.ptp(scored.scores) > 1  # cosines divided by the temperature
    assert float(losses["kl"]) == pytest.approx(0, abs=1e-4)


def test_splits_with_nothing_to_mine_for_are_refused(toy_classes: Path, shards: Path, tmp_path: Path) -> None:
    classes = Collection.open(toy_classes)
    with pytest.raises(InputError, match="its labels are classes: a teacher has no scores for them"):
        with_scores("train", ranker_of(overlap_run(classes), classes))
    none = written(tmp_path / "c", shards / "tokenizer.json", WORDS[:10], {"train": "q0\td0\t0\n"})
    for collection, split, words in (
        (classes, "train", "its labels are classes"),
        (none, "train", "split train has no relevant document"),
        (none, "dev", "no split 'dev'"),
    ):
        with pytest.raises(InputError, match=words):
            mining_texts(collection, split)


def test_a_re_ranker_orders_what_was_found_and_the_relevant_documents(toy_collection: Path, tmp_path: Path) -> None:
    collection, keys = Collection.open(toy_collection), {"loss": "binary", **LENGTHS}
    run = write_run(tmp_path / "x", collection.directory / "tokenizer.json", name="cross_encoder", noise=0.5, **keys)
    texts, relevant = mining_texts(collection, "train"), Relevant.of_groups(collection, collection.groups("train"))
    miners = Miners.open(["bm25", f"bm25 > 7 {run}"], collection, "train", None)
    assert miners.names[0] == "bm25"
    assert miners.names[1].startswith(f"bm25 > 7 {run}/checkpoints/")
    found = miners.rank(0, texts, relevant, 7)
    ranked = miners.rank(1, texts, relevant, 100)
    scorer = open_ranker(run, collection)
    added = 0
    for query, first, last in zip(texts.queries, found, ranked, strict=True):
        known = relevant.of(query).tolist()
        documents = {texts.pool[i] for i in first.documents.tolist()} | set(known)
        added += not set(known) <= {texts.pool[i] for i in first.documents.tolist()}
        assert sorted(texts.pool[i] for i in last.documents.tolist()) == sorted(documents)
        order = [texts.pool[i] for i in last.documents.tolist()]
        (scores,) = scorer.scores([(query, order)])
        np.testing.assert_allclose(last.scores, scores, rtol=3e-4, atol=1e-6)  # rounded to 12 bits
        assert (np.diff(last.scores) <= 0).all()
    assert added
    for short, whole in zip(miners.rank(1, texts, relevant, 3), ranked, strict=True):
        np.testing.assert_array_equal(short.documents, whole.documents[:3])

    nested = Miners.open([f"bm25 > 3 {run} > 100 {run}"], collection, "train", None)
    assert nested.depth(0, texts, 100) == 3

    mined = mine(texts, relevant, ranked, 0.0)  # leaves out what the re-ranker scores above the relevant document
    for query, last in zip(texts.queries, ranked, strict=True):
        documents = np.array([texts.pool[i] for i in last.documents.tolist()])
        best = last.scores[np.isin(documents, relevant.of(query))].max()
        assert (mined.negatives[query].scores <= best).all()
    assert 0 < sum(len(negatives.documents) for negatives in mined.negatives.values()) < sum(map(len, found)) * 7
