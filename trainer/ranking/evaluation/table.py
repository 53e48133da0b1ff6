"""The results of trainer.evaluate as lines of text: a table, and the conditions that it was measured under."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deepsiam.trainer.ranking.evaluation import fusion
from deepsiam.trainer.ranking.evaluation.results_file import About, Results, SystemResult, SystemStage
from deepsiam.trainer.ranking.evaluation.significance import LEVEL, SystemPair, flips_for
from deepsiam.trainer.ranking.evaluation.task import TIE_RULE
from deepsiam.trainer.ranking.retrieval import bm25


def table(results: Results, all_pairs: bool = False) -> Iterator[str]:
    """Yield the lines of the table, of the tests and of the conditions.

    Args:
        results: the results of an evaluation.
        all_pairs: also report how each pair of systems differs.
    """
    about, columns = results.about, results.about.columns
    rows = {title(name): system.metrics for name, system in results.systems.items()}
    if about.classes:
        majority, share = max(about.classes.shares.items(), key=lambda item: item[1])
        rows = {f"always {majority}": {"accuracy": share}, **rows}
    width = max(map(len, rows))
    widths = {metric: max(10, len(heading)) for metric, heading in columns.items()}
    yield " " * width + "".join(f"  {columns[metric]:>{size}}" for metric, size in widths.items())
    for name, metrics in rows.items():
        yield f"{name:<{width}}" + "".join(f"  {metrics[metric]:>{size}.4f}" for metric, size in widths.items())
    yield from conditions(results, all_pairs)


def conditions(results: Results, all_pairs: bool = False) -> Iterator[str]:
    """Yield the lines below the table."""
    for pair in compared(results):
        yield _comparison(results, pair)
    if all_pairs and results.pairs:
        yield from _pairs(results)
    for name, system in results.systems.items():
        if system.combined:
            yield f"{name}: {_took(system.stages, results)}{_passes(system)}"
            yield from (f"{name}: {_rule(stage, results)}" for stage in system.stages if stage.fused)
        for stage in system.stages:
            if stage.position_bias is not None:
                bias = f"{stage.position_bias:.4f}, the mean of |p_ij + p_ji - 1|"
                yield f"{name}: position bias of {stage.stage}: {bias}"
    yield from results.about.remarks
    yield _what_was_measured(results.about)
    if results.about.ignore_identical_ids and (queries := results.about.ignore_identical_ids.queries):
        yield f"the document with the query's id is left out of the rankings of {queries:,} queries, as by BEIR"
    yield from _truncation(results)
    if _has_bm25(results):
        yield bm25.DESCRIPTION


def title(name: str) -> str:
    """Return the title of a system's row."""
    return "BM25" if name == "bm25" else name


def compared(results: Results) -> list[SystemPair]:
    """Return the pairs that are always reported: the last two models, and each combined system with BM25.

    Of fewer than two models, the last two models or combined systems.
    """
    models = [name for name, system in results.systems.items() if system.single_model]
    combined = [name for name, system in results.systems.items() if system.combined]
    last_two = (models if len(models) > 1 else [*models, *combined])[-2:]
    with_bm25 = [("bm25", name) for name in combined if "bm25" in results.systems]
    reported = {frozenset(pair) for pair in [tuple(last_two), *with_bm25] if len(pair) == 2}
    return sorted(
        (pair for pair in results.pairs if frozenset(pair.systems) in reported), key=lambda p: "bm25" in p.systems
    )


def label(expression: str, results: Results) -> str:
    """Return how a line calls a part of a system: by its name where it is a system of its own."""
    names = {system.expression: name for name, system in reversed(results.systems.items())}
    return title(names.get(expression, expression))


def _comparison(results: Results, pair: SystemPair) -> str:
    """Report two systems' values of a metric and the p-value of their difference in one line."""
    system, baseline = (
        f"{title(name)} {results.systems[name].metrics[pair.metric]:.4f}" for name in reversed(pair.systems)
    )
    test = f"p = {pair.p_value:.4f} (paired permutation test, two-sided, {flips_for(len(results.pairs)):,} flips)"
    return f"{results.about.columns[pair.metric]}: {system} against {baseline}, {test}"


def _pairs(results: Results) -> Iterator[str]:
    """Report how each pair of systems differs, one line per pair."""
    number = len(results.pairs)
    yield f"{results.about.columns[results.about.tested]}, every pair; p corrected by Holm for {number} of them:"
    for pair in results.pairs:
        baseline, system = map(title, pair.systems)
        low, high = pair.interval
        interval = f"{LEVEL:.0%} interval {low:+.4f} to {high:+.4f}, bootstrap over queries"
        yield f"  {system} - {baseline}: {pair.difference:+.4f}, {interval}; p = {pair.p_value_holm:.4f}"


def _took(stages: Sequence[SystemStage], results: Results) -> str:
    """Name the stages of a system, with the seconds that each took."""
    text = ""
    for stage in stages:
        text += " " * stage.stage.startswith(">") or ", " * bool(text)
        text += label(stage.stage, results) + ("" if stage.seconds is None else f" {stage.seconds:.1f} s")
    return text


def _passes(system: SystemResult) -> str:
    """Return how many forward passes a query takes, those of each stage in their order; "" where it is not known."""
    if system.passes is None:
        return ""
    stages = " + ".join(f"{stage.passes:,.10g}" for stage in system.stages)
    return f"; forward passes a query: {stages} = {system.passes:,.10g}"


def _rule(stage: SystemStage, results: Results) -> str:
    """Describe how a stage fuses scores."""
    if stage.weight is None:
        reason = f"; {stage.why}" if stage.why else ""
        return f"reciprocal ranks, the sum of 1 / ({fusion.RANK_OFFSET} + rank){reason}"
    assert stage.fused
    first_label, second_label = (label(part, results) for part in stage.fused)
    first_label = "found" if stage.depth else first_label
    origin = f"chosen by nDCG@10 on split {stage.split}" if stage.split else "as given"
    sums = f"{1 - stage.weight:g} {first_label} + {stage.weight:g} {second_label}"
    return f"{sums}, scores standardised per query; weight {origin}"


def _what_was_measured(about: About) -> str:
    """Describe in one line what the means are taken over."""
    if about.classes:
        return f"{about.classes.pairs:,} labelled pairs, {len(about.classes.shares)} classes"
    if lists := about.candidates:
        size = f"{lists.most:,}" if lists.fewest == lists.most else f"{lists.fewest:,} to {lists.most:,}"
        left_out = f"{lists.left_out:,} without a relevant document are left out, as by trec_eval"
        return (
            f"{lists.lists:,} lists of {size} candidates, {about.corpus:,} different documents; {TIE_RULE}; {left_out}"
        )
    return f"{about.queries:,} queries over {about.corpus:,} documents; {TIE_RULE}; every judged query counts"


def _truncation(results: Results) -> Iterator[str]:
    """Describe in one line how much of a text each model reads, if there is one."""
    models: dict[str, dict[str, None]] = {}  # the names, in order, by what they read
    for system in results.systems.values():
        for stage in system.stages:
            if limits := stage.max_tokens:
                end = "last " if limits.kept_of_query == "end" else ""
                name = label(stage.model or stage.stage, results)
                models.setdefault(f"{end}{limits.query}/{limits.document}", {})[name] = None
    if not models:
        return
    if len(models) == 1 and not next(iter(models)).startswith("last"):
        encoders = f"encoders read the first {next(iter(models))} tokens of queries/documents"
    else:
        lengths = ", ".join(f"{length} ({' and '.join(names)})" for length, names in models.items())
        encoders = f"encoders read the first tokens of queries/documents: {lengths}"
    yield encoders + (", BM25 reads all of them" if _has_bm25(results) else "")


def _has_bm25(results: Results) -> bool:
    return any("bm25" in (stage.stage, stage.model) for system in results.systems.values() for stage in system.stages)
