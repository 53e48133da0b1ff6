from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import sha256_of
from deepsiam.data_prep.shards.manifest import NAME, Manifest
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.forge import edit


@pytest.fixture
def written(small: Tokenizer, tmp_path: Path) -> Path:
    with ShardWriter(tmp_path, small, 4, 2, {"options": {"a": 1}}) as writer:
        for number in range(9):
            writer.add(str(number), [[1, 2, 3]])
    return tmp_path


def test_a_manifest_knows_its_shards_and_its_own_hash(written: Path, small: Tokenizer) -> None:
    manifest = Manifest.load(written)
    assert manifest.sha256 == sha256_of(written / NAME)
    assert manifest.source == {"options": {"a": 1}}
    assert manifest.tokenizer == {
        "fingerprint": small.fingerprint,
        "vocab_size": small.vocab_size,
        "pad": 0,
        "unk": 1,
        "cls": 2,
        "sep": 3,
        "mask": 4,
    }
    assert (manifest.total("documents"), manifest.total("tokens"), manifest.total("chunks")) == (9, 27, 5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: r.update(format=1), "format version 1, this code reads 2"),
        (lambda r: r.pop("shards"), "lacks tokenizer, source or shards"),
        (lambda r: r["shards"].clear(), "holds no documents"),
        (lambda r: r["shards"].append(r["shards"][0]), "lists a shard twice"),
        (lambda r: r["shards"][0].pop("sha256"), "lacks or adds a key"),
        (lambda r: r["shards"][0].update(tokens=10**12), "claims more than its .* bytes can hold"),
        (lambda r: r["shards"][0].update(segments=10**12), "claims more than its .* bytes can hold"),
        (lambda r: r["tokenizer"].update(fingerprint="0" * 64), "not the tokenizer the shards were written"),
        (lambda r: r["tokenizer"].update(vocab_size=10**6), "not the tokenizer the shards were written with"),
    ],
)
def test_a_manifest_that_was_tampered_with_is_refused(
    written: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    """More such manifests are in test_hostile.py."""
    edit(written, change)
    with pytest.raises(InputError, match=reason):
        Manifest.load(written)


def test_a_manifest_with_another_tokenizer_is_refused(written: Path, large: Tokenizer) -> None:
    (written / "tokenizer.json").write_bytes(large.path.read_bytes())
    with pytest.raises(InputError, match=f"not the tokenizer .*fingerprint {large.fingerprint[:12]}"):
        Manifest.load(written)
    (written / "tokenizer.json").unlink()
    with pytest.raises(InputError, match="tokenizer.json: cannot read"):
        Manifest.load(written)


def test_a_damaged_or_missing_manifest_is_refused(written: Path) -> None:
    (written / NAME).write_text("[]")
    with pytest.raises(InputError, match="format version None"):
        Manifest.load(written)
    (written / NAME).unlink()
    with pytest.raises(InputError, match=r"manifest.json: no such file; is this a finished folder of shards\?"):
        Manifest.load(written)


def test_for_the_parent_folder_the_message_names_the_right_one(small: Tokenizer, tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "shards", small) as writer:
        writer.add("x", [[1]])
    with pytest.raises(InputError, match=f"no such file; name {tmp_path / 'shards'}"):
        Manifest.load(tmp_path)
