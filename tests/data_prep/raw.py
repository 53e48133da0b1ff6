"""Generate small raw inputs of every kind, and run the commands that prepare data sets of them."""

import json
import pickle
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import permutations
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.text.language import word_set
from deepsiam.data_prep.tokenizers import tokenizer

Capture = pytest.CaptureFixture[str]
WORDS = word_set(
    "the of and is in that it was for on with as his they at be this have from or had by but some what there we can "
    "out other were all your when up use word how said an each she which their time if will way about many then them "
    "river stone tree house water light summer winter garden window paper music horse forest island bridge market"
)


def texts(number: int, seed: int = 0, sentences: int = 3) -> list[str]:
    """Return texts of random sentences of ten words; no two are near-duplicates."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice(sorted(WORDS), (number, sentences, 10))
    return [" ".join(" ".join(row).capitalize() + "." for row in rows) for rows in drawn.tolist()]


def near_copy(text: str, number: int = 1) -> str:
    """Return a near-duplicate, a different one for each number."""
    return text.replace(" ", f" {'very ' * number}", 1)


def write_jsonl(path: Path, some: Iterable[str | dict[str, Any]]) -> Path:
    """Write a text, or a whole record, on each line."""
    records = [record if isinstance(record, dict) else {"text": record} for record in some]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def jsonl(number: int, seed: int = 0) -> bytes:
    """Return lines of JSON, each with one of `texts`."""
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts(number, seed))


def write_wikipedia(path: Path, pages: Iterable[str], first: int = 1) -> Path:
    """Write an export of pages with the ids `first`, `first` + 1, ..."""
    head = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">\n'
    head += '<siteinfo><namespaces><namespace key="0" /></namespaces></siteinfo>\n'
    body = "".join(
        f"<page><title>T{number}</title><ns>0</ns><id>{number}</id><revision><id>9</id>"
        f'<text bytes="1" xml:space="preserve">{escape(page)}</text><sha1>x</sha1></revision></page>\n'
        for number, page in enumerate(pages, first)
    )
    path.write_text(f"{head}{body}</mediawiki>\n")
    return path


def write_reddit(folder: Path, threads: Sequence[Sequence[str]], files: int = 2, first: int = 0) -> Path:
    """Write threads t3_pFIRST, ...: a submission and comments, each a reply to the last, divided among files."""
    folder.mkdir(parents=True)
    submissions: list[dict[str, Any]] = []
    comments: list[dict[str, Any]] = []
    for number, (title, *replies) in enumerate(threads, first):
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
    """Train a tokenizer.json for parts, which must share one."""
    tokenizer.train(texts(50), size, path)
    return path


def run(source: str, *arguments: object, workers: int = 1) -> None:
    """Run the command in this process, with a small vocabulary if no tokenizer is named; it must succeed."""
    assert main(command(source, *arguments, workers=workers)) == 0


def forked_pool(number: int, _: object, begin: Callable[..., None], arguments: Any) -> ProcessPoolExecutor:
    """Fork workers: starting one anew takes a second. What they are given is pickled as for new ones."""
    return ProcessPoolExecutor(number, get_context("fork"), begin, pickle.loads(pickle.dumps(arguments)))


def command(source: str, *arguments: object, workers: int = 1) -> list[str]:
    words = [source, *map(str, arguments), "--workers", str(workers)]
    trained = source != "merge" and not {"--tokenizer", "--vocab-size"} & set(words)
    return [*words, "--vocab-size", "300"] if trained else words


def parts(folder: Path, number: int, source: str, *arguments: object) -> list[Path]:
    folders = [folder / f"part {part} of {number}" for part in range(1, number + 1)]
    for part, out in enumerate(folders, 1):
        run(source, *arguments, "--part", f"{part}/{number}", "--out", out)
    return folders


def agree(folder: Path, source: str, *arguments: object, numbers: Sequence[int] = (1, 2, 3)) -> Path:
    """Assert that parts, in any number and order, merge to the output of one run; return that run's folder, `whole`."""
    run(source, *arguments, "--out", folder / "whole")
    whole = contents(folder / "whole")
    for number in numbers:
        folders = parts(folder, number, source, *arguments)
        for order, shuffled in enumerate(list(permutations(folders))[:: 1 + number // 3]):
            merged = folder / f"merged {number} {order}"
            run("merge", *shuffled, "--out", merged)
            assert contents(merged) == whole
    return folder / "whole"


def refusal(capfd: pytest.CaptureFixture[str], source: str, *arguments: object, workers: int = 1) -> str:
    """Run a source's command that must end with code 2; return its line on stderr, without those of bad records."""
    return refused(capfd, *command(source, *arguments, workers=workers))


def refused(capfd: pytest.CaptureFixture[str], *words: object) -> str:
    """Do the same with any command."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 2
    lines = capfd.readouterr().err.splitlines()
    progress = re.compile(r"\w+: .*/s\b")  # a line of a slow machine: it has a rate
    assert len([line for line in lines if not (line.startswith("bad record: ") or progress.match(line))]) == 1, lines
    return lines[-1].removeprefix("data_prep: ")


def flip(path: Path, at: int = -1) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files in a folder, by path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def source_of(out: Path, split: str = "shards") -> dict[str, Any]:
    return Manifest.load(out / split).source


def shards_of(out: Path, split: str = "shards") -> list[list[TokenDocument]]:
    """Return the documents of each shard."""
    listed = Manifest.load(out / split)
    return [list(Shard.open(listed, index).documents()) for index in range(len(listed.shards))]


def documents(out: Path, split: str = "shards") -> list[TokenDocument]:
    return [document for shard in shards_of(out, split) for document in shard]


def ids(out: Path, split: str = "shards") -> set[str]:
    """Return the last part of each document's id."""
    return {document.id.rpartition("/")[2] for document in documents(out, split)}


def decoded(out: Path, split: str = "shards") -> dict[str, list[str]]:
    """Return the decoded segments of every document, without the blank that a byte-level tokenizer keeps, by its id."""
    tok = tokenizer.load(out / split)
    return {
        document.id: [tok.decode(segment).removeprefix(" ") for segment in document.segments]
        for document in documents(out, split)
    }
