"""The results of trainer.evaluate as lines of text: a table, and the conditions that it was measured under."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainer.ranking.evaluation import fusion
from trainer.ranking.evaluation.metrics import (
    CLASS_HEADINGS,
    HEADINGS,
    LIST_HEADINGS,
    ROUNDS,
    Metric,
    compared,
    row_title,
)
from trainer.ranking.evaluation.pipeline import PLUS
from trainer.ranking.evaluation.significance import LEVEL
from trainer.ranking.evaluation.task import TIE_RULE
from trainer.ranking.retrieval import bm25

RECIPROCAL = f"reciprocal ranks, the sum of 1 / ({fusion.RANK_OFFSET} + rank)"


def table(results: Mapping[str, Any], models: Sequence[str], all_pairs: bool = False) -> Iterator[str]:
    """Yield the lines of the table, of the tests and of the conditions.

    Args:
        results: the results of an evaluation.
        models: the names of the rows' models and run files.
        all_pairs: also report how each pair of systems differs.
    """
    headings, tested = headings_of(results)
    titles = {name: row_title(name, results) for name in ("bm25", "majority", *models, "fused") if name in results}
    width = max(map(len, titles.values()))
    yield " " * width + "".join(f"  {heading:>10}" for heading in headings.values())
    for name, title in titles.items():
        yield f"{title:<{width}}" + "".join(f"  {results[name][metric]:>10.4f}" for metric in headings)
    if results["p_value"] is not None:
        rows = [name for name in models if name in results and name not in results.get("run_files", {})]
        pipelines = [*results.get("pipelines", {})]
        first, second = compared([name for name in rows if name not in pipelines], pipelines)[-2:]
        yield _comparison(results, first, second, results["p_value"], tested)
    for name, how in {**results.get("pipelines", {}), "fused": results}.items():
        if how.get("p_value_bm25") is not None:
            yield _comparison(results, "bm25", name, how["p_value_bm25"], tested)
    if all_pairs and results["pairs_of_systems"]:
        yield from _pairs(results)
    for name, how in results.get("pipelines", {}).items():
        stages = (f"{stage} {seconds:.1f} s" for stage, seconds in zip(how["stages"], how["seconds"], strict=True))
        yield f"{name}: {', then '.join(stages)}"
        if "weights" in how:
            yield _interpolation_rule(name, how, results)
    if "fusion" in results:
        yield _fusion_rule(results)
    yield from results.get("remarks", ())
    yield _what_was_measured(results)
    yield from _identical_ids(results)
    if results["max_tokens"]:
        yield _truncation(results)
    if "bm25" in results or any(how["system"] == "bm25" for how in results.get("rerank", {}).values()):
        yield bm25.DESCRIPTION


def headings_of(results: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """Return the titles of the columns by metric, and the metric that is tested."""
    if "pairs" in results:
        return CLASS_HEADINGS, "accuracy"
    if "lists" in results:
        fewest, most = results["candidates"]
        among = f"/{most}" if fewest == most else ""
        recalls = {name: title + among for name, title in LIST_HEADINGS.items() if name.startswith("r@")}
        return {**LIST_HEADINGS, **recalls}, "mrr"
    return HEADINGS | {name: Metric.of(name).title for name in results.get("metrics", ())}, "mrr@10"


def _what_was_measured(results: Mapping[str, Any]) -> str:
    """Describe in one line what the means are taken over."""
    if "pairs" in results:
        return f"{results['pairs']:,} labelled pairs, {len(results['classes'])} classes"
    if "lists" in results:
        fewest, most = results["candidates"]
        size = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
        left_out = f"{results['lists_left_out']:,} without a relevant document are left out, as by trec_eval"
        lists = f"{results['lists']:,} lists of {size} candidates, {results['corpus']:,} different documents"
        return f"{lists}; {TIE_RULE}; {left_out}"
    return f"{results['queries']:,} queries over {results['corpus']:,} documents; {TIE_RULE}; every judged query counts"


def _identical_ids(results: Mapping[str, Any]) -> Iterator[str]:
    """Report for how many queries the document with their id is left out, if for any."""
    if queries := results.get("ignore_identical_ids", {}).get("queries"):
        yield f"the document with the query's id is left out of the rankings of {queries:,} queries, as by BEIR"


def _comparison(results: Mapping[str, Any], first: str, second: str, p_value: float, metric: str) -> str:
    """Report two systems' values of a metric and the p-value of their difference in one line."""
    ours, theirs = (f"{row_title(name, results)} {results[name][metric]:.4f}" for name in (second, first))
    test = f"p = {p_value:.4f} (paired permutation test, two-sided, {ROUNDS:,} flips)"
    return f"{headings_of(results)[0][metric]}: {ours} against {theirs}, {test}"


def _pairs(results: Mapping[str, Any]) -> Iterator[str]:
    """Report how each pair of systems differs, one line per pair."""
    pairs = results["pairs_of_systems"]
    yield f"{headings_of(results)[0][pairs[0]['metric']]}, every pair; p corrected by Holm for {len(pairs)} of them:"
    for pair in pairs:
        first, second = (row_title(name, results) for name in pair["systems"])
        low, high = pair["interval"]
        interval = f"{LEVEL:.0%} interval {low:+.4f} to {high:+.4f}, bootstrap over queries"
        yield f"  {second} - {first}: {pair['difference']:+.4f}, {interval}; p = {pair['p_value_holm']:.4f}"


def _fusion_rule(results: Mapping[str, Any]) -> str:
    """Describe in one line how the fused row was made."""
    how = results["fusion"]
    first, second = (row_title(name, results) for name in how["systems"])
    return f"{row_title('fused', results)}: {_rule([(first, second, how['weight'])], how['split'])}"


def _interpolation_rule(name: str, how: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """Describe in one line how the stages of a pipeline are interpolated."""
    if how["stages"][0].rpartition(":")[0] in results.get("run_files", {}):
        return f"{name}: {RECIPROCAL}; a run file has no other split to choose a weight on"
    later = zip(how["stages"][1:], how["weights"], strict=True)
    weighted = [("found", stage[len(PLUS) :], weight) for stage, weight in later if stage.startswith(PLUS)]
    return f"{name}: {_rule(weighted, how['split'])}"


def _rule(weighted: Sequence[tuple[str, str, float | None]], split: str | None) -> str:
    """Describe how scores are fused: a first and a second system, and the weight of the second."""
    if split is None:
        return f"{RECIPROCAL}; no split {fusion.SPLIT} other than the evaluated one to choose a weight on"
    sums = ", then ".join(
        f"{1 - weight:.1f} {first} + {weight:.1f} {second}" for first, second, weight in weighted if weight is not None
    )
    return f"{sums}, scores standardised per query; weight chosen by nDCG@10 on split {split}"


def _truncation(results: Mapping[str, Any]) -> str:
    """Describe in one line how much of a text each system reads."""
    names: dict[str, list[str]] = {}
    for name, most in results["max_tokens"].items():
        end = "last " if most.get("kept_of_query") == "end" else ""
        names.setdefault(f"{end}{most['query']}/{most['document']}", []).append(name)
    if len(names) == 1 and not next(iter(names)).startswith("last"):
        (limits,) = names
        encoders = f"encoders read the first {limits} tokens of queries/documents"
    else:
        each = ", ".join(f"{limits} ({' and '.join(same)})" for limits, same in names.items())
        encoders = f"encoders read the first tokens of queries/documents: {each}"
    return encoders + (", BM25 reads all of them" if "bm25" in results else "")
