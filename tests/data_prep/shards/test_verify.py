from pathlib import Path

import numpy as np

from deepsiam.data_prep.shards import verify
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.forge import npz, pack, unpack, vouch_again
from tests.data_prep.shards.written import DOCUMENTS, flip, write


def test_verify_lists_every_problem(small: Tokenizer, tmp_path: Path) -> None:
    manifest = write(tmp_path, small, DOCUMENTS)
    flip(tmp_path / manifest.shards[0].name)
    (tmp_path / manifest.shards[2].name).unlink()
    pack(tmp_path / "shard-000099.tar", [])
    problems = dict(verify.verify(tmp_path))
    assert set(problems) == {manifest.shards[0].name, manifest.shards[2].name, "shard-000099.tar"}
    assert "not in the manifest" in problems["shard-000099.tar"]


def test_verify_notices_wrong_counts_and_a_json_of_other_documents(small: Tokenizer, tmp_path: Path) -> None:
    manifest = write(tmp_path, small, DOCUMENTS)
    path = tmp_path / manifest.shards[0].name
    members = unpack(path)
    one = b'{"documents": ["one"]}'
    pack(path, [members[0], (members[1][0], one), *members[2:]])
    vouch_again(tmp_path)
    assert "chunk 0: its .json has no list 'documents' of " in verify.verify(tmp_path)[0][1]
    fewer = npz(ids=np.array([1], np.uint16), segments=np.array([1], np.uint32), documents=np.array([1], np.uint32))
    pack(path, [(members[0][0], fewer), (members[1][0], one), *members[2:]])
    vouch_again(tmp_path)
    problems = [problem for _, problem in verify.verify(tmp_path)]
    for problem, field in zip(problems, ("documents", "segments", "tokens"), strict=True):
        assert f"{field}, the manifest lists {getattr(manifest.shards[0], field)}" in problem
