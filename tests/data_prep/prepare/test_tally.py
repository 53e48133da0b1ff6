from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import tally
from deepsiam.data_prep.prepare.tally import Tally, Totals


def stage(name: str, came: int, **dropped: int) -> dict[str, Any]:
    out = came - sum(dropped.values())
    return {"name": name, "parameters": {"of": name}, "in": came, "out": out, "dropped": dropped}


def about(read: int, *named: str, bad: int = 0, **dropped: int) -> dict[str, Any]:
    stages = [stage("read", read, **({"bad": bad} if bad else {})), stage("length", read - bad, **dropped)]
    return {"bad": bad, "named": list(named), "stages": stages}


def test_a_stage_counts_in_out_and_dropped() -> None:
    counted = Tally("length", {"min_words": 3})
    counted.came, counted.went = 4, 1
    for reason in ("too short", "odd", "too short"):
        counted.drop(reason)
    assert counted.record() == {
        "name": "length",
        "parameters": {"min_words": 3},
        "in": 4,
        "out": 1,
        "dropped": {"odd": 1, "too_short": 2},
    }


def test_names_of_guessed_documents_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MOST_NAMES", 3)
    counted = Tally("read", {})
    for name in "abcde":
        counted.guess("cp1252", name)
    assert counted.record()["guessed"] == {"cp1252": 5}
    assert counted.record()["guessed_for"] == {"cp1252": ["a", "b", "c"]}
    (total,) = tally.add([[counted.record()], [stage("read", 1)], [counted.record()]])
    assert (total["guessed"], total["guessed_for"]) == ({"cp1252": 10}, {"cp1252": ["a", "b", "c"]})


def test_the_names_kept_do_not_depend_on_the_order_of_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MOST_NAMES", 3)
    tasks = []
    for names in ("db", "ca"):
        counted = Tally("read", {})
        counted.guess("cp1252", *names, number=2)
        tasks.append([counted.record()])
    assert tally.add(tasks) == tally.add(tasks[::-1])
    assert tally.add(tasks)[0]["guessed_for"] == {"cp1252": ["a", "b", "c"]}


COUNTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(["short", "odd"])), max_size=8)


@given(COUNTS)
def test_stages_add_up(counts: list[tuple[int, int, str]]) -> None:
    tasks = [[stage("read", came + gone), stage("length", came + gone, **{why: gone})] for came, gone, why in counts]
    totals = tally.add(tasks)
    assert [one["name"] for one in totals] == (["read", "length"] if counts else [])
    if counts:
        came, gone = (sum(row[index] for row in counts) for index in (0, 1))
        assert [(one["in"], one["out"]) for one in totals] == [(came + gone, came + gone), (came + gone, came)]
        assert sum(totals[1]["dropped"].values()) == gone
    assert tally.add([totals]) == totals
    assert tally.add([tasks_ for task in tasks[::-1] for tasks_ in [task]]) == totals
    assert sum(tally.dropped(totals).values()) == sum(gone for _, gone, _ in counts)


def test_sentences_left_out_are_counted_and_the_rarest_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MOST_NAMES", 2)
    counted = Tally("read", {})
    counted.sentences.update({"fox": 3, "dog": 1, "cat": 2, "ape": 1})
    twice = tally.add([[counted.record()], [counted.record()], [stage("read", 1)]])
    assert twice[0]["sentences"] == {"ape": 2, "cat": 4, "dog": 2, "fox": 6}
    short = tally.shortened(twice)
    assert short[0]["sentences"] == {"cat": 4, "fox": 6, tally.OTHERS: 4}
    assert tally.shortened(tally.add([short, short]))[0]["sentences"] == {"cat": 8, "fox": 12, tally.OTHERS: 8}
    assert "sentences" not in tally.shortened([stage("read", 1)])[0]


def test_reasons_are_added_over_stages() -> None:
    assert tally.dropped([stage("a", 9, odd=1, few=2), stage("b", 6, odd=3)]) == {"few": 2, "odd": 4}


def test_the_share_of_bad_records_decides(capsys: pytest.CaptureFixture[str]) -> None:
    totals = Totals(0.1)
    totals.add(about(10, "a: line 3: no", bad=1))
    totals.check()
    totals.add(about(9))
    totals.add(about(1, "b: line 1: no", bad=1))
    totals.check()
    totals.add(about(9, "b: line 2: no", bad=1))
    with pytest.raises(
        InputError, match=r"3 of 29 records are bad, more than --max-bad 0.1, as a: line 3: no; b: line 1"
    ):
        totals.check()
    assert capsys.readouterr().err == "".join(f"bad record: {w}: no\n" for w in ("a: line 3", "b: line 1", "b: line 2"))


def test_a_run_with_surely_too_many_bad_records_ends_early() -> None:
    totals = Totals(0.1)
    totals.add(about(tally.SURE - 1, bad=tally.SURE // 2))
    with pytest.raises(InputError, match="records are bad"):
        totals.add(about(1))


def test_the_first_bad_records_are_named_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    totals = Totals(1)
    totals.add(about(9, "one\x1b[2J\nline", "two", bad=2))
    totals.add(about(9, *map(str, range(5)), bad=5))
    assert capsys.readouterr().err.splitlines() == [
        f"bad record: {name}" for name in ("one\\x1b[2J line", "two", "0", "1", "2")
    ]


def test_the_note_has_the_commonest_reasons() -> None:
    totals = Totals(0)
    totals.add(about(5000, odd=1200, few=30, rare=1, some=7))
    assert totals.note() == "1,200 odd, 30 few, 7 some"


def test_no_records_are_not_too_many_bad_ones() -> None:
    Totals(0).check()
