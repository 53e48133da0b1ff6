"""Which pairs are made of a document."""

from deepsiam.data_prep.sources import pairing
from deepsiam.data_prep.sources.document import Document, Dropped
from deepsiam.data_prep.sources.pairing import neighbours, pairs_of, titled

LEAD = "The fox is a small animal that jumps over the dog."
MORE = "It does so quickly, as far as anybody in the garden has seen."


def article(*segments: str, headings: tuple[int, ...] = (), title: str = "Fox") -> Document:
    return Document("wikipedia/7", segments, headings, title=title, unknown=("{{x}}",), guessed="cp1252")


def test_the_title_has_the_lead_and_a_heading_its_section() -> None:
    document = article(LEAD, MORE, "Habitat", "Forests", MORE, LEAD, headings=(2, 3))
    assert list(titled(document)) == [("Fox", f"{LEAD} {MORE}"), ("Fox: Forests", f"{MORE} {LEAD}")]
    assert list(titled(article(LEAD, title=""))) == []


def test_a_section_ends_at_a_list_or_at_a_heading_without_markup() -> None:
    for short in ("History.", "Red fox", "A fox of the north, which is white in winter and brown in summer"):
        assert list(titled(article(LEAD, short, MORE))) == [("Fox", LEAD)]
    assert list(titled(article("Red fox", LEAD))) == [("Fox", "")]
    chinese = "狐狸是一种小型动物，" * 5 + "它跳过了狗。"
    assert list(titled(article(chinese))) == [("Fox", chinese)]


def test_a_section_is_cut_between_paragraphs() -> None:
    long = f"{'The fox jumps. ' * 110}It ends."
    ((_, text),) = titled(article(LEAD, long))
    assert text == LEAD
    assert list(titled(article(long, LEAD))) == [("Fox", long)]


def test_neighbours_are_of_one_section_and_each_passage_is_in_one_pair() -> None:
    passages = [f"{number} {'word ' * 120}".strip() for number in range(6)]
    book = Document("bookcorpus/a", (*passages[:3], "CHAPTER II", *passages[3:5], LEAD), (3,))
    assert list(neighbours(book)) == [(passages[0], passages[1]), (passages[3], passages[4])]


def test_paragraphs_are_joined_until_they_are_a_passage() -> None:
    half = "word " * (pairing.PASSAGE // 8)
    book = Document("bookcorpus/a", (half.strip(),) * 3)
    ((query, text),) = neighbours(book)
    assert len(text) < pairing.PASSAGE <= len(query)


def test_pairs_are_numbered_and_what_is_counted_is_counted_once() -> None:
    first, short, second = pairs_of(article(LEAD), [("Fox", LEAD), ("Fox", "Red."), ("Dog", MORE)])
    assert first == Document("wikipedia/7/1", ("Fox", LEAD), group="wikipedia/7", guessed="cp1252", unknown=("{{x}}",))
    assert short == Dropped("no text or short")
    assert second == Document("wikipedia/7/3", ("Dog", MORE), group="wikipedia/7")


def test_a_document_without_pairs_is_left_out_with_its_counts() -> None:
    assert list(pairs_of(article(LEAD), [])) == [Dropped("no pair", ("{{x}}",))]
