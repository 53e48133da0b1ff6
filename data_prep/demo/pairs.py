"""(Summary -> body) pairs of docstrings, and a split by package in which no held-out text is trained on."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepsiam.data_prep.common.files import make_directory, write_bytes
from deepsiam.data_prep.sources.docstrings.modules import Docstring
from deepsiam.data_prep.text.normalize import fold

SPLITS = ("test", "dev", "train")  # in the order in which they claim packages and texts
QUERIES = {"test": 1000, "dev": 500}
POOL = 10_000  # bodies that a held-out split's queries rank: weights chosen on a smaller pool do not suit a larger one
MAX_HELD_OUT = {"test": 0.1, "dev": 0.05}  # of all pairs: the limit for small data
MIN_SUMMARY_WORDS = 4
MIN_BODY_WORDS = 15


def in_hash_order(items: Iterable, key: Callable = lambda item: item) -> list:
    """Sort by the SHA-256 of each item's key: an arbitrary order that depends on nothing but the keys."""
    return sorted(items, key=lambda item: hashlib.sha256(key(item).encode()).digest())


def hold_out(pairs: Mapping[str, int]) -> dict[str, str]:
    """Assign each package to `test`, `dev` or `train`; only names and numbers of pairs decide.

    Walk the packages in hash order. A package joins `test` while test lacks pairs and the package does not overshoot
    its quota by more than half; then `dev` likewise. The quota is a tenth more than the number of queries.
    """
    total = sum(pairs.values())
    held: Counter[str] = Counter()
    splits = {}
    for package in in_hash_order(pairs):
        splits[package] = "train"
        for split, queries in QUERIES.items():
            quota = min(1.1 * queries, MAX_HELD_OUT[split] * total)
            if pairs[package] and held[split] < quota and held[split] + pairs[package] <= 1.5 * quota:
                splits[package] = split
                held[split] += pairs[package]
                break
    return splits


@dataclass(frozen=True)
class Split:
    """Docstrings by split, each text once, and those whose summary and body make a pair."""

    packages: dict[str, str]  # package -> split
    documents: dict[str, list[Docstring]]
    pairs: dict[str, list[Docstring]]
    dropped: Counter[str]


def split(docstrings: Sequence[Docstring]) -> Split:
    """Split by package and drop repeated texts; a text that is also held out is dropped from the training data.

    A pair's summary and body must each occur in one text only, so that every query has one right answer.
    """
    texts: dict[str, Docstring] = {}
    summaries: Counter[str] = Counter()
    bodies: Counter[str] = Counter()
    owned: dict[str, dict[str, Docstring]] = {}
    for docstring in docstrings:
        key = fold(docstring.text)
        if key not in texts:
            texts[key] = docstring
            summaries[fold(docstring.summary)] += 1
            bodies[fold(docstring.body)] += 1
        owned.setdefault(docstring.package, {}).setdefault(key, docstring)

    def is_pair(docstring: Docstring) -> bool:
        return (
            len(docstring.summary.split()) >= MIN_SUMMARY_WORDS
            and len(docstring.body.split()) >= MIN_BODY_WORDS
            and summaries[fold(docstring.summary)] == bodies[fold(docstring.body)] == 1
        )

    packages = hold_out({package: sum(map(is_pair, items.values())) for package, items in owned.items()})
    seen_keys: set[str] = set()  # texts, and bodies of held-out texts
    documents: dict[str, list[Docstring]] = {name: [] for name in SPLITS}
    for package in sorted(in_hash_order(packages), key=lambda package: SPLITS.index(packages[package])):
        held_out = packages[package] != "train"
        for key, docstring in owned[package].items():
            body = fold(docstring.body)
            if key in seen_keys or (body in seen_keys and not held_out):
                continue
            seen_keys.add(key)
            if held_out and len(body.split()) >= MIN_BODY_WORDS:
                seen_keys.add(body)
            documents[packages[package]].append(docstring)
    number = sum(map(len, documents.values()))
    pairs = {name: [docstring for docstring in items if is_pair(docstring)] for name, items in documents.items()}
    dropped = Counter({"repeated": len(docstrings) - number})
    return Split(packages, documents, pairs, dropped)


def write_collection(directory: Path, pairs: Mapping[str, Sequence[Docstring]]) -> None:
    """Write the pairs as a BEIR folder (see collection.py); raise InputError where it cannot be written.

    Every body is in the corpus under the id of its document. A query's id is that id with `#summary` added, since
    BEIR's own tools drop a document that has the query's id. Each held-out split gets a pool: its own bodies, for
    `test` also the bodies of `dev`, then training bodies in hash order up to POOL.
    """
    ordered = {name: in_hash_order(pairs[name], lambda docstring: docstring.document.id) for name in SPLITS}
    queries = {name: ordered[name][: QUERIES.get(name)] for name in SPLITS}
    make_directory(directory / "qrels")
    make_directory(directory / "pools")
    _write(
        directory / "corpus.jsonl",
        [_json(d.document.id, title="", text=d.body) for name in SPLITS for d in ordered[name]],
    )
    _write(directory / "queries.jsonl", [_json(_query_id(d), text=d.summary) for name in SPLITS for d in queries[name]])
    for name in SPLITS:
        judgements = [f"{_query_id(d)}\t{d.document.id}\t1" for d in queries[name]]
        _write(directory / "qrels" / f"{name}.tsv", ["query-id\tcorpus-id\tscore", *judgements])
    ids = {name: [docstring.document.id for docstring in ordered[name]] for name in SPLITS}
    pools = {"test": ids["test"] + ids["dev"] + ids["train"], "dev": ids["dev"] + ids["train"]}
    for name, pool in pools.items():
        _write(directory / "pools" / f"{name}.txt", pool[:POOL])


def _query_id(docstring: Docstring) -> str:
    return docstring.document.id + "#summary"


def _json(name: str, **texts: str) -> str:
    return json.dumps({"_id": name, **texts}, ensure_ascii=False)


def _write(path: Path, lines: Sequence[str]) -> None:
    write_bytes(path, "".join(line + "\n" for line in lines).encode())
