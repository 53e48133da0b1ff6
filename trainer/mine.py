"""Mine hard negatives, have a teacher score candidates, expand documents, or keep the pairs that a model finds.

python -m trainer.mine --collection C --split train --system bm25 --out C-bm25
python -m trainer.mine --collection C --split train --system runs/first --depth 200 --out C-mined
python -m trainer.mine --collection C-mined --split train --score runs/cross_encoder --out C-scored
python -m trainer.mine --collection C --expand runs/tilde --terms 200 --out C-expanded
python -m trainer.mine --pairs P/shards --consistent 2 --pool 1000000 --system runs/pairs --out P-consistent
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_prep.collections.collection import Collection
from data_prep.collections.derive import CORPUS, derive, expand, require_room
from data_prep.collections.relevant import Relevant
from data_prep.common.argument_types import margin, positive
from data_prep.common.errors import InputError, exit_on_input_error
from data_prep.common.parser import Parser
from trainer.ranking.consistency import Filter
from trainer.ranking.expansion import likeliest_terms
from trainer.ranking.mining import Mined, mine, mining_texts, with_negatives, with_scores
from trainer.ranking.published import load_any
from trainer.ranking.ranker import PRECISION_HELP, PRECISIONS
from trainer.ranking.rankers.likelihoods import Likelihoods
from trainer.ranking.rankers.registry import open_ranker, ranker_of
from trainer.ranking.retrieval.search import salts_of
from trainer.ranking.retrieval.system import Texts

DEPTH, TERMS = 100, 200


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    chosen = _arguments(argv)
    with exit_on_input_error("trainer.mine"):
        if chosen.pairs:
            _filter(chosen)
            return
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
    """Add what a system finds to each group of the split."""
    texts = mining_texts(collection, chosen.split)
    ranker = open_ranker(chosen.system, collection, chosen.precision)
    groups = collection.groups(chosen.split)
    ranked = ranker.system(texts).rank(chosen.depth, salts_of(texts.queries))
    mined = mine(texts, Relevant(collection, groups), ranked, chosen.margin)
    systems = [*collection.manifest.get("mined", []), ranker.name]
    candidates = with_negatives(groups, mined, len(systems))
    about = {"mined_by": ranker.name, "split": chosen.split, "depth": chosen.depth, "margin": chosen.margin}
    made = derive(collection, chosen.out, chosen.split, candidates, about, systems)
    print("\n".join(_summary(chosen, ranker.name, texts, mined)))
    return made


def _summary(chosen: argparse.Namespace, name: str, texts: Texts, mined: Mined) -> list[str]:
    counts = np.array([len(found.documents) for found in mined.negatives.values()])
    least, half, most = np.percentile(counts, [0, 50, 100])
    reasons = {
        "relevant": "relevant",
        "own": "the query's own text",
        "copy": "copies or near-copies of a relevant one",
        "margin": "too near the relevant one's score",
        "empty": "without text",
    }
    left_out = ", ".join(f"{mined.left_out[key]:,} {words}" for key, words in reasons.items() if mined.left_out[key])
    return [
        f"split {chosen.split}: {len(counts):,} queries, the first {chosen.depth} of {len(texts.pool):,} by {name}",
        f"{counts.sum():,} negatives, {least:.0f} to {most:.0f} a query, {half:.0f} in the median; "
        f"{(counts == 0).sum():,} queries have none",
        f"left out: {left_out or 'nothing'}",
    ]


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
    if chosen.out.exists():
        raise InputError(f"{chosen.out}: exists: name a new folder, or remove it")
    model = Path(chosen.system)
    pairs = Filter.open(chosen.pairs, model, chosen.consistent, chosen.pool, chosen.seed, chosen.precision)
    for line in pairs.write(chosen.out):
        print(line, flush=True)
    shutil.rmtree(chosen.out.with_name(f"{chosen.out.name}.kept"))
    print(f"wrote {chosen.out}: the pairs that are kept, in their order")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="trainer.mine",
        description="Mine hard negatives, have a teacher score candidates, expand documents, or keep consistent pairs.",
    )
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--collection", type=Path, help="the collection, as `data_prep collection` made")
    data.add_argument("--pairs", type=Path, metavar="SHARDS", help="instead, shards of `data_prep pairs`, to filter")
    parser.add_argument("--split", help="whose groups get other candidates; all but --expand need it")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--system", metavar="RUN", help="mine with this run, or sentence-transformers folder; or bm25")
    how.add_argument(
        "--score",
        type=Path,
        metavar="RUN",
        help="score the candidates with this teacher, a run or a cross-encoder's folder; mine none",
    )
    how.add_argument(
        "--expand", type=Path, metavar="RUN", help="add to each document the likeliest terms of this tilde"
    )
    parser.add_argument("--terms", type=positive, metavar="N", help=f"how many to add to each document ({TERMS})")
    parser.add_argument("--depth", type=positive, metavar="K", help=f"documents to look at for each query ({DEPTH})")
    parser.add_argument(
        "--margin", type=margin, help="leave out documents that score less than this below the best relevant one"
    )
    parser.add_argument(
        "--consistent", type=positive, metavar="K", help="keep a pair if its document is among the first K of the pool"
    )
    parser.add_argument("--pool", type=positive, metavar="N", help="documents drawn for the pool of --consistent (all)")
    parser.add_argument("--seed", type=int, default=1, help="of the pool (1)")
    parser.add_argument("--precision", choices=PRECISIONS, help=PRECISION_HELP)
    parser.add_argument("--out", type=Path, required=True, help="folder of the new collection or shards")
    chosen = parser.parse_args(argv)
    if bool(chosen.pairs) != bool(chosen.consistent):
        parser.error("--pairs is filtered by --consistent, and a collection is not: give both or neither")
    if chosen.pairs:
        if not chosen.system or chosen.split or chosen.depth or chosen.margin is not None or chosen.terms:
            parser.error("--pairs needs --system, a run or sentence-transformers folder; leave out what is of mining")
        return chosen
    if chosen.pool:
        parser.error("--pool is of --consistent: leave it out")
    if not chosen.system and (chosen.depth or chosen.margin is not None):
        parser.error(
            f"--depth and --margin are of mining: leave them out with --{'score' if chosen.score else 'expand'}"
        )
    if bool(chosen.expand) == bool(chosen.split):
        parser.error("--expand is of all documents: leave out --split" if chosen.expand else "--split is missing")
    if chosen.terms and not chosen.expand:
        parser.error("--terms is of --expand: leave it out")
    chosen.depth, chosen.terms = chosen.depth or DEPTH, chosen.terms or TERMS
    return chosen


if __name__ == "__main__":
    main()
