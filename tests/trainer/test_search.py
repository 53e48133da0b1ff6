"""The commands that make an index and search it: what they print, on several ranks too, and what they refuse."""

import io
import json
import shutil
from pathlib import Path

import pytest

from data_prep.collections.collection import Collection
from tests import toy
from tests.trainer.runs import write_run
from trainer import index, search
from trainer.checkpoints.load import load_trained
from trainer.retrieval.texts import Texts, embed_task

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}


@pytest.fixture(scope="module")
def made(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, a collection and an index of it."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(toy_collection, folder / "collection")
    write_run(folder / "run", toy_collection / "tokenizer.json", name="siamese", similarity="cosine", **LENGTHS)
    index.main([str(folder / "run"), f"--collection={folder / 'collection'}", f"--out={folder / 'index'}"])
    return folder


def expected(made: Path, queries: list[int], k: int) -> list[list[str]]:
    """The ids of the best documents for some of the collection's queries."""
    collection = Collection.open(made / "collection")
    task = Texts(collection, queries, list(range(len(collection.corpus))))
    ranked = embed_task(load_trained(made / "run"), task).rank(k)
    return [[collection.corpus.ids[i] for i in row.documents] for row in ranked]


def test_what_is_printed(made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    index.main([str(made / "run"), f"--collection={made / 'collection'}", f"--out={made / 'index'}"])
    (line,) = capsys.readouterr().out.splitlines()
    assert line == f"{made / 'index'}: complete already: 120 documents of 120 different texts, 32 x float32 each"
    collection = Collection.open(made / "collection")
    texts = [collection.queries.text(i) for i in (3, 8)]
    search.main([str(made / "index"), *texts, "--k=4"])
    printed = capsys.readouterr().out
    blocks = [block.splitlines() for block in printed.strip().split("\n\n")]
    assert [block[0] for block in blocks] == texts
    found = [[line.split()[2] for line in block[1:]] for block in blocks]
    assert found == expected(made, [3, 8], 4)
    for block in blocks:
        ranks, scores, names = zip(*(line.split()[:3] for line in block[1:]), strict=True)
        assert ranks == ("1", "2", "3", "4")
        assert [*map(float, scores)] == sorted(map(float, scores), reverse=True)
        assert all(-1 <= float(score) <= 1 for score in scores)
        start = block[1].split(maxsplit=3)[3].removesuffix("…")
        assert collection.corpus.text(collection.corpus.ids.number(names[0])).startswith(start)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{texts[0]}\n\n  {texts[1]}"))
    search.main([str(made / "index"), "--k=4"])
    assert capsys.readouterr().out == printed


def test_more_than_there_are_are_all(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search.main([str(made / "index"), "", "--k=500"])  # a query of no words is one, too
    assert len(capsys.readouterr().out.strip().splitlines()) == 120


def test_a_moved_collection_and_model_are_found_where_they_are_named(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made, tmp_path / "moved")
    manifest = tmp_path / "moved" / "index" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(str(made), str(tmp_path / "gone")))
    arguments = [str(tmp_path / "moved" / "index"), "abc"]
    for missing, given in (("collection", []), ("run", [f"--collection={tmp_path / 'moved' / 'collection'}"])):
        with pytest.raises(SystemExit):
            search.main([*arguments, *given])
        assert str(tmp_path / "gone" / missing) in capsys.readouterr().err
    search.main([*arguments, *given, f"--model={tmp_path / 'moved' / 'run'}"])
    assert len(capsys.readouterr().out.splitlines()) == 12


@pytest.mark.parametrize("other", ["collection", "run"])
def test_another_collection_or_model_is_refused(
    made: Path, toy_classes: Path, tmp_path: Path, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(tmp_path / "run", made / "collection" / "tokenizer.json", seed=3, name="siamese", **LENGTHS)
    option, message = {
        "collection": (f"--collection={toy_classes}", "is not the collection that"),
        "run": (f"--model={path}", "is not the model that"),
    }[other]
    with pytest.raises(SystemExit) as stopped:
        search.main([str(made / "index"), "abc", option])
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("trainer.search: ")
    assert message in line


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (index, ["MADE/run", "--collection=MADE/none", "--out=NEW"], "not tokenised, or not a collection"),
        (index, ["MADE/none", "--collection=MADE/collection", "--out=NEW"], "none"),
        (index, ["MADE/run", "--collection=MADE/collection", "--out=MADE"], "holds something that is not an index"),
        (search, ["MADE/run", "abc"], "not an index"),
        (search, ["MADE/index", "abc", "--k=0"], "'0' is not a whole number above 0"),
        (search, ["MADE/index", "--serve=99999"], "'99999' is not a port"),
        (search, ["MADE/index", "--serve=0", "abc"], "--serve takes its queries from the page"),
        (search, ["MADE/index", "--beside=MADE/index", "--serve=0"], "--beside names the same index"),
        (search, ["MADE/index", "--beside=MADE/other"], "--beside is for the page: add --serve PORT"),
    ],
)
def test_what_is_refused(
    made: Path, tmp_path: Path, command, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main([text.replace("MADE", str(made)).replace("NEW", str(tmp_path / "new")) for text in arguments])
    assert stopped.value.code == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"{command.__name__}: ")]
    assert len(lines) == 1
    assert message in lines[0]
    assert not (tmp_path / "new").exists()


@pytest.mark.slow  # two real ranks
def test_two_ranks_make_the_same_index(made: Path, tmp_path: Path) -> None:
    out = toy.launch(
        2, "trainer.index", made / "run", f"--collection={made / 'collection'}", f"--out={tmp_path / 'index'}"
    ).stdout
    assert sum("120 documents of 120 different texts" in line for line in out.splitlines()) == 1
    one, two = (
        {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (made / "index", tmp_path / "index")
    )
    assert one == two
    assert json.loads(one["manifest.json"])["blocks"] == ["000000.npy"]


@pytest.mark.slow  # two real ranks
def test_two_ranks_refuse_in_one_line(made: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years")
    result = toy.launch(2, "trainer.index", made / "run", f"--collection={made / 'collection'}", f"--out={mine}")
    lines = [line for line in (result.stdout + result.stderr).splitlines() if line.startswith("trainer.index: ")]
    assert lines == [f"trainer.index: {mine}: holds something that is not an index: name another folder"]
    assert result.returncode


def test_approximate_search_is_prepared_and_used(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(made / "run"), f"--collection={made / 'collection'}", f"--out={tmp_path / 'index'}"]
    index.main([*arguments, "--approximate=hnsw"])
    file = tmp_path / "index" / "approximate-hnsw.faiss"
    assert capsys.readouterr().out.splitlines()[-1] == f"{file}: for trainer.search --approximate hnsw"
    texts = [Collection.open(made / "collection").queries.text(i) for i in (3, 8)]
    search.main([str(tmp_path / "index"), *texts])
    exact = capsys.readouterr().out
    search.main([str(tmp_path / "index"), *texts, "--approximate=hnsw"])
    assert capsys.readouterr().out == exact  # of so few documents none is missed
    with pytest.raises(SystemExit) as stopped:
        search.main([str(tmp_path / "index"), *texts, "--approximate=ivf"])
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("approximate-ivf.faiss: no such file; trainer.index --approximate makes it")
