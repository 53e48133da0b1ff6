import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards import verify
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.shards.written import DOCUMENTS, flip, truncate, write


def ids_of(shard: Shard, number: int) -> list[str]:
    return [document.id for document in shard.read(number)]


def test_chunks_are_read_in_any_order_and_by_a_pickled_shard(small: Tokenizer, tmp_path: Path) -> None:
    manifest = write(tmp_path, small, DOCUMENTS, per_shard=9)
    shard = Shard.open(manifest, 0)
    forwards = [ids_of(shard, number) for number in range(len(shard))]
    copied = pickle.loads(pickle.dumps(shard))
    assert [ids_of(copied, number) for number in reversed(range(len(shard)))] == forwards[::-1]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, r"\d+ bytes, the manifest lists \d+"),
        (flip, "its SHA-256 is not the one in the manifest"),
        (Path.unlink, "missing"),
    ],
)
def test_damage_is_refused_naming_the_shard(
    small: Tokenizer, tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    manifest = write(tmp_path, small, DOCUMENTS)
    name = manifest.shards[1].name
    damage(tmp_path / name)
    with pytest.raises(InputError, match=f"{name}: {reason}"):
        Shard.open(manifest, 1)
    Shard.open(manifest, 0)
    assert [shard for shard, _ in verify.verify(tmp_path)] == [name]


def test_a_shard_cut_short_after_it_was_opened_is_noticed(small: Tokenizer, tmp_path: Path) -> None:
    shard = Shard.open(write(tmp_path, small, DOCUMENTS), 0)
    shard.path.write_bytes(shard.path.read_bytes()[:1000])
    with pytest.raises(InputError, match="chunk 1 is cut short"):
        shard.read(1)


def test_a_shard_cut_between_chunks_after_it_was_opened_is_noticed(small: Tokenizer, tmp_path: Path) -> None:
    shard = Shard.open(write(tmp_path, small, DOCUMENTS), 0)
    (start, _), _ = shard.members[1].values()
    shard.path.write_bytes(shard.path.read_bytes()[: start - 512])  # tarfile takes it for the end
    with pytest.raises(InputError, match="1 chunks in order, its headers list 2"):
        list(shard.documents())
    shard.path.write_bytes(b"x" * 5000)
    with pytest.raises(InputError, match="shard-000000.tar: chunk 0: "):
        list(shard.documents())
