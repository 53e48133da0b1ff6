"""What `trainer.mine` makes: a collection with negatives, a teacher's scores or longer documents; consistent pairs."""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.derive import CORPUS, derive, expand, require_room
from deepsiam.data_prep.collections.relevant import Relevant
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import require_name, save_array
from deepsiam.data_prep.common.progress import meter
from deepsiam.models.matching.tilde import terms_in
from deepsiam.trainer.ranking.consistency import Filter
from deepsiam.trainer.ranking.miners import Miners
from deepsiam.trainer.ranking.mining import (
    REASONS,
    Negatives,
    limited,
    merged,
    mine,
    mining_texts,
    with_negatives,
    with_scores,
)
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.rankers.likelihoods import LikelihoodRanker
from deepsiam.trainer.ranking.rankers.registry import open_ranker, ranker_of
from deepsiam.trainer.ranking.retrieval.encode import distinct, require_finite
from deepsiam.trainer.ranking.retrieval.resumable import open_work_folder
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first
from deepsiam.trainer.training.engine.world import World, failed_rank_exits_first, joined, rank_0_speaks, say

BLOCK = 4096  # texts that are expanded between two files
SETTINGS = ("depth", "margin", "skip", "per_document")  # of mining, kept in the manifest


def derive_by(chosen: argparse.Namespace) -> None:
    """Make what the arguments of `trainer.mine` choose; print what was made."""
    require_name(chosen.out)
    if chosen.pairs:
        with failed_rank_exits_first():
            _filter(chosen)
        return
    if World.from_environment().size > 1:
        raise InputError("only --pairs is for several ranks: start one process, without the launcher")
    collection = Collection.open(chosen.collection)
    require_room(collection, chosen.out)
    if chosen.expand:
        _expand(collection, chosen)
        return
    collection.groups(chosen.split)  # raise for a wrong split before loading a model
    made = _score(collection, chosen) if chosen.score else _mine(collection, chosen)
    what = "a teacher's scores" if chosen.score else "other candidates"
    print(f"wrote {made.directory}: the same texts; its split {chosen.split} has {what}")


def _mine(collection: Collection, chosen: argparse.Namespace) -> Collection:
    """Add what the systems find to each group of the split."""
    texts = mining_texts(collection, chosen.split)
    miners = Miners.open(chosen.system, collection, chosen.split, chosen.precision)
    groups, before = collection.groups(chosen.split), collection.manifest.get("mined", [])
    relevant = Relevant.of_split(collection, chosen.split)
    depths = [miners.depth(i, texts, chosen.depth) for i in range(len(chosen.system))]
    for name, depth in zip(miners.names, depths, strict=True):
        if chosen.skip >= depth:
            raise InputError(
                f"--skip {chosen.skip} leaves nothing of the {depth:,} documents that {name} ranks: lower it"
            )
    mined = [
        mine(texts, relevant, miners.rank(i, texts, relevant, chosen.depth), chosen.margin, chosen.skip)
        for i in range(len(chosen.system))
    ]
    negatives = merged(mined, len(before) + 1)
    left_out = sum((of_system.left_out for of_system in mined), Counter[str]())
    if chosen.per_document:
        served = limited(negatives, chosen.per_document)
        left_out["serves"] = _count(negatives) - _count(served)
        negatives = served
    about = {"mined_by": miners.names, "split": chosen.split, **{name: getattr(chosen, name) for name in SETTINGS}}
    candidates = with_negatives(groups, negatives)
    made = derive(collection, chosen.out, chosen.split, candidates, about, [*before, *miners.names])
    documents = len(texts.pool)
    for name, depth in zip(miners.names, depths, strict=True):
        ranks = f"ranks {chosen.skip + 1} to {depth} of {documents:,} documents"
        print(f"split {chosen.split}: {len(texts.queries):,} queries: {ranks} by {name}")
    added = np.diff(candidates.ends - groups.candidates.ends, prepend=0)  # of each group
    counts = np.array([len(found.documents) for found in negatives.values()])
    least, half, most = np.percentile(counts, [0, 50, 100])
    print(
        f"{counts.sum():,} negatives, {least:.0f} to {most:.0f} a query, {half:.0f} in the median; "
        f"{(counts == 0).sum():,} queries have none"
    )
    reasons = ", ".join(f"{left_out[key]:,} {words}" for key, words in REASONS.items() if left_out[key])
    print(f"left out: {reasons or 'nothing'}")
    print(f"{added.sum():,} candidates were added to the groups, which had the others already")
    return made


def _count(negatives: Mapping[int, Negatives]) -> int:
    return sum(len(found.documents) for found in negatives.values())


def _score(collection: Collection, chosen: argparse.Namespace) -> Collection:
    """Add a teacher's scores to the candidates of the split."""
    teacher, split = ranker_of(load_any(chosen.score), collection, chosen.precision), chosen.split
    teacher.require_score()
    teacher.require_by_itself()
    candidates = with_scores(split, teacher)
    assert candidates.scores is not None
    about = {"scored_by": teacher.name, "split": split}
    made = derive(collection, chosen.out, split, candidates, about, collection.manifest.get("mined", []))
    print(
        f"split {split}: {len(candidates.scores):,} candidates of {len(candidates.ends):,} groups scored, "
        f"{candidates.scores.min():.4g} to {candidates.scores.max():.4g}"
    )
    return made


def _expand(collection: Collection, chosen: argparse.Namespace) -> None:
    """Add to each document the terms that a model finds likeliest."""
    ranker = open_ranker(chosen.expand, collection, chosen.precision)
    if not isinstance(ranker, LikelihoodRanker):
        raise InputError(f"--expand: {ranker.title} gives terms no likelihoods: name a run of tilde")
    kept = chosen.out.with_name(f"{chosen.out.name}.terms")
    added = _likeliest_terms(ranker, chosen.terms, kept)
    about = {"expanded_by": ranker.name, "terms": chosen.terms}
    made = expand(collection, chosen.out, added, about)
    shutil.rmtree(kept)
    after, before = (one.manifest["counts"][CORPUS]["tokens"] / len(made.corpus) for one in (made, collection))
    print(f"{len(made.corpus):,} documents of {after:.0f} tokens on average, {before:.0f} before")
    print(f"wrote {made.directory}: the same queries and splits; its documents are longer")


def _likeliest_terms(ranker: LikelihoodRanker, number: int, folder: Path) -> Iterator[np.ndarray]:
    """Yield the ids of the likeliest terms that each document lacks (Zhuang and Zuccon, 2021b); ties: smaller ids.

    A stopped command resumes: each block of distinct texts has a file NNNNNN.npy, int32 [texts, terms], best first and
    padded with -1, in OUT.terms.

    Raises:
        InputError: the work folder belongs to another collection, model or number; a likelihood is not finite.
    """
    corpus, framing = ranker.collection.corpus, ranker.documents.framing
    by = {"model": ranker.identity["fingerprint"], "precision": ranker.precision}
    made_of = {"collection": ranker.collection.sha256, **by, "terms": number}
    open_work_folder(folder, made_of, "collection, model, --precision or --terms")
    of_text, first = distinct(framing.cut(corpus.tokens(i)) for i in range(len(corpus)))
    files = [folder / f"{start // BLOCK:06d}.npy" for start in range(0, len(first), BLOCK)]
    with meter("expand", "texts", len(first)) as report:
        for i, file in enumerate(files):
            documents = first[i * BLOCK : (i + 1) * BLOCK].tolist()
            if not file.is_file():
                texts = [framing.cut(corpus.tokens(document)) for document in documents]
                save_array(file, _terms(ranker, texts, number))
            report(i * BLOCK + len(documents), "")
    blocks = [np.load(file, mmap_mode="r", allow_pickle=False) for file in files]
    for text in of_text.tolist():
        terms = blocks[text // BLOCK][text % BLOCK]
        yield terms[terms >= 0]


def _terms(ranker: LikelihoodRanker, texts: list[np.ndarray], number: int) -> np.ndarray:
    """Return the terms of some texts, int32 [n, number], padded with -1."""
    allowed = terms_in(ranker.loaded.tokenizer)
    terms = np.full((len(texts), number), -1, np.int32)
    for batch, vectors, _ in ranker.documents.batches(texts):
        require_finite(vectors, "expand")
        for text, likelihoods in zip(batch, vectors, strict=True):
            free = allowed.copy()
            free[texts[text]] = False
            candidates = np.flatnonzero(free)
            best = candidates[np.argsort(-likelihoods[candidates], kind="stable")[:number]]
            terms[text, : len(best)] = best
    return terms


def _filter(chosen: argparse.Namespace) -> None:
    """Keep the pairs whose documents the model finds."""
    world = joined()
    with rank_0_first(world.rank, world.size):
        if chosen.out.exists():
            raise InputError(f"{chosen.out}: exists: name a new folder, or remove it")
        model = Path(chosen.system[0])
        pairs = Filter.open(chosen.pairs, model, chosen.consistent, chosen.pool, chosen.seed, chosen.precision)
    with rank_0_speaks(world.rank):
        for line in pairs.write(chosen.out, world.rank, world.size):
            say(line)
    if world.rank == 0:
        shutil.rmtree(chosen.out.with_name(f"{chosen.out.name}.kept"))
        print(f"wrote {chosen.out}: the pairs that are kept, in their order")
