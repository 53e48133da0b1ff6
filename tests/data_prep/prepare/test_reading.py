"""From pieces to spooled documents: fragments that join, cuts, and the stages that each document passes."""

import json
import pickle
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import batches, ngrams, reading, spool, stages
from deepsiam.data_prep.prepare.batches import Part
from deepsiam.data_prep.prepare.reading import Reading
from deepsiam.data_prep.prepare.stages import StageOptions, build
from deepsiam.data_prep.sources.document import Document, Dropped
from deepsiam.data_prep.sources.registry import SOURCES
from deepsiam.data_prep.text import sentences
from deepsiam.data_prep.text.normalize import fold, one_line
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


def test_a_batch_counts_its_records_by_stage(tmp_path: Path) -> None:
    records: list[Any] = [*raw.texts(5), {"no": 1}, "", "Too short.", *[{"text": 3}] * 9]
    recipe = replace(RECIPE, stages=StageOptions(min_words=3))
    about = spool.about(read(tmp_path, recipe, raw.write_jsonl(tmp_path / "a.jsonl", records)))
    assert (about["bad"], len(about["named"])) == (10, reading.LISTED_RECORDS)
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
    found = spool.bands([path], *ALL)
    bands, keys = found["band"], found["key"]
    assert spool.about(path)["bands"] == len(set(bands.tolist())) > 5
    assert set(keys.tolist()) == {spool.key_of(fold(texts[0]))}
    alone = read(tmp_path, recipe, raw.write_jsonl(tmp_path / "b.jsonl", texts[:1]))
    assert spool.bands([alone], *ALL)["band"].tolist() == bands.tolist()  # independent of other documents in the batch


def test_the_identity_of_a_reading_has_what_it_compares_with_but_not_its_path() -> None:
    assert replace(RECIPE, evaluation="some/where").identity() == RECIPE.identity()
    assert replace(RECIPE, evaluation_sha256="a").identity() != RECIPE.identity()


def test_fragments_in_any_files_and_ranges_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Reading("reddit", ANY_UTTERANCE, Part(), StageOptions())
    threads = [raw.texts(4, number, 1) for number in range(20)]
    dumps = raw.write_reddit(tmp_path / "dumps", threads)
    fragments = [read(tmp_path, recipe, dumps / name) for name in ("RS_2020-01", "RC_2020-01", "RC_2020-02")]
    assert sum(spool.about(path)["records"] for path in fragments) == 80
    join = reading.range_joiner(recipe, fragments, tmp_path)
    joined_files = [tmp_path / join(bounds) for bounds in spool.ranges(3, 1)]
    assert {document.id: list(document.segments) for _, document in gathered(*joined_files)} == {
        f"reddit/t3_p{number}": thread for number, thread in enumerate(threads)
    }
    monkeypatch.setattr(reading, "LARGEST_JOIN", 10)
    about = spool.about(tmp_path / join(ALL))
    assert (about["records"], about["stages"][0]["dropped"]) == (0, {"too_large": 80})


SEGMENT = st.text("aä\U0001f600", max_size=60)


@given(st.lists(SEGMENT, min_size=1, max_size=12), st.data())
def test_a_long_document_is_cut_into_parts_of_one_group(segments: list[str], data: st.DataObject) -> None:
    headings = tuple(sorted(data.draw(st.sets(st.integers(0, len(segments) - 1)))))
    document = Document(
        "d", tuple(segments), headings, data.draw(st.integers(0, 1)), data.draw(st.sampled_from(["", "t"]))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "MAX_BYTES", 64)
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


EVERYTHING = StageOptions(
    repair=True, min_words=1, max_words=9999, language="en", quality=True, decontaminate=("beir",), ngram=3
)
ENGLISH = "The quick brown fox jumps over the lazy dog, and it does not look back at him."
TABLE = np.unique(ngrams.hashes("a secret of the evaluation", 3))

rough_texts = st.text(st.characters() | st.sampled_from(" \n\t.\x00\u200b\ud800éÃ©â€™"), max_size=20)


@pytest.fixture
def ftfy() -> None:
    pytest.importorskip("ftfy", reason="needs the packages of the extra `dumps`")


def run(document: Document, options: StageOptions, paragraphs: bool = True) -> Document | Dropped:
    """Apply all stages in order, as the pipeline does."""
    for stage in build(options, paragraphs, TABLE if options.decontaminate else None):
        changed = stage.apply(document)
        if isinstance(changed, Dropped):
            return changed
        document = changed
    return document


def test_sentences_are_split_and_headings_are_not() -> None:
    document = Document("a", ("St. Mary. A church", "It is old. It is high.", "", "See. It", "End."), headings=(0, 3))
    done = run(document, StageOptions())
    sentences = ("St. Mary. A church", "It is old.", "It is high.", "See. It", "End.")
    assert done == Document("a", sentences, headings=(0, 3))
    assert run(document, StageOptions(sentences=False)) == run(document, StageOptions(), paragraphs=False)


def test_personal_data_are_replaced_before_sentences_are_split() -> None:
    pytest.importorskip("phonenumbers", reason="needs the packages of the extra `dumps`")
    document = Document("a", ("Call 415-555-2671. Or write to me@example.org. Now.",))
    assert run(document, StageOptions(scrub=True)) == Document(
        "a", ("Call [phone number].", "Or write to [e-mail address].", "Now.")
    )
    assert run(document, StageOptions(sentences=False)) == document


def test_the_context_of_a_dialogue_is_followed() -> None:
    document = Document("a", ("Hi. You?", "\u200b", "Fine.", " ", "Good. Bye."), context=3)
    assert run(document, StageOptions(), paragraphs=False) == Document(
        "a", ("Hi. You?", "Fine.", "Good. Bye."), context=2
    )
    assert run(Document("a", ("Hi.", " "), context=1), StageOptions(), paragraphs=False) == Dropped("empty")


@pytest.mark.parametrize("segments", [(), ("",), (" ", "\u200b\n")])
def test_nothing_left_is_empty(segments: tuple[str, ...]) -> None:
    assert run(Document("a", segments, tuple(range(len(segments)))), StageOptions()) == Dropped("empty")


@given(st.lists(st.tuples(rough_texts, st.booleans()), max_size=6), st.booleans())
def test_headings_stay_what_they_were(marked: list[tuple[str, bool]], split: bool) -> None:
    headings = tuple(i for i, (_, heading) in enumerate(marked) if heading)
    done = run(Document("a", tuple(text for text, _ in marked), headings), StageOptions(sentences=split))
    expected: list[tuple[str, bool]] = []
    for text, heading in marked:
        line = one_line(text)
        parts = sentences.sentences(line) if split and not heading else [line]
        expected += [(part, heading) for part in parts if part]
    if not expected:
        assert done == Dropped("empty")
    else:
        assert isinstance(done, Document)
        assert list(zip(done.segments, (i in done.headings for i in range(len(expected))), strict=True)) == expected


@pytest.mark.usefixtures("ftfy")
def test_mojibake_is_repaired_and_nothing_else_is() -> None:
    document = Document("a", ("“schÃ¶n” & &amp; ﬁne", "itâ€™s"), headings=(1,))
    assert run(document, StageOptions(repair=True)) == Document("a", ("“schön” & &amp; ﬁne", "it’s"), headings=(1,))
    assert run(document, StageOptions()) == document


SAID = "“It’s à la carte” she said — and Å was nowhere, so that all of the guests who came for it went home."


@pytest.mark.usefixtures("ftfy")
@pytest.mark.parametrize("codec", ["latin-1", "sloppy-windows-1252"])
@pytest.mark.parametrize("source", ["text", "jsonl", "wikipedia", "reddit", "bookcorpus", "bookcorpus-sentences"])
def test_no_source_loses_what_repair_needs(source: str, codec: str, tmp_path: Path) -> None:
    wrong = SAID.encode().decode(codec)  # ftfy knows the second codec
    path = tmp_path / ("wiki_00" if source == "wikipedia" else "raw.txt")
    if source == "reddit":
        path = raw.write_reddit(tmp_path / "dumps", [["A title that is long enough", wrong]], files=1)
    elif source in ("jsonl", "wikipedia"):
        path.write_text(json.dumps({"id": "1", "text": wrong}) + "\n")
    else:
        path.write_text(wrong)
    read = [one for one in SOURCES[source].documents([path]) if isinstance(one, Document)]
    done = [run(one, StageOptions(repair=True, sentences=False)) for one in read]
    assert any(isinstance(one, Document) and SAID in one.segments for one in done), done


@pytest.mark.usefixtures("ftfy")
def test_repair_works_on_markup(tmp_path: Path) -> None:
    page = f"'''{SAID.encode().decode('latin-1')}'''"
    (read,) = SOURCES["wikipedia"].documents([raw.write_wikipedia(tmp_path / "a-pages-articles.xml", [page])])
    assert isinstance(read, Document)
    assert run(read, StageOptions(repair=True, sentences=False)) == replace(read, segments=(SAID,))


@pytest.mark.usefixtures("ftfy")
@given(st.lists(rough_texts, max_size=4))
def test_whatever_the_text_every_stage_takes_it(texts: list[str]) -> None:
    done = run(Document("a", tuple(texts)), EVERYTHING)
    assert isinstance(done, Dropped) or all(segment == one_line(segment) != "" for segment in done.segments)


GERMAN = "Der schnelle braune Fuchs springt über den faulen Hund."
QUALITY = StageOptions(quality=True)
CLEAN = StageOptions(decontaminate=("beir",), ngram=3)


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("one two, three", StageOptions(min_words=3, max_words=3), ""),
        ("one two", StageOptions(min_words=3), "too_short"),
        ("one two. three four", StageOptions(max_words=3), "too_long"),
        (ENGLISH, StageOptions(language="en"), ""),
        (GERMAN, StageOptions(language="de"), ""),
        (GERMAN, StageOptions(language="en"), "other_language"),
        (ENGLISH, StageOptions(language="de"), "other_language"),
        (GERMAN, StageOptions(language="en", language_threshold=1000), ""),
        ("a b c d e f g h i j", QUALITY, "low_quality"),
        ("Donaudampfschifffahrtsgesellschaft Rindfleischetikettierungsgesetz", QUALITY, "low_quality"),
        ("one two three # four five six seven #", QUALITY, "low_quality"),
        ("one two... three four five six… seven", QUALITY, "low_quality"),
        ("one two three 4444 5555 66.6 77/7", QUALITY, "low_quality"),
        ("Read more. Read more. Read more. The end.", QUALITY, "low_quality"),
        ("Read more. Read more. Read more. The end.", StageOptions(), ""),
        (f"{ENGLISH} It has 2 dogs... and a # sign. {ENGLISH}", QUALITY, "low_quality"),
        (f"{ENGLISH} It has 2 dogs… and a # sign. It ran.", QUALITY, ""),
        ("It is secret, of course.", CLEAN, ""),
        ("It is a Secret. Of all things.", CLEAN, "contaminated"),  # across sentences
    ],
)
def test_a_document_is_kept_or_dropped_for_a_reason(text: str, options: StageOptions, reason: str) -> None:
    done = run(Document("a", (text,)), options)
    assert (done.reason if isinstance(done, Dropped) else "") == reason


def test_the_same_stages_stand_in_the_manifest_and_reach_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ftfy", reason="needs the packages of the extra `dumps`")
    built = build(EVERYTHING, True, TABLE)
    names = ["repair", "normalise", "sentences", "length", "language", "quality", "decontaminate"]
    assert [stage.name for stage in built] == names
    parameters = {stage.name: stage.parameters for stage in built}
    assert json.loads(json.dumps(parameters)) == parameters
    assert parameters["length"] == {"min_words": 1, "max_words": 9999}
    assert parameters["decontaminate"] == {"collections": ["beir"], "ngram": 3, "ngrams": 3}
    assert json.loads(json.dumps(asdict(EVERYTHING)))["decontaminate"] == ["beir"]
    document = Document("a", (ENGLISH,))
    for stage in pickle.loads(pickle.dumps(built)):
        assert stage.apply(document) == document
    assert [stage.name for stage in build(StageOptions(), True, None)] == ["normalise", "sentences"]
    assert [stage.name for stage in build(StageOptions(), False, None)] == ["normalise"]


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({"max_words": 0}, {"ngram": 0}):
        with pytest.raises(InputError, match=" is below "):
            StageOptions(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n-grams"):
        build(CLEAN, True, None)
    monkeypatch.setitem(sys.modules, "ftfy", None)
    with pytest.raises(InputError, match=r"run: pip install 'deepsiam\[dumps\]'"):
        stages.build(StageOptions(repair=True), True, None)
