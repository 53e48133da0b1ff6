"""Mine hard negatives, show them, have a teacher score them, expand documents, or keep the pairs that a model finds.

python -m trainer.mine --collection C --split train --system bm25 --out C-bm25
python -m trainer.mine --collection C --split train --system bm25 --system runs/first --depth 200 --out C-mined
python -m trainer.mine --collection C --split train --system 'bm25 > 100 runs/cross_encoder' --margin 5% --out C-safe
python -m trainer.mine --collection C-mined --split train --score runs/cross_encoder --out C-scored
python -m trainer.mine --collection C-mined --split train --explain 20 --out C-mined.html
python -m trainer.mine --collection C --expand runs/tilde --terms 200 --out C-expanded
python -m trainer.mine --pairs P/shards --consistent 2 --pool 1000000 --system runs/pairs --out P-consistent
"""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.derive import CORPUS, derive, expand, require_room
from deepsiam.data_prep.collections.relevant import Relevant
from deepsiam.data_prep.common.argument_types import positive, seed
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.files import make_directory, require_name, whole_file
from deepsiam.data_prep.common.parser import Parser
from deepsiam.trainer.analysis.negatives_page import negatives_page
from deepsiam.trainer.ranking.consistency import Filter
from deepsiam.trainer.ranking.expansion import likeliest_terms
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
from deepsiam.trainer.ranking.ranker import PRECISION_HELP, PRECISIONS
from deepsiam.trainer.ranking.rankers.likelihoods import Likelihoods
from deepsiam.trainer.ranking.rankers.registry import open_ranker, ranker_of
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first
from deepsiam.trainer.training.engine.world import World, failed_rank_exits_first, joined, rank_0_speaks, say
from deepsiam.trainer.training.recipe.margin import read_margin

DEPTH, TERMS = 100, 200
OF_MINING = ("depth", "margin", "skip", "per_document")
OF_A_SPLIT = ("system", "score", "explain")
JOBS = {  # and the options of each
    "system": {"split", "precision", *OF_MINING},
    "score": {"split", "precision"},
    "explain": {"split"},
    "expand": {"terms", "precision"},
    "pairs": {"consistent", "pool", "seed", "precision"},
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    chosen = _arguments(argv)
    with exit_on_input_error("trainer.mine"), failed_rank_exits_first():
        require_name(chosen.out)
        if chosen.pairs:
            _filter(chosen)
            return
        if World.from_environment().size > 1:
            raise InputError("only --pairs is for several ranks: start one process, without the launcher")
        collection = Collection.open(chosen.collection)
        if chosen.explain:
            _explain(collection, chosen)
            return
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
    about = {"mined_by": miners.names, "split": chosen.split, **{name: getattr(chosen, name) for name in OF_MINING}}
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


def _explain(collection: Collection, chosen: argparse.Namespace) -> None:
    """Write a page of queries with their relevant documents and negatives, for a person to judge."""
    html = negatives_page(collection, chosen.split, chosen.explain)
    make_directory(chosen.out.parent)
    with whole_file(chosen.out) as opened:
        opened.write(html.encode())
    print(f"wrote {chosen.out}: queries of split {chosen.split}, with their relevant documents and negatives")


def _expand(collection: Collection, chosen: argparse.Namespace) -> None:
    """Add to each document the terms that a model finds likeliest."""
    ranker = open_ranker(chosen.expand, collection, chosen.precision)
    if not isinstance(ranker, Likelihoods):
        raise InputError(f"--expand: {ranker.title} gives terms no likelihoods: name a run of tilde")
    kept = chosen.out.with_name(f"{chosen.out.name}.terms")
    added = likeliest_terms(ranker, chosen.terms, kept)
    about = {"expanded_by": ranker.name, "terms": chosen.terms}
    made = expand(collection, chosen.out, added, about)
    shutil.rmtree(kept)
    after, before = (one.manifest["counts"][CORPUS]["tokens"] / len(made.corpus) for one in (made, collection))
    print(f"{len(made.corpus):,} documents of {after:.0f} tokens on average, {before:.0f} before")
    print(f"wrote {made.directory}: the same queries and splits; its documents are longer")


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


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="trainer.mine",
        description="Mine hard negatives, show them, have a teacher score candidates, expand documents, or keep pairs.",
        example="python -m trainer.mine --collection data/mine --split train --system bm25 --out data/mine-bm25",
        page="docs/negatives.md",
    )
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--collection", type=Path, help="the collection, as `data_prep collection` made")
    data.add_argument("--pairs", type=Path, metavar="SHARDS", help="instead, shards of `data_prep pairs`, to filter")
    parser.add_argument("--split", help="whose groups get other candidates, or are shown")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument(
        "--system",
        action="append",
        metavar="SYSTEM",
        help="mine with bm25, a run or a sentence-transformers folder, or with 'A > 100 B', the first 100 of A "
        "re-ranked by B; repeated, what they find is merged",
    )
    how.add_argument(
        "--score",
        type=Path,
        metavar="RUN",
        help="score the candidates with this teacher, a run or a cross-encoder's folder; mine none",
    )
    how.add_argument(
        "--expand", type=Path, metavar="RUN", help="add to each document its likeliest terms, by this TILDE run"
    )
    how.add_argument(
        "--explain",
        type=positive,
        metavar="N",
        help="show N queries with their negatives on a page, to find false ones",
    )
    parser.add_argument("--terms", type=positive, metavar="N", help=f"how many to add to each document ({TERMS})")
    parser.add_argument("--depth", type=positive, metavar="K", help=f"documents to look at for each query ({DEPTH})")
    parser.add_argument(
        "--skip", type=positive, metavar="N", help="leave out the first N of these, which are likelier to be relevant"
    )
    parser.add_argument(
        "--margin",
        type=_margin,
        help="leave out documents that score less than this below the best relevant one: 0.1, or 5%% of its score",
    )
    parser.add_argument(
        "--per-document", type=positive, metavar="N", help="let no document be the negative of more than N queries"
    )
    parser.add_argument(
        "--consistent", type=positive, metavar="K", help="keep a pair if its document is among the first K of the pool"
    )
    parser.add_argument("--pool", type=positive, metavar="N", help="documents drawn for the pool of --consistent (all)")
    parser.add_argument("--seed", type=seed, help="of the draw of the pool (1)")
    parser.add_argument("--precision", choices=PRECISIONS, help=PRECISION_HELP)
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)  # from the launcher; the environment has it too
    parser.add_argument("--out", type=Path, required=True, help="folder of what is made, or file of the page")
    chosen = parser.parse_args(argv)
    job = "pairs" if chosen.pairs else next(name for name in JOBS if getattr(chosen, name))
    for name in sorted(set().union(*JOBS.values()) - JOBS[job]):
        if getattr(chosen, name) is not None:
            parser.error(f"--{name.replace('_', '-')} does not go with --{job}: leave it out")
    chosen.seed = 1 if chosen.seed is None else chosen.seed
    if job == "pairs" and not (chosen.system and len(chosen.system) == 1 and chosen.consistent):
        parser.error("--pairs needs --consistent K and one --system, a run or a sentence-transformers folder")
    if job in OF_A_SPLIT and not chosen.split:
        parser.error("--split is missing")
    chosen.depth, chosen.skip, chosen.terms = chosen.depth or DEPTH, chosen.skip or 0, chosen.terms or TERMS
    if chosen.skip >= chosen.depth:
        parser.error(f"--skip {chosen.skip} leaves nothing of the first {chosen.depth}: raise --depth")
    return chosen


def _margin(text: str) -> float | str:
    """A number, or a share of a score."""
    try:
        return read_margin(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    main()
