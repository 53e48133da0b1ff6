"""Each file is recognised by its name, in a folder or in a list of files."""

from pathlib import Path

import pytest

from deepsiam.data_prep.collections.files.named_files import NamedFile, by_split, joined_by_split, named_files
from deepsiam.data_prep.collections.formats.msmarco import UNSAID
from deepsiam.data_prep.common.errors import InputError

KINDS = {"qrels.*": r".*qrels.*\.(tsv|txt)", "queries.*": r".*queries.*\.(tsv|txt)", "top1000.*": r".*top1000.*"}


def find(*inputs: Path) -> dict[str, list[NamedFile]]:
    return named_files(inputs, KINDS, UNSAID)


def test_a_folder_is_searched_and_other_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "queries.old.tsv").mkdir()
    for name in ("qrels.dev.tsv", "Queries.dev.tsv.gz", "README", "queries.tar.gz", "._qrels.dev.tsv"):
        (tmp_path / name).touch()
    assert find(tmp_path) == {
        "qrels.*": [NamedFile(tmp_path / "qrels.dev.tsv", "dev")],
        "queries.*": [NamedFile(tmp_path / "Queries.dev.tsv.gz", "Queries.dev")],
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
        ("top1000_eval.tsv.gz", "top1000_eval"),
        ("qrels.doctors.tsv", "doctors"),
        ("qrels.docker-2.Passing_1.tsv", "docker-2.Passing_1"),
        ("msmarco_v2_doc_dev-1_qrels.tsv", "v2.dev-1"),
        ("qrels.d4_j0.5-5.txt", "d4_j0.5-5"),
        ("qrels.dev (1).tsv", "dev--1-"),
    ],
)
def test_a_name_tells_the_split_unless_it_is_given(tmp_path: Path, name: str, split: str) -> None:
    (tmp_path / name).touch()
    (found,) = (file for files in find(tmp_path / name).values() for file in files)
    assert found == NamedFile(tmp_path / name, split)
    (found,) = (file for files in find(Path(f"mine={tmp_path / name}")).values() for file in files)
    assert found == NamedFile(tmp_path / name, "mine", is_given=True)


def test_two_files_of_one_name_are_no_split(tmp_path: Path) -> None:
    names = ["qrels.dev.tsv", "docdev-qrels.tsv", "qrels.dev_.tsv"]
    one, other, third = (tmp_path / name for name in names)
    for path in (one, other, third):
        path.touch()
    with pytest.raises(InputError, match=f"^{other}: by its name it is the split dev, as {one} is: leave"):
        joined_by_split(find(one, other)["qrels.*"])
    assert joined_by_split(find(one, Path(f"dev={other}"), third)["qrels.*"]) == {"dev": [one, other], "dev_": [third]}


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["test", "test.full", "test-hard", "test_2"], ["test", "test-hard", "test.full", "test_2"]),
        (["dev-00000-of-00002", "dev-00001-of-00002-9f", "dev.small-0-of-1"], ["dev", "dev.small"]),
        (["test-2019", "test-1", "a-of-b", "-0-of-1"], ["-0-of-1", "a-of-b", "test-1", "test-2019"]),
        (["dev-00001-of-00002"], "dev-00001-of-00002.x: .* has 1 files of dev, not each of its 2 shards once"),
        (["dev", "dev-00000-of-00001"], "dev.x: .* has 2 files of dev, not each of its 1 shards once"),
        (["dev-0-of-1", "dev-0-of-2", "dev-1-of-2"], "dev-1-of-2.x: .* has 3 files of dev, not each of its 2"),
        (["dev-0-of-1-a1", "dev-0-of-1-b2"], "dev-0-of-1-b2.x: .* has 2 files of dev"),
    ],
)
def test_a_split_is_the_name_without_a_shards_number(tmp_path: Path, names: list[str], splits: list[str] | str) -> None:
    for name in [*(f"{name}.x" for name in names), ".dev.x", "dev.y", "dev.x.bak"]:
        (tmp_path / name).touch()
    if isinstance(splits, str):
        with pytest.raises(InputError, match=splits):
            by_split(tmp_path, ".x")
        return
    assert sorted(by_split(tmp_path, ".x")) == splits
    (tmp_path / f"{names[0]}.x").rename(tmp_path / f"{names[0]}.x.gz")
    assert sorted(by_split(tmp_path, ".x")) == splits


def test_what_is_missing_or_of_no_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: no such file"):
        find(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"no file in it is named as one of these: qrels\.\*, queries"):
        find(tmp_path)
    (tmp_path / "pairs.tsv").touch()
    with pytest.raises(InputError, match=r"pairs.tsv: it is not named as one of these"):
        find(tmp_path / "pairs.tsv")
