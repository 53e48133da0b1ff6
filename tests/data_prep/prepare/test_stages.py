import json
import pickle
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import ngrams, stages
from deepsiam.data_prep.prepare.stages import StageOptions, build
from deepsiam.data_prep.sources.document import Document, Dropped
from deepsiam.data_prep.sources.registry import SOURCES
from deepsiam.data_prep.text import sentences
from deepsiam.data_prep.text.normalize import one_line
from tests.data_prep import raw

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


def outcome(text: str, options: StageOptions) -> str:
    """Return the reason for dropping a document of one segment; "" if it is kept."""
    done = run(Document("a", (text,)), options)
    return done.reason if isinstance(done, Dropped) else ""


def test_segments_become_lines_and_empty_ones_are_dropped() -> None:
    document = Document(
        "a", ("Title\x00", "\u200b \n", "One.\r\n Two\u00a0 e\u0301.", " ", "Three"), headings=(0, 3, 4)
    )
    done = run(document, StageOptions(sentences=False))
    assert done == Document("a", ("Title", "One. Two é.", "Three"), headings=(0, 2))


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


def test_lengths_are_counted_in_words() -> None:
    assert outcome("one two, three", StageOptions(min_words=3, max_words=3)) == ""
    assert outcome("one two", StageOptions(min_words=3)) == "too_short"
    assert outcome("one two. three four", StageOptions(max_words=3)) == "too_long"


def test_other_languages_are_dropped() -> None:
    german = "Der schnelle braune Fuchs springt über den faulen Hund."
    assert outcome(ENGLISH, StageOptions(language="en")) == outcome(german, StageOptions(language="de")) == ""
    assert (
        outcome(german, StageOptions(language="en"))
        == outcome(ENGLISH, StageOptions(language="de"))
        == "other_language"
    )
    assert outcome(german, StageOptions(language="en", language_threshold=1000)) == ""


@pytest.mark.parametrize(
    "text",
    [
        "a b c d e f g h i j",
        "Donaudampfschifffahrtsgesellschaft Rindfleischetikettierungsgesetz",
        "one two three # four five six seven #",
        "one two... three four five six… seven",
        "one two three 4444 5555 66.6 77/7",
        "Read more. Read more. Read more. The end.",
    ],
)
def test_what_does_not_read_as_text_is_of_low_quality(text: str) -> None:
    assert outcome(text, StageOptions(quality=True)) == "low_quality"
    assert outcome(text, StageOptions()) == ""


def test_text_is_of_good_quality() -> None:
    assert outcome(f"{ENGLISH} It has 2 dogs... and a # sign. {ENGLISH}", StageOptions(quality=True)) == "low_quality"
    assert outcome(f"{ENGLISH} It has 2 dogs… and a # sign. It ran.", StageOptions(quality=True)) == ""


def test_what_shares_words_with_an_evaluation_is_contaminated() -> None:
    options = StageOptions(decontaminate=("beir",), ngram=3)
    assert outcome("It is secret, of course.", options) == ""
    assert outcome("It is a Secret. Of all things.", options) == "contaminated"  # across sentences
    with pytest.raises(ValueError, match="n-grams"):
        build(options, True, None)


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
    for wrong in ({"min_words": 9, "max_words": 8}, {"max_words": 0}, {"ngram": 0}):
        with pytest.raises(InputError, match=" is below "):
            StageOptions(**wrong)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "ftfy", None)
    with pytest.raises(InputError, match=r"run: pip install 'deepsiam\[dumps\]'"):
        stages.build(StageOptions(repair=True), True, None)
