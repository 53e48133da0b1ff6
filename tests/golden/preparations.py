"""Golden values of preparation: hashes of the arrays and manifests of every source and format; of every recipe."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.collections.registry import FORMATS
from deepsiam.data_prep.common.files import sha256_of
from deepsiam.data_prep.sources.registry import SOURCES
from deepsiam.trainer.training.data.opened import Data, resume_invariants
from deepsiam.trainer.training.engine import ds_config
from deepsiam.trainer.training.recipe.schema import kind_of
from deepsiam.trainer.training.recipe.yaml_file import build, read
from deepsiam.trainer.training.run.job import complete
from tests import toy
from tests.data_prep import raw
from tests.data_prep.collections.raw_formats import write_csv, write_files, write_lines, write_tsv
from tests.trainer.launches import papers_samples

Written = Callable[[], object]

WIKITEXT = (
    "'''The river''' is [[Water|water]] that flows{{ref|1}} for {{convert|12|km|mi}} in all.\n\n"
    "== Course ==\n* It is ''long''.<ref>Him.</ref>\n* It was born on {{birth date|1901|2|3}}.\n\n"
    "{| class=x\n| a || b\n|}\nThe [[Forest|forests]] there have {{frac|1|2}} of the trees. More were cut than grew."
)
MOVED = [
    ["{{Infobox}} The stone is here. It is heavy.", "[[T5|The wide river there]] is long. [[T5]] was there first."],
    [WIKITEXT],
]
CODE = (
    '"""Find the river.\n\nIt is where the `stone` was; see also :func:`tree`. Nothing else is."""\n\n\ndef tree(x):\n'
)
CODE += '    """Return the tree of x.\n\n    Args:\n        x: what there is, as it has been given.\n    """\n'


def _books(folder: str, number: int = 12) -> None:
    for book, text in enumerate(raw.texts(number, seed=7, sentences=12)):
        write_files(Path(folder), {f"book{book}.txt": text.replace(". ", ".\n\n", 5)})


def _records() -> None:
    same = raw.texts(3, seed=8)
    others = raw.texts(20, seed=9)
    mail = "Write to someone@example.org or call +1 202 555 0143 when you can. There is more of it here."
    raw.write_jsonl(
        Path("some.jsonl"), [*others, *same, *same, *map(raw.near_copy, same), mail, "Caf\u00c3\u00a9 it is."]
    )


def _pairs() -> None:
    said = raw.texts(40, seed=11, sentences=1)
    rows = [{"query": said[2 * i], "document": said[2 * i + 1]} for i in range(20)]
    raw.write_jsonl(Path("some.pairs.jsonl"), [*rows, rows[0]])


def _threads() -> None:
    said = raw.texts(120, seed=5, sentences=1)
    raw.write_reddit(Path("threads"), [said[i : i + 4] for i in range(0, 120, 4)])


def _tar() -> None:
    from tests.data_prep.sources.test_tar_stream import packed

    Path("some.tar").write_bytes(packed({f"{i}.txt": text.encode() for i, text in enumerate(raw.texts(12, seed=12))}))


def _wikipedia() -> None:
    raw.write_wikipedia(Path("pages.xml"), [*MOVED[0], *MOVED[1], *raw.texts(20, seed=4, sentences=6)])


NAMED = ("--tokenizer", "tokenizer.json")
PREPARED: dict[str, tuple[Written, str, tuple[str, ...]]] = {  # what writes the input, the source, the arguments
    "wikipedia": (_wikipedia, "wikipedia", ("pages.xml", "--held-out", "0.3", *NAMED)),
    "wikipedia-links": (_wikipedia, "wikipedia-links", ("pages.xml", *NAMED)),
    "bookcorpus": (lambda: _books("books"), "bookcorpus", ("books", "--held-out", "0.3", *NAMED)),
    "bookcorpus-sentences": (
        lambda: write_lines(Path("lines.txt"), [f"{text} ." for text in raw.texts(60, seed=6, sentences=1)]),
        "bookcorpus-sentences",
        ("lines.txt", *NAMED),
    ),
    "reddit": (_threads, "reddit", ("threads", "--held-out", "0.3", *NAMED)),
    "text": (lambda: _books("plain"), "text", ("plain", "--paragraphs", *NAMED)),
    "jsonl": (
        _records,
        "jsonl",
        ("some.jsonl", "--near-duplicates", "0.8", "--scrub", "--repair", "--min-words", "3", *NAMED),
    ),
    "webdataset": (_tar, "webdataset", ("some.tar", "--english", "--chunk-tokens", "100", "--shards", "2", *NAMED)),
    "python": (lambda: write_files(Path("code"), {"a.py": CODE}), "python", ("code", *NAMED)),
    "pairs": (_pairs, "pairs", ("some.pairs.jsonl", *NAMED)),
    "trained": (_records, "jsonl", ("some.jsonl", "--vocab-size", "200")),
    "trained-bpe": (_records, "jsonl", ("some.jsonl", "--vocab-size", "300", "--tokenizer-kind", "bpe")),
    "cleaned-text": (_records, "jsonl", ("some.jsonl", "--text-only")),
    "cleaned": (lambda: None, "cleaned", ("out/cleaned-text", *NAMED)),
    "part": (lambda: None, "jsonl", ("some.jsonl", "--part", "1/2", *NAMED)),
    "other-part": (lambda: None, "jsonl", ("some.jsonl", "--part", "2/2", *NAMED)),
    "merge": (lambda: None, "merge", ("out/part", "out/other-part")),
}
COLLECTED: dict[str, tuple[str, tuple[str, ...]]] = {  # key of the papers' samples: the format and its inputs
    "data/nq": ("dpr", ("biencoder-nq-train.json", "biencoder-nq-dev.json")),
    "data/msmarco_passage": (
        "msmarco",
        ("collection.tsv", "queries.train.tsv", "train=qidpidtriples.train.full.2.tsv")
        + ("queries.dev.small.tsv", "dev=qrels.dev.small.tsv"),
    ),
    "data/msmarco_triples": ("msmarco", ("train=triples.train.small.tsv",)),
    "data/scored": ("flagembedding", ("train.scored.jsonl", "dev.scored.jsonl")),
    "data/mind": ("mind", ("MINDlarge_train", "MINDlarge_dev")),
    "data/convai2": ("convai2", ("train_self_original.txt", "valid_self_original.txt")),
    "data/dstc7": ("dstc7", ("ubuntu_train_subtask_1.json", "ubuntu_dev_subtask_1.json")),
    "data/ubuntu": ("ubuntu", ("train.csv", "valid.csv", "test.csv")),
    "data/wikipedia_search": ("wikipedia_search", ("data/wikipedia",)),
    "data/reddit_dialogues": ("reddit_dialogues", ("data/reddit",)),
    "data/hotpotqa": ("answer_selection", ("hotpot_train_v1.1.json", "hotpot_dev_distractor_v1.json")),
    "data/wikiqa": ("answer_selection", ("WikiQA-train.tsv", "WikiQA-dev.tsv", "WikiQA-test.tsv")),
    "data/trec_qa": ("answer_selection", ("train.xml", "dev.xml", "test.xml")),
    "data/snli": ("nli", ("snli_1.0_train.jsonl", "snli_1.0_dev.jsonl")),
    "data/qqp": ("nli", ("QQP/train.tsv", "QQP/dev.tsv")),
    "data/sick": ("nli", ("SICK.txt",)),
}
FOX, DOG = "The quick brown fox.", "A dog sleeps."
DOCUMENTS = [{"id": "a/1.txt", "content": FOX}, {"id": "3", "content": DOG}]
ASKED = [{"query": "who is quick", "id": "0", "excluded_ids": ["3"], "gold_ids": ["a/1.txt"]}]
PASSAGES = [{"docid": "7", "title": "Foxes", "text": FOX}, {"docid": "8", "title": "", "text": DOG}]
TEVATRON = {"query_id": "1", "query": "who is quick", "positive_passages": PASSAGES[:1]}


def _small_formats() -> None:
    """Write the samples of formats that no paper's recipe names."""
    write_lines(Path("bright/documents.jsonl"), DOCUMENTS)
    write_lines(Path("bright/examples.jsonl"), ASKED)
    write_lines(Path("tevatron/train.jsonl"), [{**TEVATRON, "negative_passages": PASSAGES[1:]}])
    write_lines(
        Path("trec/corpus.jsonl"), [{"id": "F-1", "title": "Foxes", "contents": FOX}, {"docno": "F-2", "text": DOG}]
    )
    write_tsv(Path("trec/topics.robust.tsv"), [["301", "who is quick"]])
    write_lines(Path("trec/qrels.robust.txt"), ["301 0 F-1 2", "301 0 F-2 0"])
    write_tsv(
        Path("scored_pairs.tsv"), [["query", "document", "score"], ["fox", FOX, 4.5], ["dog", DOG, 5], ["fox", DOG, 0]]
    )
    write_csv(Path("three.csv"), [["anchor", "positive", "negative"], ["fox", FOX, DOG], ["dog", DOG, FOX]])
    toy.write_beir(
        Path("beir"), {"a": FOX, "b": DOG}, {"1": "fox", "2": "dog"}, train="1\ta\t1\n", test="2\tb\t2\n2\ta\t0\n"
    )


SMALL: dict[str, tuple[str, ...]] = {
    "bright": ("bright/documents.jsonl", "bright/examples.jsonl"),
    "tevatron": ("tevatron",),
    "trec": ("trec",),
    "pairs": ("scored_pairs.tsv",),
    "triples": ("three.csv",),
    "beir": ("beir",),
}


def _hashes(folder: Path) -> dict[str, str]:
    """Hash every file in a folder; their manifests name no time, version or absolute path."""
    return {
        path.relative_to(folder).as_posix(): sha256_of(path)[:16]
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def sources(folder: Path) -> dict[str, Any]:
    """Prepare a sample of every source, also in two steps and in parts."""
    assert {source for _, source, _ in PREPARED.values()} == {*SOURCES, "merge"}
    with chdir(folder):
        raw.vocabulary(Path("tokenizer.json"))
        for name, (written, source, arguments) in PREPARED.items():
            written()
            assert main([source, *arguments, "--out", f"out/{name}", "--workers", "1"]) == 0
        return {name: _hashes(Path("out", name)) for name in PREPARED}


def formats(folder: Path) -> dict[str, Any]:
    """Make a collection of a sample of every format."""
    found = {}
    with chdir(folder):
        raw.vocabulary(Path("tokenizer.json"))
        _small_formats()
        made = {name: (name, inputs) for name, inputs in SMALL.items()}
        assert {name for name, _ in [*made.values(), *COLLECTED.values()]} == {*FORMATS}
        for out, (name, inputs) in {**made, **COLLECTED}.items():
            if out in COLLECTED:
                papers_samples.SAMPLES[out]()
            arguments = ["collection", name, *inputs, "--out", f"out/{out}", "--tokenizer", "tokenizer.json"]
            assert main([*arguments, "--workers", "1"]) == 0
            found[out] = _hashes(Path("out", out))
            shutil.rmtree(Path("out", out))
    return found


def recipes() -> dict[str, Any]:
    """Build every recipe: all its keys, and what a resume compares."""
    found: dict[str, Any] = {}
    for path in sorted((toy.ROOT / "recipes").glob("*.yaml")):
        values = read(path)
        recipe = build(kind_of(values), values, path.name)
        compared = resume_invariants(recipe, Data(None, [], None, {}))  # type: ignore[arg-type]
        here = recipe.deepspeed == "auto"  # the fastest that the machine has
        config = ds_config.load("cpu" if here else recipe.deepspeed, for_here=False)[1]
        compared |= ds_config.resume_invariants(config)
        dump = complete(recipe)
        of_dump = {key for key in compared if compared[key] == dump.get(key)}
        found[path.stem] = {"recipe": dump, "compared": {k: v for k, v in compared.items() if k not in of_dump}}
        found[path.stem]["compared as they are"] = sorted(of_dump)
    built: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return built
