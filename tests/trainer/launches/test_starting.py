"""Every command of docs/starting.md runs, on a tiny random model of each family; what it says to set is set."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from deepsiam.trainer.training.checkpoints.load import load_trained
from tests import toy
from tests.trainer.interop.family_folders import write_folder
from tests.trainer.interop.published_folders import change, write

PAGE = (toy.ROOT / "docs" / "starting.md").read_text()
SETTINGS = "config_sentence_transformers.json"
BRIEF = (
    "steps=2 batch.size=8 batch.micro=4 data.lanes=4 data.workers=0 validation.every=2 checkpoint.every=2 log_every=1 "
    "deepspeed=cpu optimizer.warmup_steps=1"
)
INSTRUCTION = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
GEMMA = {"query": "task: search result | query: ", "document": "title: none | text: "}
FOLDERS: dict[str, tuple[str, str, dict[str, str]]] = {  # the type, the pooling and the prompts of each folder
    "minilm": ("bert", "mean", {}),
    "e5": ("bert", "mean", {}),
    "bge": ("bert", "cls", {}),
    "gte": ("modernbert", "cls", {}),
    "qwen3": ("qwen3", "lasttoken", {"query": INSTRUCTION, "document": ""}),
    "mistral": ("mistral", "lasttoken", {"web_search_query": f"{INSTRUCTION} "}),
    "gemma": ("gemma3_text", "mean", GEMMA),
}
TRAINED: dict[str, tuple[str, float, str, str]] = {  # pooling, temperature and prompts of each run
    "minilm": ("mean", 0.05, "", ""),
    "e5": ("mean", 0.01, "query: ", "passage: "),
    "bge": ("cls", 0.02, "Represent this sentence for searching relevant passages: ", ""),
    "gte": ("cls", 0.01, "", ""),
    "qwen3": ("last", 0.02, INSTRUCTION, ""),
    "mistral": ("last", 0.02, f"{INSTRUCTION} ", ""),
    "gemma": ("mean", 0.05, *GEMMA.values()),
}


def commands() -> list[str]:
    """The commands of the page, in order, each in one line."""
    blocks = re.findall(r"(?m)^(?:    .*\n)+", PAGE)
    return "".join(blocks).replace("\\\n", " ").splitlines()


def test_every_family_of_the_page_is_trained() -> None:
    assert set(re.findall(r"FOLDER=published/(\w+)", PAGE)) == set(FOLDERS)
    assert set(re.findall(r"init_from=\S+", PAGE)) == {"init_from=$FOLDER"}
    assert set(re.findall(r"run=runs/(\w+)", PAGE)) == set(TRAINED)


def write_models(folder: Path) -> None:
    """The folders that the page names."""
    for name, (kind, pooling, prompts) in FOLDERS.items():
        made = write_folder(folder / name, kind, pooling, positions=2048)
        change(made / SETTINGS, {"prompts": prompts})
        change(made / "sentence_bert_config.json", {"max_seq_length": 512})
    dense = {"idx": 3, "name": "3", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    modules = json.loads((folder / "gemma" / "modules.json").read_text())
    write(folder / "gemma" / "modules.json", [*modules[:2], dense])


def write_texts(folder: Path) -> None:
    """A folder in BEIR's layout with three splits."""
    texts = [" ".join(sentences) for sentences in toy.documents(60, seed=3)]
    corpus = {f"d{i}": text for i, text in enumerate(texts)}
    queries = {f"q{i}": " ".join(text.split()[:3]) for i, text in enumerate(texts)}
    splits = {"train": range(40), "dev": range(40, 50), "test": range(50, 60)}
    toy.write_beir(folder, corpus, queries, **{n: "".join(f"q{i}\td{i}\t1\n" for i in s) for n, s in splits.items()})


@pytest.mark.slow  # half a minute
def test_every_command_of_the_page_runs(tmp_path: Path) -> None:
    pytest.importorskip("peft")  # an extra: pip install deepsiam[peft]
    write_models(tmp_path / "published")
    write_texts(tmp_path / "data" / "mine")
    folder, printed = "", {}
    for command in commands():
        if command.strip().startswith("FOLDER="):
            folder = command.strip().removeprefix("FOLDER=")
            continue
        words = shlex.split(command.replace("$FOLDER", folder))
        words = [re.sub(r"(^|=)(published|data|runs|indexes|exported)/", rf"\1{tmp_path}/\2/", word) for word in words]
        if words[0] == "deepspeed":
            assert words[1:3] == ["-q", "--module"]
            done = toy.launch(1, words[3], *words[4:], *BRIEF.split())
            printed[Path(folder).name] = done.stdout
        else:
            assert words[:2] == ["python", "-m"]
            done = toy.run(words[2], *words[3:])
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    for name, expected in TRAINED.items():
        keys: Any = load_trained(tmp_path / "runs" / name).method
        assert (keys.pooling, keys.temperature, keys.query_prompt, keys.document_prompt) == expected, name
    assert f"training starts with query_prompt={INSTRUCTION!r}\n" in printed["qwen3"]
    assert "training starts without its Dense" in printed["gemma"]
    exported = json.loads((tmp_path / "exported" / "e5" / SETTINGS).read_text())["prompts"]
    assert exported == {"query": "query: ", "document": "passage: "}
