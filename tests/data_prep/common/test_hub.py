"""Addresses of the Hugging Face Hub, downloads and uploads, against a stand-in of its HTTP interface."""

import socket
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.common import hub as hubs
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.hub import TOKENIZER_FILES, continues, dataset_of, local_files, local_model, push
from tests.hub import Hub, go_offline, use

FILES = {
    "config.json": b"{}",
    "1_Pooling/config.json": b'{"a": 1}',
    "vocab.txt": b"[PAD]\n",
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"a pickle",
    "modeling_own.py": b"raise SystemExit('code was run')",
    "onnx/model.onnx": b"graph",
    "README.md": b"# A model\n",
}
READ = {"config.json", "1_Pooling/config.json", "vocab.txt", "model.safetensors"}


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_paths_stay_as_they_are() -> None:
    assert local_model(Path("runs/seed")) == Path("runs/seed")
    assert local_files("data/x.parquet") == ["data/x.parquet"]


@pytest.mark.parametrize("address", ["hf://owner/mine", "hf://owner/mine@v1", Path("hf://owner/mine@v1")])
def test_a_model_is_downloaded_without_code_and_pickles(hub: Hub, address: str | Path) -> None:
    commit = hub.publish("owner/mine", FILES)
    folder = local_model(address)
    assert files_below(folder) == {name: FILES[name] for name in READ}
    assert hubs.with_commit(address, folder) == f"hf://owner/mine@{commit}"


def test_a_tokenizer_alone_comes_without_weights(hub: Hub) -> None:
    hub.publish("owner/mine", FILES)
    assert files_below(local_model("hf://owner/mine", TOKENIZER_FILES)).keys() == READ - {"model.safetensors"}


def test_a_commit_that_the_cache_has_is_read_without_the_network(hub: Hub) -> None:
    first = hub.publish("owner/mine", FILES)
    folder = local_model("hf://owner/mine")
    hub.publish("owner/mine", FILES | {"config.json": b'{"newer": true}'})
    hub.requests.clear()
    assert local_model(f"hf://owner/mine@{first}") == folder
    assert not hub.requests
    assert (local_model("hf://owner/mine") / "config.json").read_bytes() == b'{"newer": true}'


def test_offline_the_cache_is_read_or_the_reason_is_said(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.publish("owner/mine", FILES)
    folder = local_model("hf://owner/mine")
    go_offline(monkeypatch)
    hub.requests.clear()
    assert local_model("hf://owner/mine") == folder
    with pytest.raises(InputError, match="^hf://owner/other: is not in the hub's cache, and HF_HUB_OFFLINE is set"):
        local_model("hf://owner/other")
    assert not hub.requests


@pytest.mark.parametrize(
    ("status", "kind", "body", "problem"),
    [
        (401, "application/json", b'{"error": "Invalid username or password."}', r"refuses access \(HTTP status 401\)"),
        (403, "application/json", b'{"error": "gated"}', r"refuses access \(HTTP status 403\)"),
        (404, "application/json", b'{"error": "not found"}', r"no such repository or revision \(HTTP status 404\)"),
        (500, "text/plain", b"down", "answers with HTTP status 500"),
        (200, "text/html", b"<html>log in to the network first</html>", "no answer of a hub"),
        (200, "application/json", b'{"id": "owner/mine"}', "no answer of a hub"),
        (200, "application/json", b"[1]", "no answer of a hub"),
    ],
)
def test_what_a_hub_answers_is_one_line(hub: Hub, status: int, kind: str, body: bytes, problem: str) -> None:
    hub.answer = status, kind, body
    with pytest.raises(InputError, match=f"^hf://owner/mine@v1: .*{problem}"):
        local_model("hf://owner/mine@v1")
    with pytest.raises(InputError, match=f"^hf://datasets/owner/data/x.json: .*{problem}"):
        local_files("hf://datasets/owner/data/x.json")


CACHE = "cannot write to the hub's cache .Not a directory.: make room"
WANTED = "not an address of a model: write hf://OWNER/NAME"
NOT_FILES = r".*write hf://datasets/OWNER/NAME/\*\*/\*\.parquet"
ADDRESSES = [
    (local_model, "hf://owner/mine", CACHE),
    (local_model, "hf://own--er/mine", "the hub has no such names"),
    *((local_model, f"hf://{rest}", WANTED) for rest in ("", "a/b/c", "datasets/owner/data", "owner/mine@", "o/n?x")),
    (local_model, Path("hf://a/b/c"), WANTED),
    (local_files, "hf://datasets/owner/data/data**", ""),
    (local_files, "hf://owner/data/x.json", NOT_FILES),
    (local_files, "hf://datasets/owner/data", NOT_FILES),
]


@pytest.mark.parametrize(("find", "address", "said"), ADDRESSES)
def test_an_address_or_a_cache_that_cannot_be_is_one_line(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Any, address: str | Path, said: str
) -> None:
    hub.publish("owner/mine", FILES)
    (tmp_path / "file").write_text("")
    use(hub.endpoint, tmp_path / "file" / "cache", monkeypatch)
    with pytest.raises(InputError, match=f"^hf://.*: {said}"):
        find(address)


def test_no_hub_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:  # its port is taken, and nothing listens there
        bound.bind(("127.0.0.1", 0))
        use(f"http://127.0.0.1:{bound.getsockname()[1]}", tmp_path / "cache", monkeypatch)
        with pytest.raises(InputError, match="^hf://owner/mine: no answer of a hub .*refused.*check the network"):
            local_model("hf://owner/mine")


def test_files_of_a_data_set_are_chosen_by_a_pattern(hub: Hub) -> None:
    files = {"top.parquet": b"1", "data/a.parquet": b"2", "data/b.jsonl": b"3", "load.py": b"raise SystemExit"}
    hub.publish("owner/data", files, "datasets")
    chosen = {
        "/**/*.parquet": ["data/a.parquet", "top.parquet"],
        "@v1/data/*": ["data/a.parquet", "data/b.jsonl"],
        "/*.parquet": ["top.parquet"],
    }
    for pattern, names in chosen.items():
        found = local_files(f"hf://datasets/owner/data{pattern}")
        assert [Path(file).read_bytes() for file in found] == [files[name] for name in names]
        assert [Path(file).name for file in found] == [Path(name).name for name in names]
    (file,) = local_files("hf://datasets/owner/data/top.parquet")
    assert dataset_of(file) == "owner/data"
    assert not any("load.py" in request for request in hub.requests)
    with pytest.raises(InputError, match=r"no file matches \*\.csv"):
        local_files("hf://datasets/owner/data/*.csv")


def test_a_run_goes_on_from_its_commit_only_where_no_other_one_is_named() -> None:
    saved = f"hf://owner/mine@{'a' * 40}"
    assert all(continues(saved, address) for address in ("hf://owner/mine", "hf://owner/mine@v1"))
    others = (f"hf://owner/mine@{'b' * 40}", "hf://owner/other", "runs/seed", Path("runs/seed"))
    assert not any(continues(saved, address) for address in others)
    assert not continues("runs/seed", "hf://owner/mine")


def test_a_folder_is_pushed_as_it_is(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    for name in ("README.md", "model.safetensors", "1_Pooling/config.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(FILES[name])
    assert push(folder, "owner/new", private=True) == "hf://owner/new"
    assert hub.repositories["models", "owner/new"] == [files_below(folder)]
    assert "private" in (hub.created[0].get("visibility"), hub.created[0].get("private") and "private")  # older, newer
    hub.answer = 401, "application/json", b'{"error": "Invalid"}'
    with pytest.raises(InputError, match="^hf://owner/new: the hub refuses access"):
        push(folder, "owner/new", private=True)
