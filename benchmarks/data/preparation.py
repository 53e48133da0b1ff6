"""Measure how fast raw text becomes shards, compared with its limits and alternatives, and the memory it takes.

    python -m benchmarks.data.preparation [--only NAME ...] [--data FOLDER] [--megabytes N] [--rounds N] [--out PATH]

    text to shards   the writing pass (spooled documents -> shards) compared with `tokenizers` alone, which encodes the
                     same segments, held in memory, with the same tokenizer: in one process, and in two
    dump to text     wikipedia.documents compared with WikiExtractor, both writing JSON lines, by the CPU time of all
                     processes
    two workers      the whole command on that dump, with one worker and with two
    passes           the CPU time of each pass over each source, from which docs/many_machines.md estimates hours
    memory           the peak of the whole command in one process, for 1, 4 and 16 times as much text

FOLDER has wiki/*.xml.bz2, wiki/A*/wiki_*, books/ and reddit/ ($DEEPSIAM_DATA, or ../shared/data next to the checkout).
The dump repeats those pages of the first one that have templates, because nearly all real pages have them. Without such
a folder the text is generated: then only the scaling and the memory are meaningful.
"""

import argparse
import bz2
import html
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.metadata import version
from itertools import chain, count, cycle, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from benchmarks.common.made_up_text import MEGABYTE, up_to
from benchmarks.common.side_by_side import alternate, in_words, ratios, spread, write
from deepsiam.data_prep.common import workers
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.files import make_directory
from deepsiam.data_prep.prepare import batches, reading, spool, stages, writing
from deepsiam.data_prep.prepare.writing import Selection, ShardPlan
from deepsiam.data_prep.sources.compressed import open_input
from deepsiam.data_prep.sources.registry import SOURCES
from deepsiam.data_prep.tokenizers import tokenizer

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY, CHUNK_TOKENS = 32768, 32768
SHARDS = [ShardPlan("shards", number, 8) for number in range(8)]  # for measuring the writing pass
AT_ONCE = 1000  # texts that `tokenizers` alone encodes at once: larger batches are not faster
TIMES = (1, 4, 16)  # multiples of the text, for the memory
WIKIEXTRACTOR = [sys.executable, "-m", "wikiextractor.WikiExtractor", "--json", "--processes", "1", "--quiet"]
EXTRACT = """
import json, sys
from pathlib import Path
from deepsiam.data_prep.sources.wikipedia.articles import WIKIPEDIA
with open(sys.argv[2], "w") as out:
    for item in WIKIPEDIA.documents([Path(sys.argv[1])]):
        if hasattr(item, "segments"):
            out.write(json.dumps({"id": item.id.split("/")[1], "text": "\\n".join(item.segments)}) + "\\n")
"""
PEAK = """
import sys
from deepsiam.data_prep.__main__ import main
main(sys.argv[1:])
print(open("/proc/self/status").read())
"""

# spool, tokenizer, folder -> seconds of a shard
Start = Callable[[list[Path], Path, Path], Callable[[ShardPlan], float]]


@dataclass(frozen=True)
class RawText:
    """Input to measure with, in files made on demand; real text if available."""

    folder: Path
    data: Path | None
    megabytes: float  # of a dump, and at most this much text

    def dump(self, once: bool = False) -> Path:
        """Return a dump that repeats the pages, or has them once; multistream, 100 pages a stream, as published."""
        path = self.folder / f"{'once' if once else 'times'}-pages-articles.xml.bz2"
        if not path.exists():
            head, pages = self.pages()
            every = list(pages if once else up_to(self.megabytes, cycle(pages)))
            streams = [head, *("".join(every[start : start + 100]) for start in range(0, len(every), 100))]
            path.write_bytes(b"".join(bz2.compress(stream.encode()) for stream in [*streams, "</mediawiki>\n"]))
        return path

    def pages(self) -> tuple[str, list[str]]:
        """Return the head of a dump, and its pages with templates."""
        if self.data is None:
            return "<mediawiki>\n", list(map(page_of, range(1, 200)))
        with bz2.open(min(self.data.glob("wiki/*.xml.bz2")), "rt", encoding="utf-8") as file:
            text = file.read()
        pages = re.findall(r"<page>.*?</page>\n", text, re.DOTALL)
        return text[: text.index("<page>")], [page for page in pages if "{{" in page]

    def text(self) -> Path:
        """Return a file of articles, one line of JSON each."""
        path = self.folder / "wiki_00"
        if not path.exists():
            files = sorted(self.data.glob("wiki/A*/wiki_*")) if self.data else []
            lines = chain.from_iterable(re.findall(r".+\n", file.read_text()) for file in files)
            path.write_text("".join(up_to(self.megabytes, lines if files else map(line_of, count()))))
        return path

    def tokenizer(self) -> Path:
        """Return a tokenizer trained on the text."""
        path = self.folder / "tokenizer.json"
        if not path.exists():
            tokenizer.train(self.text().read_text().splitlines(), VOCABULARY, path)
        return path


@lru_cache
def sentences(seed: int) -> list[str]:
    """Generate twenty sentences of random words."""
    rng = np.random.default_rng(seed)
    words = ["".join(map(chr, rng.integers(97, 123, 1 + int(size)))) for size in rng.gamma(4, 1.2, 200)]
    return [" ".join(rng.choice(words, 18)) for _ in range(20)]


def text_of(number: int) -> str:
    """Generate a text; no two have a sentence in common."""
    return " ".join(f"{sentence} {number}." for sentence in sentences(number % 100))


def line_of(number: int) -> str:
    return json.dumps({"id": str(number), "text": text_of(number)}) + "\n"


def page_of(number: int) -> str:
    text = f"{{{{Infobox|{number}}}}}\n'''It''' is [[a page|one]].<ref>{number}</ref>\n\n== Text ==\n"
    text = html.escape(f"{text}{text_of(number)}\n* An item\n{{|\n| a cell\n|}}\n", quote=False)
    revision = f"<revision>\n<id>{number}</id>\n<text>{text}</text>\n</revision>\n"
    return f"<page>\n<title>{number}</title>\n<ns>0</ns>\n<id>{number}</id>\n{revision}</page>\n"


def run(command: Sequence[object]) -> tuple[str, dict[str, float]]:
    """Return what a command prints, and its seconds: wall-clock time, and CPU time of all its processes."""
    begin, before = time.perf_counter(), os.times()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT)
    clock, after = time.perf_counter() - begin, os.times()
    if done.returncode:
        raise InputError(f"{' '.join(map(str, command[1:4]))}: {done.stderr.strip()[-500:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, {"clock": clock, "cpu": cpu}


def compared(what: str, rivals: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Any]:
    """Measure and print all rivals in MB/s, and the ratio of the first to each of the others."""
    rates = alternate(rivals, rounds)
    first, *others = rivals
    results: dict[str, Any] = {"MB/s": rates}
    for name, values in rates.items():
        print(in_words(f"{what}: {name}", spread(values), "MB/s"))
    for other in others:
        results[f"{first} / {other}"] = ratios(rates[first], rates[other])
        print(in_words(f"{what}: {first} / {other}", results[f"{first} / {other}"]), flush=True)
    return results


@dataclass
class Passes:
    """CPU seconds of each pass over files, and the bytes before and after each."""

    records: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def read(self, source: str, path: Path, folder: Path) -> list[Path]:
        """Run all passes but the last, as prepare/run.py does; return the files of the spool."""
        kind = SOURCES[source]
        choices = kind.choices()
        steps = reading.Reading(source, choices, batches.Part(), stages.StageOptions())
        files = list(kind.find([path]))
        self.sizes["raw"] = sum(file.path.stat().st_size for file in files)
        self.sizes["inflated"] = self._timed("inflate", lambda: sum(inflated(file.path) for file in files))
        make_directory(folder)
        cut = self._timed("cut", lambda: list(batches.batches(kind, files, choices, steps.part, "")))
        self.records = sum(len(batch.pieces) for batch in cut)
        read = reading.batch_reader(steps, folder)
        names = self._timed("read", lambda: list(map(read, cut)))
        if kind.join:
            self.sizes["fragments"] = sum(spool.about(folder / name)["bytes"] for name in names)
            join = reading.range_joiner(steps, [folder / name for name in names], folder)
            names = self._timed("join", lambda: [join((0, spool.KEYS))])
        self.sizes["text"] = sum(spool.about(folder / name)["bytes"] for name in names)
        return [folder / name for name in names]

    def write(self, spooled: list[Path], tokenizer_file: Path, folder: Path) -> None:
        work = shard_writer(spooled, tokenizer_file, folder)
        self._timed("write", lambda: list(map(work, SHARDS)))
        entries, _ = writing.entries(folder, SHARDS)
        self.sizes |= {
            "tokens": sum(entry.tokens for entry in entries),
            "shards": sum(entry.bytes for entry in entries),
        }

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:
        begin = time.process_time()
        done = work()
        self.seconds[name] = time.process_time() - begin
        return done


def inflated(path: Path) -> int:
    with open_input(path) as stream:
        return sum(map(len, iter(lambda: stream.read(1 << 20), b"")))


def shard_writer(spooled: list[Path], tokenizer_file: Path, folder: Path) -> Callable[[ShardPlan], float]:
    """Return our task for a shard; the task returns its seconds."""
    for name in ("shards", "done"):
        make_directory(folder / name)
    do = writing.shard_writer(
        Selection(tuple(spooled), True, 0.0), tokenizer_file, CHUNK_TOKENS, folder, sentences=True
    )
    return lambda shard: seconds(lambda: do(shard))


def encoder(spooled: list[Path], tokenizer_file: Path, _: Path) -> Callable[[ShardPlan], float]:
    """Return the task of `tokenizers` alone for the same segments; the task returns its seconds."""
    backend = tokenizers.Tokenizer.from_file(str(tokenizer_file))

    def work(texts: list[str]) -> None:
        for start in range(0, len(texts), AT_ONCE):
            backend.encode_batch_fast(texts[start : start + AT_ONCE], add_special_tokens=False)

    def encode(shard: ShardPlan) -> float:
        documents = writing.kept(Selection(tuple(spooled), True, 0.0), *shard.range, False, Counter())
        texts = [segment for _, document in documents for segment in document.segments]
        return seconds(lambda: work(texts))

    return encode


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def text_to_shards(material: RawText, rounds: int) -> dict[str, Any]:
    """Measure MB of text a second in one process and in two, without the processes' start-up."""
    reader = Passes()
    spooled = reader.read("wikipedia", material.text(), material.folder / "spool")
    given = spooled, material.tokenizer(), material.folder / "written"
    size = reader.sizes["text"] / MEGABYTE

    def rate(start: Start, processes: int) -> float:
        return processes * size / sum(workers.run(SHARDS, start, given, processes))

    results: dict[str, Any] = {"MB": size}
    for processes, what in ((1, "one process"), (2, "two processes")):
        rivals = {"deepsiam": shard_writer, "tokenizers": encoder}
        measures = {name: partial(rate, start, processes) for name, start in rivals.items()}
        results[what] = compared(f"text to shards, {what}", measures, rounds)
    return results


def dump_to_text(material: RawText, rounds: int) -> dict[str, Any]:
    """Measure MB of XML a CPU second; ours alone if WikiExtractor is not installed."""
    installed = importlib.util.find_spec("wikiextractor") is not None
    if not installed:
        print("WikiExtractor is not installed (pip install wikiextractor): it is left out")
    path = material.dump()
    size = inflated(path) / MEGABYTE
    extract = extractors(material.folder)

    def rate(name: str) -> float:
        return size / extract[name](path)[1]["cpu"]

    results = {"MB": size, "WikiExtractor": version("wikiextractor") if installed else None}
    return results | compared("dump to text", {name: partial(rate, name) for name in extract}, rounds)


def extractors(folder: Path) -> dict[str, Callable[[Path], tuple[Path, dict[str, float]]]]:
    """Return functions from a dump to the path of JSON lines and the seconds it took."""
    ours, theirs = folder / "extracted.jsonl", folder / "extracted"
    functions = {"deepsiam": lambda dump: (ours, run([sys.executable, "-c", EXTRACT, dump, ours])[1])}
    if importlib.util.find_spec("wikiextractor"):
        functions["WikiExtractor"] = lambda dump: (theirs, run([*WIKIEXTRACTOR, dump, "-o", theirs])[1])
    return functions


def command(material: RawText, source: str, path: Path, processes: int, *more: object) -> list[object]:
    """Return the arguments of the whole command, for a new output folder."""
    out = tempfile.mkdtemp(dir=material.folder)
    options = ["--out", out, "--tokenizer", material.tokenizer(), "--workers", processes, "--keep-duplicates"]
    return [source, path, *options, *more]


def two_workers(material: RawText, rounds: int) -> dict[str, Any]:
    """Measure MB of the decompressed dump per second of wall-clock time."""
    path = material.dump()
    size = inflated(path) / MEGABYTE

    def rate(processes: int) -> float:
        line = command(material, "wikipedia", path, processes)
        return size / run([sys.executable, "-m", "data_prep", *line])[1]["clock"]

    rivals = {"two workers": partial(rate, 2), "one worker": partial(rate, 1)}
    return {"MB": size} | compared("the whole command", rivals, rounds)


def passes(material: RawText, _: int) -> dict[str, Any]:
    """Measure MB of input per CPU second of each pass: text for the last pass, decompressed raw text for the others.

    `cut` is the work of the reading process, including decompression; the workers share the other passes.
    """
    sources = {"wikipedia": material.dump()}
    if material.data:
        sources |= {"bookcorpus": material.data / "books", "reddit": material.data / "reddit"}
    results = {}
    for name, path in sources.items():
        one = Passes()
        one.write(one.read(name, path, material.folder / name), material.tokenizer(), material.folder / name)
        sizes = {work: one.sizes["text" if work == "write" else "inflated"] for work in one.seconds}
        rates = {work: sizes[work] / spent / MEGABYTE for work, spent in one.seconds.items()}
        shares = {f"{what} / {of}": one.sizes[what] / one.sizes[of] for of, what in pairwise(one.sizes)}
        results[name] = {"records": one.records, "MB/s": rates, "bytes": one.sizes, "shares": shares}
        for what, numbers in (("MB/s", rates), ("shares", shares)):
            print(f"passes, {name}, {what}: " + ", ".join(f"{key} {value:.3g}" for key, value in numbers.items()))
    return results


def memory(material: RawText, _: int) -> dict[str, float]:
    """Measure peak memory for several sizes of text, in shards as large as those of a large data set."""
    peaks = {}
    for size in (times * material.megabytes for times in TIMES):
        path = material.folder / "generated.jsonl"
        with open(path, "w") as file:
            file.writelines(up_to(size, map(line_of, count())))
        line = command(material, "jsonl", path, 1, "--shards", -(-path.stat().st_size // writing.SHARD_BYTES))
        # not ru_maxrss: the child starts as a copy of this process, so it may be this process's peak
        peak = re.search(r"VmHWM:\s*(\d+) kB", run([sys.executable, "-c", PEAK, *line])[0])
        peaks[f"{size:g}"] = int(peak[1]) * 1024 / MEGABYTE if peak else 0.0
        print(f"memory: {size:>8,g} MB of text, {peaks[f'{size:g}']:>6,.0f} MB at most", flush=True)
    return peaks


MEASURED: dict[str, Callable[[RawText, int], dict[str, Any]]] = {
    "text to shards": text_to_shards,
    "dump to text": dump_to_text,
    "two workers": two_workers,
    "passes": passes,
    "memory": memory,
}


def data_argument(parser: argparse.ArgumentParser) -> None:
    default = os.environ.get("DEEPSIAM_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=default, metavar="FOLDER", help="real text (%(default)s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    data_argument(parser)
    parser.add_argument("--only", nargs="+", choices=MEASURED, default=list(MEASURED), metavar="NAME", help="(all)")
    parser.add_argument("--megabytes", type=float, default=32, help="of a dump, and at most of text (%(default)s)")
    parser.add_argument("--rounds", type=positive, default=5, help="how often each rival runs (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks/data_prep.json"), help="(%(default)s)")
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core per process
    with tempfile.TemporaryDirectory() as folder:
        material = RawText(Path(folder), options.data if options.data.is_dir() else None, options.megabytes)
        results: dict[str, Any] = {"text": "real" if material.data else "generated"}
        print(f"the text is {results['text']}")
        for name in options.only:
            results[name] = MEASURED[name](material, options.rounds)
    write(options.out, results)


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.data.preparation"):
        main()
