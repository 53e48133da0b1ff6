"""The command trainer.mine: what it prints and writes, and what training then reads."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection, verify
from deepsiam.data_prep.collections.flat_arrays import Rows
from deepsiam.data_prep.collections.relevant import Relevant
from deepsiam.models.matching.tilde import terms_in
from deepsiam.trainer import mine
from deepsiam.trainer.ranking import derivations
from deepsiam.trainer.ranking.evaluation.expression import parse_unnamed
from deepsiam.trainer.ranking.miners import Miners
from deepsiam.trainer.ranking.mining import mining_texts
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.data.check_groups import check_teacher
from deepsiam.trainer.training.data.group_source import GroupSource
from tests import toy
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}


@pytest.fixture(scope="module")
def runs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, tokenizer = tmp_path_factory.mktemp("runs"), toy_collection / "tokenizer.json"
    keys = {
        "siamese": {"similarity": "cosine", "pooling": "mean", **LENGTHS},
        "colbert": LENGTHS,
        "cross_encoder": {"loss": "binary", "hard_negatives": 1, **LENGTHS},
    }
    return {name: write_run(folder / name, tokenizer, name=name, **of_run) for name, of_run in keys.items()}


def command(collection: Path, out: Path, *arguments: object) -> list[str]:
    return [f"--collection={collection}", "--split=train", f"--out={out}", *map(str, arguments)]


def test_mined_by_bm25_then_by_a_model_then_scored(
    toy_collection: Path, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in toy_collection.rglob("*") if path.is_file()}
    first, second, third = (tmp_path / name for name in ("bm25", "models", "scored"))
    mine.main(command(toy_collection, first, "--system=bm25", "--depth=10"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "split train: 100 queries: ranks 1 to 10 of 120 documents by bm25"
    assert lines[1].endswith(" queries have none")
    assert lines[2].startswith("left out: 9")  # the relevant document of nearly every query
    added = re.fullmatch(r"([\d,]+) candidates were added to the groups, which had the others already", lines[3])
    groups = Collection.open(first).groups("train")
    assert added
    assert int(added[1].replace(",", "")) == np.bincount(groups.found_by)[1] > 0
    assert lines[4] == f"wrote {first}: the same texts; its split train has other candidates"
    mine.main(command(first, tmp_path / "again", "--system=bm25", "--depth=10"))
    assert capsys.readouterr().out.splitlines()[3].startswith("0 candidates were added to the groups, ")

    mine.main(command(first, second, f"--system={runs['colbert']}", "--depth=5"))
    mine.main(command(second, third, f"--score={runs['cross_encoder']}"))
    assert "candidates of 100 groups scored" in capsys.readouterr().out
    opened = [Collection.open(folder).groups("train") for folder in (first, second, third)]
    found_by = [np.bincount(groups.found_by) for groups in opened]
    assert found_by[0][0] == 100
    assert found_by[0][1] > 5 * 100
    assert found_by[1].tolist() == [100, found_by[0][1], found_by[2][2]]
    assert 0 < found_by[1][2] <= 5 * 100
    assert Collection.open(second).manifest["mined"][0] == "bm25"
    assert str(runs["colbert"]) in Collection.open(second).manifest["mined"][1]
    assert Collection.open(third).manifest["command"]["split"] == "train"
    np.testing.assert_array_equal(opened[2].labels, opened[1].labels)
    np.testing.assert_array_equal(opened[2].candidates.flat, opened[1].candidates.flat)
    assert opened[1].scores is None
    assert opened[2].scores is not None
    assert np.isfinite(opened[2].scores).all()
    assert Collection.open(second).qrels("test") == Collection.open(toy_collection).qrels("test")
    assert not [line for folder in (first, second, third) for line in verify(folder)]
    assert before == {path: path.read_bytes() for path in toy_collection.rglob("*") if path.is_file()}

    source = GroupSource(Collection.open(second), "train", "positive", None, 1, unit=8)
    assert source.given_negatives().sum() == found_by[1][1] + found_by[1][2]
    scored = GroupSource(Collection.open(third), "train", "group", None, 1, unit=8)
    check_teacher(scored, "kl")
    assert len(scored) == 100


def test_it_works_in_one_process(
    toy_collection: Path, tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "LOCAL_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    line = refused(mine.main, *command(toy_collection, tmp_path / "two", "--system=bm25"))
    assert "only --pairs is for several ranks" in line
    assert not (tmp_path / "two").exists()


def test_a_margin_leaves_fewer(toy_collection: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    negatives = []
    for margin in ([], ["--margin=0.05"]):
        out = tmp_path / f"mined {margin}"
        mine.main(command(toy_collection, out, f"--system={runs['siamese']}", "--depth", 10**9, *margin))
        groups = Collection.open(out).groups("train")
        negatives.append(len(groups.labels) - 100)
    assert negatives[0] > negatives[1] > 0
    assert groups.found_scores is not None
    assert np.nanmax(groups.found_scores) <= 1 - 0.05 + 1e-6  # the scores are cosines


def test_queries_that_do_not_find_their_document_are_left_out(
    toy_scored: Path, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, systems = Collection.open(toy_scored), [f"--system={runs['siamese']}", f"--system={runs['colbert']}"]
    for name, options in {"all": [], "some": ["--consistent=2"]}.items():
        mine.main(command(toy_scored, tmp_path / name, *systems, "--depth=60", *options))
    printed = capsys.readouterr().out
    texts, relevant = mining_texts(source, "train"), Relevant.of_split(source, "train")
    miners = Miners.open([system.removeprefix("--system=") for system in systems], source, "train", None)
    found = {
        query
        for i in range(2)
        for query, ranked in zip(texts.queries, miners.rank(i, texts, relevant, 60), strict=True)
        if not set(relevant.of(query).tolist()).isdisjoint(texts.pool[place] for place in ranked.documents[:2].tolist())
    }
    every, some = (Collection.open(tmp_path / name).groups("train") for name in ("all", "some"))
    assert 0 < len(found) < len(every)
    assert f"kept {len(found)} of {len(every)} groups: those with a relevant document on ranks 1 to 2\n" in printed
    kept = [i for i in range(len(every)) if int(every.queries[i]) in found]
    assert len(some) == len(kept) == Collection.open(tmp_path / "some").manifest["counts"]["splits"]["train"]
    for name in ("candidates", "labels", "scores", "found_scores", "found_by"):
        arrays = [getattr(groups, name) for groups in (every, some)]
        if name != "candidates":
            arrays = [Rows(array, groups.candidates.ends) for array, groups in zip(arrays, (every, some), strict=True)]
        for i, number in enumerate(kept):
            np.testing.assert_array_equal(arrays[1][i], arrays[0][number])
    assert not list(verify(tmp_path / "some"))


COMMANDS = [
    command
    for page in sorted((toy.ROOT / "docs").rglob("*.md"))
    for command in re.findall(r"^    python -m trainer\.mine ((?:.*\\\n)*.*)", page.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("typed", COMMANDS)
def test_commands_of_the_pages_have_options_that_exist(typed: str) -> None:
    chosen = mine._arguments(shlex.split(typed.replace("\\\n", " ")))
    assert chosen.collection or chosen.pairs
    for system in chosen.system or ():
        parse_unnamed(system)


def test_several_systems_in_one_command_find_what_they_find_one_after_the_other(
    toy_collection: Path, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = ["bm25", str(runs["siamese"]), f"bm25 > 20 {runs['cross_encoder']}"]
    options = ["--depth=20", "--skip=2", "--margin=5%"]
    before = toy_collection
    for i, system in enumerate(systems):
        mine.main(command(before, tmp_path / f"{i}", f"--system={system}", *options))
        before = tmp_path / f"{i}"
    capsys.readouterr()
    given = [f"--system={system}" for system in systems]
    mine.main(command(toy_collection, tmp_path / "merged", *given, *options))
    lines = capsys.readouterr().out.splitlines()
    ranks = "split train: 100 queries: ranks 3 to 20 of 120 documents by "
    assert lines[0] == f"{ranks}bm25"
    assert all(line.startswith(ranks) for line in lines[:3])
    assert " by --margin, " in lines[4]
    assert lines[4].endswith(" by --skip")
    one_by_one, at_once = (Collection.open(folder) for folder in (before, tmp_path / "merged"))
    assert at_once.manifest["mined"] == one_by_one.manifest["mined"]
    groups = [collection.groups("train") for collection in (one_by_one, at_once)]
    lists = [[sorted(of[i].candidates.tolist()) for i in range(len(of))] for of in groups]
    assert lists[0] == lists[1]
    systems_of = [set(np.unique(of.found_by).tolist()) for of in groups]
    assert systems_of[0] == systems_of[1] >= {0, 1, 3}

    mine.main(command(toy_collection, tmp_path / "limited", *given, *options, "--per-document=4"))
    assert " by --per-document" in capsys.readouterr().out.splitlines()[4]
    limited = Collection.open(tmp_path / "limited").groups("train")
    assert limited.found_by is not None
    uses = np.bincount(limited.candidates.flat[np.asarray(limited.found_by) > 0])
    assert uses.max() == 4
    assert len(limited.labels) < len(groups[1].labels)
    assert not list(verify(tmp_path / "limited"))


def test_documents_get_the_likeliest_terms_that_they_lack(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "tilde", toy_collection / "tokenizer.json", name="tilde", **LENGTHS)
    out = tmp_path / "expanded"
    options = [f"--collection={toy_collection}", f"--expand={run}", "--terms=5", f"--out={out}"]
    monkeypatch.setattr(derivations, "BLOCK", 50)
    of_texts, blocks = derivations._terms, []

    def stopped(*arguments: Any) -> np.ndarray:
        blocks.append(of_texts(*arguments))
        if len(blocks) == 2:
            raise KeyboardInterrupt
        return blocks[-1]

    monkeypatch.setattr(derivations, "_terms", stopped)
    with pytest.raises(SystemExit, match="130"):
        mine.main(options)
    assert "run the same command to continue" in capsys.readouterr().err
    assert not out.exists()
    mine.main(options)  # makes the second block and the third, not the first
    assert len(blocks) == 4
    assert not out.with_name("expanded.terms").exists()
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"wrote {out}: the same queries and splits")

    opened, made = Collection.open(toy_collection), Collection.open(out)
    trained = load_trained(run)
    model, framing = trained.model.eval(), trained.method.document_framing(trained.tokenizer)
    allowed = terms_in(trained.tokenizer)
    for i in range(len(opened.corpus)):
        tokens = opened.corpus.tokens(i)
        with torch.no_grad():
            arrays = {name: torch.from_numpy(array) for name, array in framing.arrays([tokens]).items()}
            likelihoods = model.embed_documents(**arrays).vectors[0, 0].numpy()
        usable = set(np.flatnonzero(allowed).tolist()) - set(framing.cut(tokens).tolist())
        best = sorted(usable, key=lambda term, of=likelihoods: (-of[term], term))[:5]
        assert made.corpus.tokens(i).tolist() == [*tokens.tolist(), *best]
