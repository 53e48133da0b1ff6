"""The report on a folder of runs as one page of HTML: results, scores, queries that differ, curves, data and code."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.charts import Line, histogram, line_chart
from deepsiam.data_prep.common.html_page import (
    Number,
    note,
    page,
    paragraph,
    passage,
    section,
    side_by_side,
    table,
    words_of,
)
from deepsiam.data_prep.common.json_file import Record, Sha256, read_json
from deepsiam.trainer.analysis.differences import Difference, RankedPassage, most_different, scores_of
from deepsiam.trainer.analysis.plots import Curve, smooth
from deepsiam.trainer.ranking.evaluation import run_file
from deepsiam.trainer.ranking.evaluation.metrics import HEADINGS
from deepsiam.trainer.ranking.evaluation.results_file import Results
from deepsiam.trainer.ranking.evaluation.table import conditions, title
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.retrieval.search import Ranked

TESTED = "mrr@10"
CURVES = {  # curves to draw of a run: the prefix of their tags, the title
    "loss/": "training loss",
    "validation/": "loss on held-out data",
    "probe/mrr@10": "probe",
    "negatives/": "negatives over generations",
}
Rankings = Mapping[str, Sequence[Ranked]]


class _Input(Record):
    """A file that a collection was made of."""

    file: str
    sha256: Sha256


class _Inputs(Record):
    """What the page shows of a collection's manifest."""

    inputs: list[_Input] = []


def report_page(
    heading: str,
    results: Results | None,
    rankings: Path,
    curves: Mapping[str, Mapping[str, Curve]],
    runs: Mapping[str, Path],
) -> str:
    """Make the page.

    Args:
        heading: the title of the page.
        results: the results of trainer.evaluate over a pool, or None.
        rankings: the folder of the systems' run files; some may be missing.
        curves: the scalars of each run by tag.
        runs: the folder of each run.

    Raises:
        InputError: a run file is not one of the collection's.
    """
    sections = []
    if results is not None:
        sections += list(_result_sections(results, rankings))
    sections += [section("Curves", *_curves(curves)), section("What it was made from", *_about(results, runs))]
    return page(heading, sections)


def _result_sections(results: Results, rankings: Path) -> Iterator[str]:
    yield section("Results", *_results(results))
    content = _rankings(results, rankings)
    if isinstance(content, str):
        yield section("Queries", note(f"No scores and no queries are shown: {content}."))
        return
    task, ranked = content
    yield section("Scores", *_scores(task, ranked))
    if len(ranked) > 1:
        yield section("Queries that differ most", *_differences(task, ranked, results))


def _rankings(results: Results, rankings: Path) -> tuple[Task, dict[str, list[Ranked]]] | str:
    """Read the systems' run files, with their task; return why not where something is missing or another one."""
    directory = Path(results.about.collection)
    files = {name: rankings / f"{name}.trec" for name in results.systems if (rankings / f"{name}.trec").is_file()}
    if not files or not directory.is_dir():
        reason = f"there are no run files in {rankings}" if not files else f"the collection {directory} is not there"
        return f"{reason} (trainer.evaluate --write-runs {rankings})"
    collection = Collection.open(directory)
    if results.about.collection_sha256 not in (None, collection.sha256):
        return f"the collection {directory} is another one than that of the results"
    task = Task.of(collection, results.about.split)
    ranked = {name: run_file.read(path, task).ranked for name, path in files.items()}
    for name, run in ranked.items():
        value = task.measure(run).means[TESTED]
        if not math.isclose(value, results.systems[name].metrics[TESTED], abs_tol=1e-6):
            return f"the run file of {name} is from another evaluation (trainer.evaluate --write-runs makes a new one)"
    return task, ranked


def _results(results: Results) -> Iterator[str]:
    """Yield the table, how each pair of systems differs, and the conditions, as trainer.evaluate prints them."""
    columns, systems = results.about.columns, results.systems
    values = [system.metrics[TESTED] for system in systems.values()]
    rows = [
        [title(name), *(Number(f"{system.metrics[metric]:.4f}") for metric in columns)]
        for name, system in systems.items()
    ]
    yield table(["system", *columns.values()], rows, best_row=values.index(max(values)))
    if results.pairs:
        yield "<h3>Every pair</h3>"
        yield table(
            ["difference", f"of {HEADINGS[TESTED]}", "95 % interval", "p", "p, corrected (Holm)"],
            [
                [
                    " − ".join(map(title, reversed(pair.systems))),
                    Number(f"{pair.difference:+.4f}"),
                    Number("{:+.4f} to {:+.4f}".format(*pair.interval)),
                    Number(f"{pair.p_value:.4f}"),
                    Number(f"{pair.p_value_holm:.4f}"),
                ]
                for pair in results.pairs
            ],
        )
    yield from map(note, conditions(results))


def _scores(task: Task, ranked: Rankings) -> Iterator[str]:
    yield paragraph(
        "The scores of the ranked documents: those of relevant ones, and of all others, each as a share of its kind. "
        "The further apart they are, the better a score separates them."
    )
    charts = []
    for name, rankings in ranked.items():
        groups = {kind: scores for kind, scores in scores_of(task, rankings).items() if len(scores)}
        if groups:
            series = {f"{kind} ({len(scores):,})": scores for kind, scores in groups.items()}
            charts.append(histogram(title(name), series, "score"))
    yield f'<div class="charts">{"".join(charts)}</div>'


def _differences(task: Task, ranked: Rankings, results: Results) -> Iterator[str]:
    """Show where the best system differs from the first one, which is BM25 where that was evaluated."""
    baseline = next(iter(ranked))
    leader = max((name for name in ranked if name != baseline), key=lambda name: results.systems[name].metrics[TESTED])
    titles = title(baseline), title(leader)
    wins, losses = most_different(task, (ranked[baseline], ranked[leader]), TESTED)
    yield paragraph(
        f"By {HEADINGS[TESTED]}, {titles[1]} beside {titles[0]}. "
        "Relevant documents have a bar, the query's words are marked."
    )
    for heading, differences in ((f"{titles[1]} is ahead", wins), (f"{titles[0]} is ahead", losses)):
        yield f"<h3>{escape(heading)}</h3>"
        yield "".join(_difference(difference, titles) for difference in differences) or paragraph("In no query.")


def _difference(difference: Difference, titles: tuple[str, str]) -> str:
    words = words_of(difference.query)
    lists = {
        f"{name}: {_place(place)}": [_passage(document, words) for document in passages]
        for name, place, passages in zip(titles, difference.first_relevant, difference.passages, strict=True)
    }
    return side_by_side(difference.query, lists)


def _place(rank: int | None) -> str:
    return "no relevant document ranked" if rank is None else f"first relevant document at rank {rank}"


def _passage(shown: RankedPassage, words: set[str]) -> str:
    about = f"{shown.name} · {shown.score:.4f}{' · relevant' if shown.relevant else ''}"
    return passage(about, shown.text, words, relevant=shown.relevant)


def _curves(curves: Mapping[str, Mapping[str, Curve]]) -> Iterator[str]:
    if not any(curves.values()):
        yield note("No run has logged anything yet.")
    for run, scalars in curves.items():
        charts = []
        for beginning, kind in CURVES.items():
            tags = [tag for tag in scalars if tag.startswith(beginning) and len(scalars[tag][0]) > 1]
            charts += [line_chart(f"{kind}: {tag}", _lines(tag, *scalars[tag]), "optimizer step") for tag in tags]
        if charts:
            yield f'<h3>{escape(run)}</h3><div class="charts">{"".join(charts)}</div>'


def _lines(tag: str, steps: Any, values: Any) -> dict[str, Line]:
    if tag.startswith("loss/"):
        return {"moving average": Line(steps, smooth(values)), "as logged": Line(steps, values, faint=True)}
    return {tag: Line(steps, values)}


def _about(results: Results | None, runs: Mapping[str, Path]) -> Iterator[str]:
    """Report the data, code and package versions behind the runs."""
    if results is not None:
        rows = [["collection", results.about.collection], ["split", results.about.split]]
        for name, system in results.systems.items():
            checkpoints = [stage.checkpoint for stage in system.stages if stage.checkpoint]
            rows += [[f"checkpoint of {name}", checkpoint] for checkpoint in checkpoints]
        manifest = Path(results.about.collection) / "manifest.json"
        if manifest.is_file():
            inputs = read_json(manifest, _Inputs, "make the collection again").inputs
            rows += [[f"SHA-256 of {entry.file}", entry.sha256] for entry in inputs]
        yield table(["", ""], rows)
    for run, folder in runs.items():
        if (folder / "environment.json").is_file():
            about = read_json(folder / "environment.json", dict[str, Any], "remove it: the next start writes it again")
            rows = [["folder", str(folder)], *([key, _shown(about[key])] for key in sorted(about))]
            yield f"<h3>{escape(run)}</h3>{table(['', ''], rows)}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(inner)}" for key, inner in value.items())
    return value if isinstance(value, str) else json.dumps(value)
