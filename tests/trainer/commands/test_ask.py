"""`deepsiam ask`: a collection of written queries, the same for any number of ranks and after a kill; bad input."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection, verify
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer import ask, mine
from deepsiam.trainer.ranking.asking import queries
from deepsiam.trainer.ranking.asking.served_model import ServedModel
from tests import toy
from tests.killed import kill
from tests.trainer.interop.family_folders import write_causal_lm
from tests.trainer.ranking.served import says, server

Refused = Callable[..., str]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def about(body: dict[str, Any]) -> tuple[int, Any]:
    """What a model could write: of a document's kind, with cases that are left out."""
    content = body["messages"][-1]["content"]
    text = content.partition("Text: ")[2].partition("\n\n")[0]
    kind = content.rpartition("\n")[2].rstrip(":").lower()
    words = text.split()
    written = {"a": "I'm sorry, I cannot.", "b": text, "c": "", "d": "the same for all"}
    return 200, says(written.get(text[0], f"{kind} {words[0]} {len(text)} {words[-1]}"))


def asked(collection: Path, out: Path, url: str, *words: object) -> Collection:
    ask.main([*map(str, ["--collection", collection, "--model", "org/tiny", "--server", url, "--out", out, *words])])
    return Collection.open(out)


def test_a_server_writes_the_split_train(
    opened: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "asked"
    with server(about) as (url, requests):
        made = asked(opened.directory, out, url, "--kinds", "title", "question", "--show")
    assert not [*verify(out)]
    texts, printed = [*opened.corpus.texts()], capsys.readouterr().out
    assert [*made.corpus.texts()] == texts
    assert made.splits() == ["train"]
    groups, wanted, seen = made.groups("train"), list[tuple[str, str, int, float]](), set[str]()
    for number, text in enumerate(texts):
        for kind in ("title", "question"):
            query = f"{kind} {text.split()[0]} {len(text)} {text.split()[-1]}"
            query = "the same for all" if text[0] == "d" else query
            if text[0] not in "abc" and query not in seen:
                wanted.append((f"{kind}-{opened.corpus.ids[number]}", query, number, 1.0))
                seen.add(query)
    found = [
        (made.queries.ids[query], made.queries.text(query), *documents.tolist(), *labels.tolist())
        for query, documents, labels in map(groups.__getitem__, range(len(groups)))
    ]
    assert found == wanted
    assert sum(made.qrels("train")[name]["d0"] for name in made.qrels("train") if name.endswith("-d0")) <= 2
    assert len(requests) == 2 * len(texts)
    first = [sum(text[0] == letter for text in texts) for letter in "abcd"]
    line = f"{len(requests)} queries asked for, {len(wanted)} kept; left out: "
    assert line in printed
    for words, number in {"refuse to": 2 * first[0], "have no": 2 * first[2], "were written": 2 * first[3] - 1}.items():
        assert re.search(f"{number} {words}", printed.partition(line)[2])
    assert printed.count("title of d") == printed.count("question of d") == 20
    command = made.manifest["command"]["written_by"]
    given = {"model": "org/tiny", "server": url, "temperature": 0.0, "seed": 1, "kinds": ["title", "question"]}
    assert command.items() >= given.items()
    assert "{document}" in command["prompts"]["title"][0][0]["content"]
    assert not (tmp_path / "asked.asked").exists()


def test_documents_are_drawn_by_hash_and_more_contain_fewer(opened: Collection, tmp_path: Path) -> None:
    drawn = []
    for number, seed in ((10, 1), (30, 1), (10, 2)):
        with server(lambda body: (200, says(f"what of {body['seed']}"))) as (url, requests):
            asked(opened.directory, tmp_path / f"{number} {seed}", url, "--documents", number, "--seed", seed)
        drawn.append({request["messages"][-1]["content"] for request in requests})
    assert [len(texts) for texts in drawn] == [10, 30, 10]
    assert drawn[0] < drawn[1]
    assert drawn[0] != drawn[2]


def test_copies_of_a_document_are_asked_about_once(opened: Collection, tmp_path: Path) -> None:
    texts = ["x one", "y two", "x one", "z three", "y two"]
    lines = [json.dumps({"id": f"d{number}", "text": text}) for number, text in enumerate(texts)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    build("documents", [tmp_path / "texts.jsonl"], tmp_path / "texts", opened.tokenizer)
    with server(about) as (url, requests):
        written = asked(tmp_path / "texts", tmp_path / "asked", url, "--kinds", "title", "--held-out", 1)
    assert len(requests) == 3
    assert sorted(written.queries.ids) == ["title-d0", "title-d1", "title-d3"]
    assert len(written.corpus) == len(texts)


def test_the_queries_of_held_out_documents_are_the_split_test(
    opened: Collection, tmp_path: Path, refused: Refused
) -> None:
    splits = []
    with server(about) as (url, _):
        for number in (30, 60):
            words = ["--kinds", "title", "question", "--held-out", number]
            made = asked(opened.directory, tmp_path / str(number), url, *words)
            assert not [*verify(made.directory)]
            assert made.manifest["graded"] == made.splits() == ["test", "train"]
            groups = {split: made.groups(split) for split in made.splits()}
            assert sorted(np.concatenate([group.queries for group in groups.values()])) == [*range(len(made.queries))]
            documents = {split: set(group.candidates.flat.tolist()) for split, group in groups.items()}
            assert not documents["train"] & documents["test"]
            assert 0 < len(documents["test"]) <= number
            for group in groups.values():
                names = [made.queries.ids[query].partition("-")[2] for query in group.queries.tolist()]
                assert names == [made.corpus.ids[document] for document in group.candidates.flat.tolist()]
            splits.append(documents)
        assert splits[0]["test"] < splits[1]["test"]
        given = ["--collection", opened.directory, "--server", url, "--model=m", "--out", tmp_path / "x"]
        line = refused(ask.main, *given, "--held-out=120")
        assert "--held-out 120 leaves nothing of 120 documents: lower it" in line


def test_long_documents_are_shortened_until_the_server_takes_them(
    opened: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def few(body: dict[str, Any]) -> tuple[int, Any]:
        words = len(body["messages"][-1]["content"].split())
        return (400, {"error": "maximum context length"}) if words > 18 else (200, says(f"what of {body['seed']}"))

    with server(few) as (url, _):
        made = asked(opened.directory, tmp_path / "asked", url, "--temperature", "0.5", "--per-document", "2")
    is_long = [len(text.split()) > 8 for text in opened.corpus.texts()]
    assert len(made.queries) == 2 * len(is_long)
    assert re.search(r"120 documents, of which the model reads the beginning for \d+ queries", capsys.readouterr().out)
    assert made.queries.ids[0] == "question-d0-0"
    with server(lambda _: (400, b"too long")) as (url, _), pytest.raises(SystemExit):
        asked(opened.directory, tmp_path / "other", url)
    assert "the prompt of question is too long: give fewer examples" in capsys.readouterr().err


def test_a_stopped_command_goes_on_after_its_last_block(
    opened: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServedModel, "block", 50)
    with server(about) as (url, requests):
        whole = asked(opened.directory, tmp_path / "whole", url)
        write, blocks = queries.write_bytes, list[str]()

        def stop(path: Path, content: bytes) -> None:
            blocks.append(path.name)
            if len(blocks) == 2:
                raise InputError("killed")
            write(path, content)

        monkeypatch.setattr(queries, "write_bytes", stop)
        with pytest.raises(SystemExit):
            asked(opened.directory, tmp_path / "stopped", url)
        monkeypatch.setattr(queries, "write_bytes", write)
        with pytest.raises(SystemExit):
            asked(opened.directory, tmp_path / "stopped", url, "--seed", "2")
        number = len(requests)
        asked(opened.directory, tmp_path / "stopped", url)
    assert len(requests) - number == 120 - 50
    assert files_of(whole.directory) == files_of(tmp_path / "stopped")


@pytest.mark.slow  # separate processes
def test_any_ranks_and_a_kill_give_the_same_bytes(toy_collection: Path, shards: Path, tmp_path: Path) -> None:
    collection = toy.write_collection(tmp_path / "collection", shards / "tokenizer.json", count=300)
    model = write_causal_lm(tmp_path / "model", "llama")
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [*range(0, vocabulary, 5)]}))
    words = ["--collection", collection, "--model", model, "--temperature", "1", "--out"]
    done = toy.run("trainer.ask", *words, tmp_path / "1", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(Collection.open(tmp_path / "1").queries) > 30
    (printed := tmp_path / "printed").touch()
    process = toy.start(2, "trainer.ask", *words, tmp_path / "2", printed=printed)
    block = tmp_path / "2.asked" / "000001.json"  # the shorter one, by rank 1
    while not block.is_file() and process.poll() is None:
        time.sleep(0.005)
    kill(process)
    assert not (tmp_path / "2").exists(), printed.read_text()
    done = toy.launch(2, "trainer.ask", *words, tmp_path / "2", OMP_NUM_THREADS=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("wrote ") == 1
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")
    groups = Collection.open(tmp_path / "2").groups("train")
    assert np.array_equal(groups.labels, np.ones(len(groups), np.float32))


def test_where_no_query_is_left_nothing_is_made(opened: Collection, refused: Refused, tmp_path: Path) -> None:
    words = ["--collection", opened.directory, "--model", "m", "--out", tmp_path / "out"]
    with server(lambda _: (200, says("Sorry, no."))) as (url, _):
        line = refused(ask.main, *words, "--server", url, "--documents", "5")
    assert "out.asked: 5 queries asked for, 0 kept; left out: 5 refuse to answer: no query is left in train;" in line
    assert not (tmp_path / "out").exists()
    with server(lambda _: (200, b"<html>")) as (url, _):
        line = refused(ask.main, *words[:-1], tmp_path / "html", "--server", url)
    assert "its answer is not a chat completion" in line


def test_the_same_model_scores_what_it_wrote_by_yes_and_no(
    opened: Collection, tmp_path: Path, refused: Refused
) -> None:
    model = write_causal_lm(tmp_path / "model", "llama")
    prompt = {"template": "Query: {query}\nText: {document}\nAnswers it:\n", "labels": ["y", "n"]}
    method = {"name": "label_ranker", "loss": "binary", "max_prompt_tokens": 256, **prompt}
    recipe = toy.finetune_recipe(tmp_path / "yes_no.yaml", opened.directory, method=method, init_from=str(model))
    with server(about) as (url, _):
        made = asked(opened.directory, tmp_path / "asked", url, "--documents", "20")
    words = [f"--collection={made.directory}", "--split=train", f"--score={model}", f"--out={tmp_path / 'scored'}"]
    assert "so it cannot be" in refused(mine.main, *words)  # its default prompt has lists
    mine.main([*map(str, words), f"--recipe={recipe}"])
    scored = Collection.open(tmp_path / "scored")
    groups = scored.groups("train")
    assert scored.manifest["command"] == {"scored_by": str(model), "split": "train", "recipe": str(recipe)}
    assert groups.scores is not None
    assert (groups.scores < 0).all()  # log p(yes)
    assert len(np.unique(groups.scores)) > len(groups) / 2
    assert "--recipe" in refused(mine.main, *words[:2], "--system=bm25", words[3], f"--recipe={recipe}")
