"""What `trainer.mine` makes: a collection with negatives, a teacher's scores or longer documents; consistent pairs."""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.derive import CORPUS, derive, expand, require_room
from deepsiam.data_prep.collections.groups import Groups
from deepsiam.data_prep.collections.relevant import Relevant
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import require_name, save_array
from deepsiam.data_prep.common.progress import meter
from deepsiam.models.matching.tilde import terms_in
from deepsiam.trainer.ranking.consistency import Filter
from deepsiam.trainer.ranking.miners import Miners
from deepsiam.trainer.ranking.mining import (
    REASONS,
    Mined,
    Negatives,
    consistent,
    limited,
    merged,
    mine,
    mining_texts,
    with_negatives,
    with_scores,
)
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.rankers.likelihoods import LikelihoodRanker
from deepsiam.trainer.ranking.rankers.registry import open_ranker, ranker_of
from deepsiam.trainer.ranking.retrieval.encode import distinct, require_finite
from deepsiam.trainer.ranking.retrieval.resumable import open_work_folder
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first
from deepsiam.trainer.training.engine.world import World, failed_rank_exits_first, joined, rank_0_speaks, say

BLOCK = 4096  # texts that are expanded between two files
SETTINGS = ("depth", "margin", "skip", "per_document", "consistent")  # of mining, kept in the manifest


def derive_by(arguments: argparse.Namespace) -> None:
    """Make what the arguments of `trainer.mine` choose; print what was made."""
    require_name(arguments.out)
    if arguments.pairs:
        with failed_rank_exits_first():
            _filter(arguments)
        return
    if World.from_environment().size > 1:
        raise InputError("only --pairs is for several ranks: start one process, without the launcher")
    collection = Collection.open(arguments.collection)
    require_room(collection, arguments.out)
    if arguments.expand:
        _expand(collection, arguments)
        return
    collection.groups(arguments.split)  # raise for a wrong split before loading a model
    derived = _score(collection, arguments) if arguments.score else _mine(collection, arguments)
    content = "a teacher's scores" if arguments.score else "other candidates"
    print(f"wrote {derived.directory}: the same texts; its split {arguments.split} has {content}")


def _mine(collection: Collection, arguments: argparse.Namespace) -> Collection:
    """Add what the systems find to each group of the split."""
    texts = mining_texts(collection, arguments.split)
    miners = Miners.open(arguments.system, collection, arguments.split, arguments.precision)
    groups, earlier_miners = collection.groups(arguments.split), collection.manifest.get("mined", [])
    relevant = Relevant.of_split(collection, arguments.split)
    depths = [miners.depth(i, texts, arguments.depth) for i in range(len(arguments.system))]
    for name, depth in zip(miners.names, depths, strict=True):
        if arguments.skip >= depth:
            raise InputError(
                f"--skip {arguments.skip} leaves nothing of the {depth:,} documents that {name} ranks: lower it"
            )
    mined = [
        mine(texts, relevant, miners.rank(i, texts, relevant, arguments.depth), arguments.margin, arguments.skip)
        for i in range(len(arguments.system))
    ]
    negatives = merged(mined, len(earlier_miners) + 1)
    if arguments.consistent:
        groups = _consistent(collection, arguments, groups, mined)
        negatives = {query: negatives[query] for query in np.unique(groups.queries).tolist()}
    left_out = sum((miner.left_out for miner in mined), Counter[str]())
    if arguments.per_document:
        served = limited(negatives, arguments.per_document)
        left_out["serves"] = _count(negatives) - _count(served)
        negatives = served
    about = {
        "mined_by": miners.names,
        "split": arguments.split,
        **{name: getattr(arguments, name) for name in SETTINGS},
    }
    candidates = with_negatives(groups, negatives)
    derived = derive(collection, arguments.out, arguments.split, candidates, about, [*earlier_miners, *miners.names])
    documents = len(texts.pool)
    for name, depth in zip(miners.names, depths, strict=True):
        ranks = f"ranks {arguments.skip + 1} to {depth} of {documents:,} documents"
        print(f"split {arguments.split}: {len(texts.queries):,} queries: {ranks} by {name}")
    new_candidates = np.diff(candidates.ends - groups.candidates.ends, prepend=0)  # of each group
    counts = np.array([len(ranking.documents) for ranking in negatives.values()])
    low, median, high = np.percentile(counts, [0, 50, 100])
    print(
        f"{counts.sum():,} negatives, {low:.0f} to {high:.0f} a query, {median:.0f} in the median; "
        f"{(counts == 0).sum():,} queries have none"
    )
    reasons = ", ".join(f"{left_out[key]:,} {words}" for key, words in REASONS.items() if left_out[key])
    print(f"left out: {reasons or 'nothing'}")
    print(f"{new_candidates.sum():,} candidates were added to the groups, which had the others already")
    return derived


def _consistent(
    collection: Collection, arguments: argparse.Namespace, groups: Groups, mined: Sequence[Mined]
) -> Groups:
    """Keep the groups whose relevant documents are found."""
    where = f"{collection.directory}: split {arguments.split}"
    if groups.unlisted is not None:
        raise InputError(
            f"{where} judges documents that are not candidates: --consistent is for queries of trainer.ask"
        )
    are_kept = consistent(groups, mined, arguments.consistent)
    if not are_kept.any():
        raise InputError(
            f"{where}: no query finds its document among the first {arguments.consistent}: nothing is left"
        )
    ranks = f"ranks 1 to {arguments.consistent}"
    print(f"kept {are_kept.sum():,} of {len(groups):,} groups: those with a relevant document on {ranks}")
    return groups.only(are_kept)


def _count(negatives: Mapping[int, Negatives]) -> int:
    return sum(len(ranking.documents) for ranking in negatives.values())


def _score(collection: Collection, arguments: argparse.Namespace) -> Collection:
    """Add a teacher's scores to the candidates of the split."""
    teacher, split = _teacher(collection, arguments), arguments.split
    teacher.require_score()
    teacher.require_by_itself()
    candidates = with_scores(split, teacher)
    assert candidates.scores is not None
    about = {"scored_by": teacher.name, "split": split}
    if arguments.recipe:
        about["recipe"] = str(arguments.recipe)
    derived = derive(collection, arguments.out, split, candidates, about, collection.manifest.get("mined", []))
    print(
        f"split {split}: {len(candidates.scores):,} candidates of {len(candidates.ends):,} groups scored, "
        f"{candidates.scores.min():.4g} to {candidates.scores.max():.4g}"
    )
    return derived


def _teacher(collection: Collection, arguments: argparse.Namespace) -> Ranker:
    teacher = ranker_of(load_any(arguments.score), collection, arguments.precision)
    if not arguments.recipe:
        return teacher
    try:
        return teacher.with_options({"recipe": str(arguments.recipe)})
    except ValueError as error:
        raise InputError(f"--recipe {arguments.recipe}: {error}") from None


def _expand(collection: Collection, arguments: argparse.Namespace) -> None:
    """Add to each document the terms that a model finds likeliest."""
    ranker = open_ranker(arguments.expand, collection, arguments.precision)
    if not isinstance(ranker, LikelihoodRanker):
        raise InputError(f"--expand: {ranker.title} gives terms no likelihoods: name a run of tilde")
    work_folder = arguments.out.with_name(f"{arguments.out.name}.terms")
    terms = _likeliest_terms(ranker, arguments.terms, work_folder)
    about = {"expanded_by": ranker.name, "terms": arguments.terms}
    derived = expand(collection, arguments.out, terms, about)
    shutil.rmtree(work_folder)
    mean_length, mean_before = (
        texts.manifest["counts"][CORPUS]["tokens"] / len(derived.corpus) for texts in (derived, collection)
    )
    print(f"{len(derived.corpus):,} documents of {mean_length:.0f} tokens on average, {mean_before:.0f} before")
    print(f"wrote {derived.directory}: the same queries and splits; its documents are longer")


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
    text_numbers, first_documents = distinct(framing.cut(corpus.tokens(i)) for i in range(len(corpus)))
    files = [folder / f"{start // BLOCK:06d}.npy" for start in range(0, len(first_documents), BLOCK)]
    with meter("expand", "texts", len(first_documents)) as report:
        for i, file in enumerate(files):
            documents = first_documents[i * BLOCK : (i + 1) * BLOCK].tolist()
            if not file.is_file():
                texts = [framing.cut(corpus.tokens(document)) for document in documents]
                save_array(file, _terms(ranker, texts, number))
            report(i * BLOCK + len(documents), "")
    blocks = [np.load(file, mmap_mode="r", allow_pickle=False) for file in files]
    for text in text_numbers.tolist():
        terms = blocks[text // BLOCK][text % BLOCK]
        yield terms[terms >= 0]


def _terms(ranker: LikelihoodRanker, texts: list[np.ndarray], number: int) -> np.ndarray:
    """Return the terms of some texts, int32 [n, number], padded with -1."""
    vocabulary = terms_in(ranker.loaded.tokenizer)
    terms = np.full((len(texts), number), -1, np.int32)
    for batch, vectors, _ in ranker.documents.batches(texts):
        require_finite(vectors, "expand")
        for text, likelihoods in zip(batch, vectors, strict=True):
            free = vocabulary.copy()
            free[texts[text]] = False
            candidates = np.flatnonzero(free)
            top_terms = candidates[np.argsort(-likelihoods[candidates], kind="stable")[:number]]
            terms[text, : len(top_terms)] = top_terms
    return terms


def _filter(arguments: argparse.Namespace) -> None:
    """Keep the pairs whose documents the model finds."""
    world = joined()
    with rank_0_first(world.rank, world.size):
        if arguments.out.exists():
            raise InputError(f"{arguments.out}: exists: name a new folder, or remove it")
        model = Path(arguments.system[0])
        pairs = Filter.open(
            arguments.pairs, model, arguments.consistent, arguments.pool, arguments.seed, arguments.precision
        )
    with rank_0_speaks(world.rank):
        for line in pairs.write(arguments.out, world.rank, world.size):
            say(line)
    if world.rank == 0:
        shutil.rmtree(arguments.out.with_name(f"{arguments.out.name}.kept"))
        print(f"wrote {arguments.out}: the pairs that are kept, in their order")
