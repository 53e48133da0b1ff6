"""Small raw inputs of every kind, made here, and the commands that prepare data sets of them."""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import pytest

from data_prep import tokenizer
from data_prep.__main__ import main
from data_prep.clean import word_set
from data_prep.packing import TokenizedDocument
from data_prep.shards import Manifest, Shard
from tests.toy import ROOT, environment

WORDS = word_set(
    "the of and is in that it was for on with as his they at be this have from or had by but some what there we can "
    "out other were all your when up use word how said an each she which their time if will way about many then them "
    "river stone tree house water light summer winter garden window paper music horse forest island bridge market"
)


def texts(number: int, seed: int = 0, sentences: int = 3) -> list[str]:
    """Texts of random sentences of ten words; near-duplicates of no other."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice(sorted(WORDS), (number, sentences, 10))
    return [" ".join(" ".join(row).capitalize() + "." for row in rows) for rows in drawn.tolist()]


def write_jsonl(path: Path, some: Iterable[str | dict[str, Any]]) -> Path:
    """A text, or a whole record, on each line."""
    records = [record if isinstance(record, dict) else {"text": record} for record in some]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_wikipedia(path: Path, pages: Iterable[str], first: int = 1) -> Path:
    """An export of pages with the ids `first`, `first` + 1, ..."""
    head = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">\n'
    head += '<siteinfo><namespaces><namespace key="0" /></namespaces></siteinfo>\n'
    body = "".join(
        f"<page><title>T{number}</title><ns>0</ns><id>{number}</id><revision><id>9</id>"
        f'<text bytes="1" xml:space="preserve">{escape(page)}</text><sha1>x</sha1></revision></page>\n'
        for number, page in enumerate(pages, first)
    )
    path.write_text(f"{head}{body}</mediawiki>\n")
    return path


def write_reddit(folder: Path, threads: Sequence[Sequence[str]], files: int = 2) -> Path:
    """Dumps in which each thread is a submission and comments, each a reply to the one before, dealt to the files."""
    folder.mkdir(parents=True)
    submissions: list[dict[str, Any]] = []
    comments: list[dict[str, Any]] = []
    for number, (title, *replies) in enumerate(threads):
        thread = f"t3_p{number}"
        submissions.append({"id": f"p{number}", "created_utc": number, "title": title, "author": "u", "selftext": ""})
        parent = thread
        for depth, body in enumerate(replies, 1):
            base = {"id": f"c{number}x{depth}", "link_id": thread, "parent_id": parent, "author": "u", "score": 1}
            comments.append({**base, "created_utc": number + depth, "body": body})
            parent = f"t1_{base['id']}"
    _write_lines(folder / "RS_2020-01", submissions)
    for file in range(files):
        _write_lines(folder / f"RC_2020-{file + 1:02}", comments[file::files])
    return folder


def _write_lines(path: Path, records: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def vocabulary(path: Path, size: int = 300) -> Path:
    """A tokenizer.json for parts, which must share one."""
    tokenizer.train(texts(50), size, path)
    return path


def run(source: str, *arguments: object, workers: int = 1) -> None:
    """The command in this process, with a small vocabulary where no tokenizer is named; it must succeed."""
    assert main(command(source, *arguments, workers=workers)) == 0


def command(source: str, *arguments: object, workers: int = 1) -> list[str]:
    told = [source, *map(str, arguments), "--workers", str(workers)]
    trained = source != "merge" and not {"--tokenizer", "--vocab-size"} & set(told)
    return [*told, "--vocab-size", "300"] if trained else told


def refusal(capfd: pytest.CaptureFixture[str], source: str, *arguments: object, workers: int = 1) -> str:
    """The line on stderr of a command in this process that must end with code 2, without the bad records named."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(command(source, *arguments, workers=workers))
    assert ended.value.code == 2
    said = capfd.readouterr().err.splitlines()
    assert len([line for line in said if not line.startswith("bad record: ")]) == 1, said
    return said[-1].removeprefix("data_prep: ")


def start(source: str, *arguments: object, workers: int = 1) -> subprocess.Popen[str]:
    """The command as a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "data_prep", *command(source, *arguments, workers=workers)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def source_of(out: Path, split: str = "shards") -> dict[str, Any]:
    return Manifest.load(out / split).source


def shards_of(out: Path, split: str = "shards") -> list[list[TokenizedDocument]]:
    """The documents of each shard."""
    listed = Manifest.load(out / split)
    return [list(Shard.open(listed, index).documents()) for index in range(len(listed.shards))]


def documents(out: Path, split: str = "shards") -> list[TokenizedDocument]:
    return [document for shard in shards_of(out, split) for document in shard]


def ids(out: Path, split: str = "shards") -> set[str]:
    """The last parts of the ids of all documents."""
    return {document.id.rpartition("/")[2] for document in documents(out, split)}


def decoded(out: Path, split: str = "shards") -> dict[str, list[str]]:
    """The segments of every document, by its id, as the tokenizer gives them back."""
    tok = tokenizer.load(out / split)
    return {document.id: [tok.decode(segment) for segment in document.segments] for document in documents(out, split)}
