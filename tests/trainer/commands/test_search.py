"""The commands that build an index and search it: what they print, also on several ranks."""

import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer import index, search
from deepsiam.trainer.ranking import answers
from deepsiam.trainer.ranking.indexes.index import Hit
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval.system import Texts
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests import toy
from tests.trainer.ranking.indexes.five_blocks import tree
from tests.trainer.runs import STEP, vouch, write_run

Refused = Callable[..., str]
LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}


@pytest.fixture(scope="module")
def made(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, a collection and an index of it."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(toy_collection, folder / "collection")
    write_run(folder / "run", toy_collection / "tokenizer.json", name="siamese", similarity="cosine", **LENGTHS)
    index.main([str(folder / "run"), f"--collection={folder / 'collection'}", f"--out={folder / 'index'}"])
    index.main(["bm25", f"--collection={folder / 'collection'}", f"--out={folder / 'bm25'}"])
    return folder


@pytest.fixture(scope="module")
def colbert(made: Path) -> Path:
    """The folder of a multi-vector index of the same collection."""
    write_run(made / "colbert-run", made / "collection" / "tokenizer.json", name="colbert", dimension=16, **LENGTHS)
    arguments = [f"--collection={made / 'collection'}", f"--out={made / 'colbert'}", "--approximate=centroids"]
    index.main([str(made / "colbert-run"), *arguments])
    return made / "colbert"


def expected(made: Path, queries: list[int], k: int) -> list[list[str]]:
    """The ids of the best documents for some of the collection's queries."""
    collection = Collection.open(made / "collection")
    task = Texts(collection, queries, list(range(len(collection.corpus))))
    ranked = ranker_of(load_trained(made / "run"), task.collection).system(task).rank(k)
    return [[collection.corpus.ids[i] for i in row.documents] for row in ranked]


def test_a_sparse_index_tells_its_costs_and_the_terms_that_documents_share_with_a_query(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(made / "sparse-run", made / "collection" / "tokenizer.json", name="sparse", query="tokens", **LENGTHS)
    index.main([str(made / "sparse-run"), f"--collection={made / 'collection'}", f"--out={made / 'sparse'}"])
    (line,) = capsys.readouterr().out.splitlines()
    assert re.search(r"120 different texts, [\d.]+ terms each \(at most \d+\), float16; queries of .* FLOPS", line)
    query = Collection.open(made / "collection").queries.text(3)
    search.main([str(made / "sparse"), query, "the", "--k=4"])
    printed = capsys.readouterr()
    assert "1 of 2 queries have no term with a weight" in printed.err
    of_query, of_stop_word = printed.out.strip().split("\n\n")
    assert of_stop_word == "the"
    _, *lines = of_query.splitlines()
    assert len(lines) == 8
    for found, terms in zip(lines[::2], lines[1::2], strict=True):
        weights = [float(term.split()[1]) for term in terms.split(", ")]
        assert sum(weights) == pytest.approx(float(found.split()[1]), abs=0.005 * len(weights) + 1e-4)
        assert weights == sorted(weights, reverse=True)


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
    search.main([str(made / "index"), "", "--k=500"])  # an empty query is allowed; there are no more than all
    assert len(capsys.readouterr().out.strip().splitlines()) == 120


def test_a_line_that_is_not_utf_8_is_refused_after_the_queries_before_it(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"abc\n\ncaf\xe9\nabc\n"), encoding="utf-8"))
    with pytest.raises(SystemExit) as stopped:
        search.main([str(made / "index"), "--k=4"])
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    said = r"standard input:3: 'caf\udce9' is not UTF-8; convert it, as iconv does"
    assert printed.err == f"trainer.search: {said}\n"
    assert len(printed.out.splitlines()) == 6


def test_no_text_controls_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    escape, bell = "\x1b[2J", "\x07"
    found = Hit(f"d{escape}", 0.5, f"word {escape}{bell}\n" * 50, ((f"term{escape}", 0.25),))
    index = SimpleNamespace(search=lambda *_: [[found]], collection=SimpleNamespace(corpus=[found]))
    monkeypatch.setattr(answers, "open_index", lambda *_: index)
    search.main(["index", f"query {escape}"])
    query, document, terms, _ = capsys.readouterr().out.splitlines()
    assert query == r"query \x1b[2J"
    assert document.startswith(r"   1    0.5000  d\x1b[2J  word \x1b[2J\x07 word \x1b[2J\x07 ")
    assert document.endswith("…")
    assert terms.strip() == r"term\x1b[2J 0.25"


def test_a_moved_collection_and_model_are_found_where_they_are_named(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    moved, gone = shutil.copytree(made, tmp_path / "moved"), tmp_path / "gone"
    manifest = moved / "index" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(str(made), str(gone)))
    given = [str(moved / "index"), "abc"]
    assert str(gone / "collection") in refused(search.main, *given)
    given.append(f"--collection={moved / 'collection'}")
    assert str(gone / "run") in refused(search.main, *given)
    search.main([*given, f"--model={moved / 'run'}"])
    assert len(capsys.readouterr().out.splitlines()) == 12


def test_a_model_with_another_tokenizer_is_refused_at_the_start(made: Path, tmp_path: Path, refused: Refused) -> None:
    run = shutil.copytree(made / "run", tmp_path / "run")
    shards = toy.write_shards(tmp_path / "shards", 50, seed=4)
    shutil.copy(shards / "tokenizer.json", checkpoint.folder(run, STEP) / checkpoint.TOKENIZER)
    vouch(checkpoint.folder(run, STEP))
    assert "tokenizer" in refused(search.main, made / "index", "--serve=0", f"--model={run}")


def test_the_page_shows_bm25_beside_an_encoder(
    made: Path, colbert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {}

    def serve(systems, host, port, k):  # type: ignore[no-untyped-def]
        shown.update({name: system("abc", 3) for name, system in systems.items()})
        raise InputError("seen")

    monkeypatch.setattr(answers, "make_server", serve)
    with pytest.raises(SystemExit):
        search.main([str(colbert), "--serve=0", f"--beside={made / 'bm25'}"])
    moved = shutil.copytree(made / "collection", tmp_path / "moved")
    manifest = shutil.copytree(made / "bm25", tmp_path / "bm25") / "manifest.json"
    manifest.write_text(manifest.read_text().replace(str(made / "collection"), str(tmp_path / "gone")))
    with pytest.raises(SystemExit):
        search.main(
            [
                str(colbert),
                f"--collection={moved}",
                "--serve=0",
                f"--beside={manifest.parent}",
                "--approximate=centroids",
            ]
        )
    assert shown.pop(str(manifest.parent)) == shown[str(made / "bm25")]
    assert list(shown) == [str(colbert), str(made / "bm25")]
    assert len(shown[str(colbert)]) == 3


def test_a_run_file_has_the_queries_of_a_split_or_file(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "AT_ONCE", 7)  # of 20 queries
    search.main([str(made / "index"), "--queries=test", f"--write-run={tmp_path / 'a.trec'}", "--k=5"])
    assert capsys.readouterr().out == f"wrote {tmp_path / 'a.trec'}: 20 queries, at most 5 documents each\n"
    collection = Collection.open(made / "collection")
    rows = [line.split() for line in (tmp_path / "a.trec").read_text().splitlines()]
    ranked = expected(made, list(range(100, 120)), 5)
    assert [(row[0], row[2], row[3]) for row in rows] == [
        (f"q{100 + i}", name, str(rank)) for i, names in enumerate(ranked) for rank, name in enumerate(names, 1)
    ]
    texts = "".join(f"q{i}\t{collection.queries.text(i)}\n" for i in range(100, 120))
    (tmp_path / "q.tsv").write_text(texts)
    search.main([str(made / "index"), f"--queries={tmp_path / 'q.tsv'}", f"--write-run={tmp_path / 'b.trec'}", "--k=5"])
    assert (tmp_path / "b.trec").read_bytes() == (tmp_path / "a.trec").read_bytes()


def test_a_run_file_of_a_split_lacks_the_queries_themselves(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {f"t-{i}": f"common word {i}" for i in range(6)}
    folder = toy.write_beir(tmp_path / "c", texts, texts, dev="t-0\tt-1\t1\nt-1\tt-1\t1\n")
    build("beir", [folder], folder, tokenizers.load(toy_collection / "tokenizer.json"))
    index.main(["bm25", f"--collection={tmp_path / 'c'}", f"--out={tmp_path / 'index'}"])
    for rule, own in (("auto", {"t-1"}), ("on", set()), ("off", {"t-0", "t-1"})):
        out = tmp_path / f"{rule}.trec"
        arguments = [str(tmp_path / "index"), "--queries=dev", f"--write-run={out}", "--k=3"]
        search.main([*arguments, *([f"--ignore-identical-ids={rule}"] if rule != "auto" else [])])
        said = f"left out: the document with the query's id, for {2 - len(own)} queries, as by BEIR"
        assert (said in capsys.readouterr().out) == (rule != "off")
        found = [line.split() for line in out.read_text().splitlines()]
        assert {query for query, _, document, *_ in found if query == document} == own
        assert [rank for _, _, _, rank, *_ in found] == ["1", "2", "3"] * 2


@pytest.mark.slow  # real ranks
@pytest.mark.parametrize("kind", ["index", "colbert"])
def test_ranks_that_search_their_shares_write_the_same_run_file(
    made: Path, colbert: Path, tmp_path: Path, kind: str
) -> None:
    arguments = [made / kind, "--queries=test", "--k=30"]
    search.main([*map(str, arguments), f"--write-run={tmp_path / 'one.trec'}"])
    result = toy.launch(3, "trainer.search", *arguments, f"--write-run={tmp_path / 'three.trec'}")
    assert result.returncode == 0, result.stderr
    assert sum(line.startswith("wrote ") for line in result.stdout.splitlines()) == 1
    assert (tmp_path / "three.trec").read_bytes() == (tmp_path / "one.trec").read_bytes()


@pytest.mark.slow  # two real ranks
def test_an_index_in_two_bits_is_the_same_from_two_ranks_and_is_searched(
    made: Path, colbert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [str(made / "colbert-run"), f"--collection={made / 'collection'}", "--dtype=residual2"]
    index.main([*run, f"--out={tmp_path / 'one'}", "--approximate=centroids"])
    (line, _) = capsys.readouterr().out.splitlines()
    about = "120 documents of 120 different texts, "
    assert about in line
    assert "vectors of 16 x 2 bits (8 bytes each), 256 centroids; finds " in line
    result = toy.launch(2, "trainer.index", *run, f"--out={tmp_path / 'two'}", "--approximate=centroids")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(about) == 1
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    for options in ([], ["--approximate=centroids"], ["--verify"]):
        search.main([str(tmp_path / "one"), "abc", "--k=4", *options])
    assert len(capsys.readouterr().out.splitlines()) == 3 * 6 + 1


@pytest.mark.slow  # two real ranks
@pytest.mark.parametrize(
    ("module", "words", "line"),
    [
        ("trainer.search", "INDEX abc", "several ranks search for the queries of a file or split: give --queries"),
        ("trainer.index", "RUN --collection=COLLECTION --out=MINE", "MINE: holds something that is not an index: name"),
    ],
)
def test_two_ranks_refuse_in_one_line(made: Path, tmp_path: Path, module: str, words: str, line: str) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    places = {"INDEX": made / "index", "RUN": made / "run", "COLLECTION": made / "collection", "MINE": tmp_path}
    for name, path in places.items():
        words, line = words.replace(name, str(path)), line.replace(name, str(path))
    done = toy.launch(2, module, *words.split())
    assert done.returncode
    said = (done.stdout + done.stderr).splitlines()
    (refusal,) = (each for each in said if each.startswith(f"{module}: "))
    assert refusal.startswith(f"{module}: {line}")
    assert not any("Traceback" in each for each in said)


def test_approximate_search_is_prepared_and_used(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    arguments = [str(made / "run"), f"--collection={made / 'collection'}", f"--out={tmp_path / 'index'}"]
    index.main([*arguments, "--approximate=hnsw"])
    assert (tmp_path / "index" / "approximate-hnsw.faiss").is_file()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"{tmp_path / 'index'}: ready for trainer.search --approximate hnsw"
    texts = [Collection.open(made / "collection").queries.text(i) for i in (3, 8)]
    search.main([str(tmp_path / "index"), *texts])
    exact = capsys.readouterr().out
    search.main([str(tmp_path / "index"), *texts, "--approximate=hnsw"])
    assert capsys.readouterr().out == exact  # with so few documents, none is missed
    line = refused(search.main, tmp_path / "index", *texts, "--approximate=ivf")
    assert line.endswith("approximate-ivf.faiss: no such file; trainer.index --approximate makes it")
