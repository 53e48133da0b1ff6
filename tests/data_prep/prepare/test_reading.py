import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.prepare import batches, reading, spool
from deepsiam.data_prep.prepare.batches import Part
from deepsiam.data_prep.prepare.reading import Range, Reading
from deepsiam.data_prep.prepare.stages import StageOptions
from deepsiam.data_prep.sources.document import Document
from deepsiam.data_prep.sources.registry import SOURCES
from deepsiam.data_prep.text.normalize import fold
from tests.data_prep import raw

CHOICES = {"text": "text", "id": None}
ANY_UTTERANCE = SOURCES["reddit"].choices(language="any")
RECIPE = Reading("jsonl", CHOICES, Part(), StageOptions())
ALL = (0, spool.KEYS)


def read(folder: Path, recipe: Reading, *files: Path) -> Path:
    """Read files, which must make one batch, and return their spool file."""
    source = SOURCES[recipe.source]
    named = list(source.find(files))
    (batch,) = batches.batches(source, named, recipe.choices, recipe.part, recipe.identity())
    (folder / "read").mkdir(exist_ok=True)
    assert reading.batch_reader(recipe, folder / "read")(batch) == batch.name
    return folder / "read" / batch.name


def gathered(*files: Path) -> list[tuple[int, Document]]:
    return [(key, reading.document_of(record)) for key, record in spool.gather(files, *ALL)]


def test_documents_are_spooled_by_the_hash_of_their_folded_text(tmp_path: Path) -> None:
    texts = raw.texts(20)
    found = gathered(read(tmp_path, RECIPE, raw.write_jsonl(tmp_path / "a.jsonl", texts)))
    assert [key for key, _ in found] == sorted(key for key, _ in found)
    for key, document in found:
        text = texts[int(document.id.rpartition("/")[2]) - 1]
        assert " ".join(document.segments) == text
        assert key == spool.key_of(fold(text))


def test_a_batch_counts_its_records_by_stage(tmp_path: Path) -> None:
    records: list[Any] = [*raw.texts(5), {"no": 1}, "", "Too short.", *[{"text": 3}] * 9]
    recipe = replace(RECIPE, stages=StageOptions(min_words=3))
    about = spool.about(read(tmp_path, recipe, raw.write_jsonl(tmp_path / "a.jsonl", records)))
    assert (about["bad"], len(about["named"])) == (10, reading.NAMED)
    assert about["named"][0] == f"{tmp_path}/a.jsonl: line 6: field 'text' is missing or not a string"
    assert [(one["name"], one["in"], one["out"], one["dropped"]) for one in about["stages"]] == [
        ("read", 17, 6, {"bad": 10, "empty": 1}),
        ("normalise", 6, 6, {}),
        ("sentences", 6, 6, {}),
        ("length", 6, 5, {"too_short": 1}),
        ("cut", 5, 5, {}),
    ]
    assert about["records"] == 5


@pytest.mark.usefixtures("datasketch")
def test_only_documents_of_enough_new_words_have_bands(tmp_path: Path) -> None:
    texts = ["one two three " * 7, "one two three " * 6]
    recipe = replace(RECIPE, near_duplicates=0.8)
    path = read(tmp_path, recipe, raw.write_jsonl(tmp_path / "a.jsonl", texts))
    bands, keys = spool.bands([path], *ALL)
    assert spool.about(path)["bands"] == len(set(bands.tolist())) > 5
    assert set(keys.tolist()) == {spool.key_of(fold(texts[0]))}
    alone = read(tmp_path, recipe, raw.write_jsonl(tmp_path / "b.jsonl", texts[:1]))
    assert spool.bands([alone], *ALL)[0].tolist() == bands.tolist()  # independent of other documents in the batch


def test_the_identity_of_a_reading_has_every_option() -> None:
    others = [
        RECIPE,
        replace(RECIPE, choices={**CHOICES, "id": "id"}),
        replace(RECIPE, part=Part(1, 2)),
        replace(RECIPE, stages=StageOptions(min_words=2)),
        replace(RECIPE, near_duplicates=0.8),
        replace(RECIPE, evaluation_sha256="a"),
    ]
    assert len({one.identity() for one in others}) == len(others)
    assert replace(RECIPE, evaluation="some/where").identity() == RECIPE.identity()


def reddit(folder: Path, recipe: Reading, threads: list[list[str]]) -> list[Path]:
    dumps = raw.write_reddit(folder / "dumps", threads)
    return [read(folder, recipe, dumps / name) for name in ("RS_2020-01", "RC_2020-01", "RC_2020-02")]


def test_fragments_in_any_files_and_ranges_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Reading("reddit", ANY_UTTERANCE, Part(), StageOptions())
    threads = [raw.texts(4, number, 1) for number in range(20)]
    fragments = reddit(tmp_path, recipe, threads)
    assert sum(spool.about(path)["records"] for path in fragments) == 80
    ends = spool.edges(3)
    join = reading.range_joiner(recipe, tmp_path)
    joined_files = [tmp_path / join(Range(tuple(fragments), *ends[number : number + 2])) for number in range(3)]
    assert {document.id: list(document.segments) for _, document in gathered(*joined_files)} == {
        f"reddit/t3_p{number}": thread for number, thread in enumerate(threads)
    }
    monkeypatch.setattr(reading, "LARGEST_JOIN", 10)
    about = spool.about(tmp_path / join(Range(tuple(fragments), *ALL)))
    assert (about["records"], about["stages"][0]["dropped"]) == (0, {"too_large": 80})


def test_a_whole_thread_belongs_to_one_part(tmp_path: Path) -> None:
    dumps = raw.write_reddit(tmp_path / "dumps", [raw.texts(4, number, 1) for number in range(20)])
    files = list(SOURCES["reddit"].find([dumps]))
    every = list(batches.batches(SOURCES["reddit"], files, ANY_UTTERANCE, Part(), ""))  # each part reads every batch
    found = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        recipe = Reading("reddit", ANY_UTTERANCE, Part(number, 2), StageOptions())
        fragments = tuple(map(folder.joinpath, map(reading.batch_reader(recipe, folder), every)))
        joined = reading.range_joiner(recipe, folder)(Range(fragments, *ALL))
        found.append({document.id: len(document.segments) for _, document in gathered(folder / joined)})
    assert not set(found[0]) & set(found[1])
    assert found[0] | found[1] == {f"reddit/t3_p{number}": 4 for number in range(20)}
    assert min(map(len, found)) > 3


SEGMENT = st.text("aä\U0001f600", max_size=60)


@given(st.lists(SEGMENT, min_size=1, max_size=12), st.data())
def test_a_long_document_is_cut_into_parts_of_one_group_with_the_same_text(
    segments: list[str], data: st.DataObject
) -> None:
    headings = tuple(sorted(data.draw(st.sets(st.integers(0, len(segments) - 1)))))
    document = Document(
        "d", tuple(segments), headings, data.draw(st.integers(0, 1)), data.draw(st.sampled_from(["", "t"]))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "LONGEST", 64)
        pieces = list(reading.cut(document))
    assert "".join("".join(piece.segments) for piece in pieces) == "".join(segments)
    assert [piece.id for piece in pieces] == ["d", *(f"d#{number}" for number in range(2, len(pieces) + 1))]
    assert all(sum(len(segment.encode()) for segment in piece.segments) <= 64 for piece in pieces)
    assert all(index < len(piece.segments) for piece in pieces for index in piece.headings)
    assert all(piece.context <= len(piece.segments) for piece in pieces)
    assert {piece.group or piece.id for piece in pieces} == {document.group or "d"}
    if len(pieces) == 1 and all(len(segment) <= 16 for segment in segments):
        assert replace(pieces[0], group=document.group) == document
    elif not any(len(segment) > 16 for segment in segments):
        assert [segment for piece in pieces for segment in piece.segments] == segments
        marked = [piece.segments[index] for piece in pieces for index in piece.headings]
        assert marked == [segments[index] for index in headings]


def test_a_record_gives_the_document_back() -> None:
    document = Document("a", ("One.", "Two."), (1,), 1, "book", "T")
    assert reading.document_of(json.dumps(["a", ["One.", "Two."], [1], 1, "book", "T"]).encode()) == document
