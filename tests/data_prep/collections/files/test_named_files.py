"""Each file is recognised by its name, in a folder or in a list of files."""

from pathlib import Path

import pytest

from data_prep.collections.files.named_files import NamedFile, named_files
from data_prep.common.errors import InputError

KINDS = {"qrels.*": r".*qrels.*\.(tsv|txt)", "queries.*": r".*queries.*\.(tsv|txt)", "top1000.*": r".*top1000.*"}


def find(*inputs: Path) -> dict[str, list[NamedFile]]:
    return named_files(inputs, KINDS, "qrels|pass|docs?")


def test_a_folder_is_searched_and_other_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "queries.old.tsv").mkdir()
    for name in ("qrels.dev.tsv", "Queries.dev.tsv.gz", "README", "queries.tar.gz", "._qrels.dev.tsv"):
        (tmp_path / name).touch()
    assert find(tmp_path) == {
        "qrels.*": [NamedFile(tmp_path / "qrels.dev.tsv", "dev")],
        "queries.*": [NamedFile(tmp_path / "Queries.dev.tsv.gz", "queries.dev")],
        "top1000.*": [],
    }


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("qrels.dev.small.tsv", "dev.small"),
        ("qrels.tsv", "train"),
        ("2019qrels-pass.txt.zst", "2019"),
        ("doctrain-qrels.tsv", "train"),
        ("top1000.dev", "top1000.dev"),
        ("top1000_eval.tsv.gz", "top1000.eval"),
    ],
)
def test_a_name_tells_the_split_unless_it_is_given(tmp_path: Path, name: str, split: str) -> None:
    (tmp_path / name).touch()
    (found,) = (file for files in find(tmp_path / name).values() for file in files)
    assert found == NamedFile(tmp_path / name, split)
    (found,) = (file for files in find(Path(f"mine={tmp_path / name}")).values() for file in files)
    assert found == NamedFile(tmp_path / name, "mine")


def test_what_is_missing_or_of_no_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: no such file"):
        find(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"no file in it is named as one of these: qrels\.\*, queries"):
        find(tmp_path)
    (tmp_path / "pairs.tsv").touch()
    with pytest.raises(InputError, match=r"pairs.tsv: it is not named as one of these"):
        find(tmp_path / "pairs.tsv")
