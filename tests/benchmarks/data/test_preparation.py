"""data_prep's benchmarks on synthetic text: every promised number is measured, kept and lost text is counted."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.data import articles, preparation


@pytest.mark.slow
def test_it_writes_rates_ratios_passes_and_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results.json"
    options = ["--data", str(tmp_path / "nowhere"), "--megabytes", "0.1", "--rounds", "2", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["data_prep", *options])
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")  # the benchmark must restore it
    preparation.main()
    results = json.loads(out.read_text())
    assert results["text"] == "generated"
    for where in ("one process", "two processes"):
        result = results["text to shards"][where]
        assert {name: len(rates) for name, rates in result["MB/s"].items()} == {"deepsiam": 2, "tokenizers": 2}
        assert result["deepsiam / tokenizers"]["median"] > 0
    assert min(results["dump to text"]["MB/s"]["deepsiam"]) > 0
    installed = results["dump to text"]["WikiExtractor"] is not None
    assert ("deepsiam / WikiExtractor" in results["dump to text"]) == installed
    assert ("WikiExtractor is not installed" in capsys.readouterr().out) != installed
    assert results["two workers"]["two workers / one worker"]["min"] > 0
    passes = results["passes"]["wikipedia"]
    assert passes["MB/s"].keys() == {"inflate", "cut", "read", "write"}
    assert list(passes["bytes"]) == ["raw", "inflated", "text", "tokens", "shards"]
    assert all(share > 0 for share in passes["shares"].values())
    assert list(results["memory"]) == ["0.1", "0.4", "1.6"]
    assert all(peak > 10 for peak in results["memory"].values())


def test_passes_over_reddit_join_threads(tmp_path: Path) -> None:
    lines = [{"id": f"c{n}", "link_id": "t3_a", "body": f"The answer to that is in line {n}."} for n in range(5)]
    lines.append({"id": "a", "title": "What is the answer to this?"})
    dump = tmp_path / "RC_2019-12"
    dump.write_text("".join(json.dumps({**line, "parent_id": "t3_a", "created_utc": 1}) + "\n" for line in lines))
    passes = preparation.Passes()
    assert len(passes.read("reddit", dump, tmp_path / "spool")) == 1
    assert list(passes.seconds) == ["inflate", "cut", "read", "join"]
    assert passes.records == 6
    assert passes.sizes["text"] > 0


def test_a_dump_has_the_length_asked_for(tmp_path: Path) -> None:
    material = preparation.RawText(tmp_path, None, 2)
    assert 2e6 < preparation.inflated(material.dump()) < 2.1e6
    assert preparation.inflated(material.dump(once=True)) < 2e6


def test_kept_text_and_left_markup_of_an_article_are_counted() -> None:
    markup = (
        "{{Infobox}}\nOne '''word'''.<ref>A long note on where all this is from</ref>\n== The [[place|heading]] ==\n"
        "* The first [[Target|item of a list]]\n* {{cite|An item that is nothing but a template}}\n"
    )
    assert articles.runs("headings", markup) == ["heading"]
    assert articles.runs("list items", markup) == ["item of a list"]
    kept = articles.counts(markup, "One word. {{\nheading\nThe first item of a list <br>")
    assert +kept == {"articles": 1, "words": 11, "headings": 1, "list items": 1, "`{{` left": 1, "tags left": 1}
    assert articles.counts(markup, "A long note on where\nall this is from")["references"] == 1


def test_the_table_has_a_column_for_the_markup_and_for_each_extractor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", str(tmp_path / "nowhere"), "--number", "3", "--texts", str(tmp_path / "texts")]
    monkeypatch.setattr(sys, "argv", ["articles", *options])
    articles.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("| of 3 articles | in the markup | deepsiam |")
    assert [cell.strip() for cell in lines[3].split("|")][1:4] == ["articles", "3", "3"]
    assert len(list((tmp_path / "texts").glob("*.deepsiam.txt"))) == 3
