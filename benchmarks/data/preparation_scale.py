"""Measure how preparation scales: the merge of many parts with their bytes, memory with the number of workers.

    python -m benchmarks.data.preparation_scale [--only NAME ...] [--data FOLDER] [--out PATH]

    merge    seconds to merge 64 parts of 4, 8 and 16 MB of text; linear growth is an exponent of 1
    memory   the highest memory of all processes together with 2, 8 and 16 workers while 1.2 GB of XML are read, long
             enough for every worker to get its largest tasks; then each run is ended
    parts    a dump of 2 GB in 16 parts, one after another, with two workers each, and their merge: seconds and memory
             of all, and the rates that the passes themselves print; no two pages are the same

FOLDER is as in benchmarks/data/preparation.py.
"""

import argparse
import math
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import chain, count, cycle
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.common.made_up_text import MEGABYTE, up_to
from benchmarks.common.side_by_side import write
from benchmarks.data.preparation import RawText, data_argument, line_of, run
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.tokenizers import tokenizer

PARTS = 64
SIZES = (4, 8, 16)  # MB of text
WORKERS = (2, 8, 16)
XML = 1_200  # MB: the batches of a smaller dump are smaller
DUMP, DUMP_PARTS = 2_000, 16  # MB
COMMAND = [sys.executable, "-m", "data_prep"]


def merge(material: RawText, sizes: tuple[float, ...] = SIZES, parts: int = PARTS) -> dict[str, Any]:
    """Measure the seconds of merging by MB of text."""
    vocabulary = material.folder / "tokenizer.json"
    tokenizer.train((line_of(number) for number in range(2000)), 4096, vocabulary)
    seconds = {}
    for size in sizes:
        folder = material.folder / f"{size:g} MB"
        folder.mkdir()
        with open(folder / "a.jsonl", "w") as file:
            file.writelines(up_to(size, map(line_of, count())))
        outs = [folder / str(part) for part in range(1, parts + 1)]
        for part, out in enumerate(outs, 1):
            options = ["--tokenizer", vocabulary, "--workers", 1, "--part", f"{part}/{parts}"]
            run([*COMMAND, "jsonl", folder / "a.jsonl", "--out", out, *options])
        seconds[size] = run([*COMMAND, "merge", *outs, "--out", folder / "whole", "--workers", 1])[1]["clock"]
        print(f"merge of {parts} parts: {size:>4,g} MB of text, {seconds[size]:,.1f} s", flush=True)
        shutil.rmtree(folder)
    low, high = min(sizes), max(sizes)
    exponent = math.log(seconds[high] / seconds[low]) / math.log(high / low)
    print(f"merge: grows with the bytes to the power {exponent:.2f}")
    return {"seconds": {f"{size:g}": value for size, value in seconds.items()}, "exponent": exponent}


def memory(material: RawText, numbers: tuple[int, ...] = WORKERS, megabytes: float = XML) -> dict[str, Any]:
    """Measure the peak memory of all processes together in MB; shared memory counts once."""
    head, pages = material.pages()
    dump = material.folder / "pages-articles.xml"
    with open(dump, "w", encoding="utf-8") as file:
        file.writelines(chain([head], up_to(megabytes, cycle(pages)), ["</mediawiki>\n"]))
    peaks = {}
    for workers in numbers:
        out = material.folder / f"memory {workers}"
        line = [*COMMAND, "wikipedia", dump, "--out", out, "--text-only", "--workers", workers]
        with subprocess.Popen(list(map(str, line)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            peaks[str(workers)] = _peak(psutil.Process(process.pid), 25 + 6 * workers)
            process.kill()
        print(f"memory: {workers:>3} workers, {peaks[str(workers)]:,.0f} MB in all", flush=True)
        shutil.rmtree(out, ignore_errors=True)
    return peaks


def parts(material: RawText, megabytes: float = DUMP, number: int = DUMP_PARTS) -> dict[str, Any]:
    """Measure each part of a dump and their merge: seconds, peak memory in MB, the last line of every pass."""
    head, pages = material.pages()
    dump, small, folder = (material.folder / name for name in ("pages-articles.xml", "small.xml", "parts"))
    for path, size in ((small, min(20, megabytes)), (dump, megabytes)):
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(chain([head], up_to(size, map(_copy, cycle(pages), count())), ["</mediawiki>\n"]))
    run([*COMMAND, "wikipedia", small, "--out", folder / "small", "--workers", 1])
    vocabulary = folder / "small" / "shards" / "tokenizer.json"
    outs = [folder / str(part) for part in range(1, number + 1)]
    measured = {}
    for part, out in enumerate(outs, 1):
        options = ["--tokenizer", vocabulary, "--part", f"{part}/{number}", "--workers", 2]
        measured[f"{part}/{number}"] = _watched(["wikipedia", dump, "--out", out, *options])
    measured["merge"] = _watched(["merge", *outs, "--out", folder / "whole", "--workers", 2])
    for name, one in measured.items():
        print(f"parts: {name:>5}, {one['seconds']:>6,.1f} s, {one['megabytes']:>6,.0f} MB in all", flush=True)
        for line in one["passes"].values():
            print(f"           {line}", flush=True)
    seconds = [one["seconds"] for name, one in measured.items() if name != "merge"]
    print(
        f"parts: {megabytes:,g} MB, a part takes {median(seconds):,.1f} ({min(seconds):,.1f} to {max(seconds):,.1f}) s"
    )
    shutil.rmtree(folder)
    return measured


def _copy(page: str, number: int) -> str:
    """Return a page with a unique id, title and first sentence."""
    page = re.sub(r"<id>\d+</id>", f"<id>{number + 1}</id>", page, count=1)
    page = page.replace("<title>", f"<title>{number} ", 1)
    return re.sub(r"(<text[^>]*>)", rf"\1This is copy {number}.\n\n", page, count=1)


def _watched(arguments: list[Any]) -> dict[str, Any]:
    """Run a command; return its seconds, the peak memory of its processes in MB, and each pass's last line."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        with subprocess.Popen(
            list(map(str, [*COMMAND, *arguments])), stdout=subprocess.DEVNULL, stderr=said
        ) as process:
            peak = _peak(psutil.Process(process.pid), math.inf)
        seconds = time.perf_counter() - begin
        said.seek(0)
        lines = said.read().splitlines()
    if process.returncode:
        raise RuntimeError("\n".join(lines))
    return {"seconds": seconds, "megabytes": peak, "passes": {line.partition(":")[0]: line for line in lines}}


def _peak(parent: psutil.Process, seconds: float) -> float:
    """Return the highest sum of the memory of a process and its children, in MB, until it ends or the time is over."""
    highest = 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end and parent.is_running() and parent.status() != psutil.STATUS_ZOMBIE:
        total = 0.0
        for process in [parent, *parent.children(recursive=True)]:
            try:
                total += process.memory_full_info().pss / MEGABYTE
            except psutil.Error:  # it has just ended
                continue
        highest = max(highest, total)
        time.sleep(0.2)
    return highest


MEASURED: dict[str, Callable[[RawText], dict[str, Any]]] = {"merge": merge, "memory": memory, "parts": parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    data_argument(parser)
    parser.add_argument("--only", nargs="+", choices=MEASURED, default=list(MEASURED), metavar="NAME", help="(all)")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks/data_prep_scale.json"), help="(%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        material = RawText(Path(folder), options.data if options.data.is_dir() else None, 1)
        write(options.out, {name: MEASURED[name](material) for name in options.only})


if __name__ == "__main__":
    with exit_on_input_error("data_prep_scale"):
        main()
