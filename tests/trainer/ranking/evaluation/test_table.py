"""The table of trainer.evaluate: its headings, and the conditions below it."""

from trainer.ranking.evaluation.table import table


def test_the_table_tells_the_end_of_a_text_from_its_start() -> None:
    metrics = dict.fromkeys(("mrr@10", "ndcg@10", "recall@100"), 0.5)
    results = {"a": metrics, "p_value": None, "queries": 1, "corpus": 1}
    end = {"query": 8, "document": 16, "kept_of_query": "end"}
    assert list(table({**results, "max_tokens": {"a": end}}, ["a"]))[-1] == (
        "encoders read the first tokens of queries/documents: last 8/16 (a)"
    )


def test_lists_of_several_sizes_have_no_number_in_the_heading() -> None:
    metrics = dict.fromkeys(("r@1", "r@2", "r@5", "mrr", "map"), 0.5)
    results = {
        "a": metrics,
        "p_value": None,
        "lists": 2000,
        "lists_left_out": 0,
        "candidates": [2, 9],
        "corpus": 7,
        "max_tokens": {},
    }
    lines = list(table(results, ["a"]))
    assert lines[0].split() == ["R@1", "R@2", "R@5", "MRR", "MAP"]
    assert lines[-1].startswith("2,000 lists of 2 to 9 candidates, 7 different documents; ")


def test_why_a_weight_was_not_chosen() -> None:
    metrics = dict.fromkeys(("mrr@10", "ndcg@10", "recall@100"), 0.5)
    about = {"seconds": [0.0, 0.0], "weights": [None], "split": None}
    results = {
        "p": metrics,
        "q": metrics,
        "pipelines": {"p": {"stages": ["read:9", "+m"], **about}, "q": {"stages": ["bm25:9", "+m"], **about}},
        "run_files": {"read": "r.trec"},
        "p_value": None,
        "queries": 1,
        "corpus": 1,
        "max_tokens": {},
    }
    rules = [line for line in table(results, ["p", "q"]) if "reciprocal ranks" in line]
    assert rules[0].startswith("p: ")
    assert rules[0].endswith("; a run file has no other split to choose a weight on")
    assert rules[1].startswith("q: ")
    assert "no split dev other than the evaluated one" in rules[1]
