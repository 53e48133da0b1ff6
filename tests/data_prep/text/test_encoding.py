"""What needs the packages of the extra `dumps`: encodings and languages are guessed, personal data are replaced."""

import codecs
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.text import encoding as encoding_module
from deepsiam.data_prep.text import guess, language_id
from deepsiam.data_prep.text.encoding import GUESS, decode
from deepsiam.data_prep.text.language_id import ANY_LANGUAGE, SAMPLE, THRESHOLD, odds_against, sampled
from deepsiam.data_prep.text.scrub import EMAIL, IP, PHONE, scrub

for package in ("py3langid", "phonenumbers"):
    pytest.importorskip(package, reason="needs the packages of the extra `dumps`")

ENGLISH = "“Naïve,” she said – in a café.\nAnd that was all.\n"
RUSSIAN = "Все люди рождаются свободными и равными.\nВот и всё.\n"
CHINESE = "人人生而自由，在尊严和权利上一律平等。\n他们赋有理性。\n"


@pytest.mark.parametrize(
    ("text", "encoding", "guessed"),
    [
        ("Plain.", "ascii", ""),
        (ENGLISH, "utf-8", ""),
        (ENGLISH, "utf-8-sig", ""),
        (ENGLISH, "cp1252", "cp1252"),
        ("Naïve, she said, in a café.", "latin-1", "cp1252"),
    ],
)
def test_encodings_are_guessed_or_named(text: str, encoding: str, guessed: str) -> None:
    assert decode(text.encode(encoding), GUESS) == (text, guessed)
    assert decode(text.encode(encoding), encoding_module.known(encoding)) == (text, "")


# the last: exactly nine in ten characters have a NUL in the second of four bytes, the fewest that UTF-32 may have
@pytest.mark.parametrize("text", [ENGLISH, RUSSIAN, CHINESE, "é\n", "The end.\n" * 999, 10 * "The \U0001f601fox, "])
@pytest.mark.parametrize("encoding", ["utf_16_le", "utf_16_be", "utf_32_le", "utf_32_be"])
def test_utf_16_and_utf_32_are_told_by_their_mark_or_their_nuls(text: str, encoding: str) -> None:
    mark = getattr(codecs, f"BOM_{encoding.upper().replace('UTF_', 'UTF')}")
    content = text.encode(encoding)
    assert decode(mark + content, GUESS) == (text, encoding[:6])
    if len(text) > 9:
        assert decode(content, GUESS) == (text, encoding)
        assert decode(content[:-1], GUESS) == (text[:-1], encoding)  # cut off within a character


@pytest.mark.parametrize("content", [b"The fox\x00 jumps.\x00\n", b"a\0bc\0def\0ghi\0" * 3 + b"x" * 2000])
def test_a_few_nuls_do_not_make_utf_16(content: bytes) -> None:
    assert decode(content, GUESS) == (content.decode(), "")


@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"])))
def test_utf_8_is_never_guessed(text: str) -> None:
    text = text.replace("\ufffd", "").replace("\ufffc", "")
    assert decode(text.encode(), GUESS)[1] == ""


@pytest.mark.parametrize(
    ("content", "encoding", "said"),
    [
        (b"\xff\x81\x00\x98", GUESS, "UTF-8 at byte 0, nor of a known encoding; name it with --encoding$"),
        (b"caf\xe9", "ascii", "ascii at byte 3$"),
        # decoded, it is no text
        (b"\x7fELF\x01\x01" * 90, GUESS, "text in UTF-8: 50 % of it are controls or unknown"),
        (("don\ufffdt " * 50).encode(), GUESS, "text in UTF-8: 17 % of it are controls or unknown"),
        (("\ue001\ue002 x" * 50).encode(), GUESS, "text in UTF-8: 50 % of it are controls or unknown"),
        ("The fox.".encode("utf-16-le") * 9, "latin-1", "text in latin-1: 50 % of it are controls or unknown"),
        (codecs.BOM_UTF16_LE + b"\xff\xdf" * 50, GUESS, "text in utf_16: 100 % of it are controls or unknown"),
        (random.Random(0).randbytes(5000), GUESS, ""),
        (bytes(random.Random(0).choices(range(0x80, 0x100), k=999)), GUESS, ""),
        (b"\x89PNG\r\n\x1a\n" * 99, GUESS, ""),
    ],
    ids=range(10),
)
def test_what_is_no_text_is_refused(content: bytes, encoding: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^not {said}"):
        decode(content, encoding)


@pytest.mark.parametrize("name", ["klingon", "rot13", "undefined", "x\xe9"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"^--encoding {name}: not a known encoding"):
        encoding_module.known(name)


ENGLISH_LINES = (
    "The old lawyer counted the money twice and put it in the drawer of his desk. She had never seen the sea before, "
    "and it frightened her a little. Nobody in the village knew where the stranger had come from. "
)
ARTICLE = {
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de "
    "conscience et doivent agir les uns envers les autres dans un esprit de fraternité. Ça et là, un cœur naïf. ",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt "
    "und sollen einander im Geist der Brüderlichkeit begegnen. Die Größe der Häuser fällt auf. ",
    "cs": "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem a svědomím a mají "
    "spolu jednat v duchu bratrství. Příliš žluťoučký kůň úpěl ďábelské ódy. ",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni rozumem i "
    "sumieniem i powinni postępować wobec innych w duchu braterstwa. Zażółć gęślą jaźń. ",
    "hu": "Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Az emberek, ésszel és "
    "lelkiismerettel bírván, egymással szemben testvéri szellemben kell hogy viseltessenek. Árvíztűrő tükörfúrógép. ",
    "tr": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler ve "
    "birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler. ",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью и "
    "должны поступать в отношении друг друга в духе братства. ",
    "uk": "Всі люди народжуються вільними і рівними у своїй гідності та правах. Вони наділені розумом і совістю і "
    "повинні діяти у відношенні один до одного в дусі братерства. ",
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. Είναι προικισμένοι με "
    "λογική και συνείδηση, και οφείλουν να συμπεριφέρονται μεταξύ τους με πνεύμα αδελφοσύνης. ",
    "he": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון, לפיכך חובה עליהם לנהוג איש "
    "ברעהו ברוח של אחווה. ",
    "ar": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا وعليهم أن يعامل بعضهم بعضا بروح "
    "الإخاء. ",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"
    "人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。",
    "zh": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "zh-hant": "人人生而自由，在尊嚴和權利上一律平等。他們賦有理性和良心，並應以兄弟關係的精神相對待。",
    "ko": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 양심을 "
    "부여받았으며 서로 형제애의 정신으로 행동하여야 한다. ",
}


@pytest.mark.parametrize("accents", ["£20", "£5,000", "Herr Müller", "Düsseldorf", "© 1923", "20°", "51° 30´", "naïve"])
def test_a_few_accents_in_an_english_book_are_those_of_windows(accents: str) -> None:
    text = ENGLISH_LINES * 20 + f"It was {accents}, he said. "
    assert decode(text.encode("cp1252"), GUESS) == (text, "cp1252")
    assert decode((text * 40).encode("cp1252"), GUESS, "en") == (text * 40, "cp1252")


@pytest.mark.parametrize("text", ["“Don’t be naïve,” he said—“not you.” ", "He ‘owed’ £5,000… to a café. "])
def test_quotes_of_windows_and_of_a_macintosh_are_told_apart(text: str) -> None:
    text = (ENGLISH_LINES * 3 + text) * 9
    assert decode(text.encode("cp1252"), GUESS) == (text, "cp1252")
    assert decode(text.encode("mac_roman"), GUESS) == (text, "mac_roman")


@pytest.mark.parametrize(
    ("language", "encodings"),
    [
        ("fr", "cp1252 iso8859_15 mac_roman"),
        ("de", "cp1252 mac_roman cp850"),
        *((language, "cp1250 iso8859_2") for language in ("cs", "pl", "hu")),
        ("tr", "cp1254 iso8859_9"),
        ("ru", "cp1251 koi8_r cp866 iso8859_5"),
        ("uk", "cp1251 koi8_u"),
        ("el", "cp1253 iso8859_7"),
        ("he", "cp1255"),
        ("ar", "cp1256"),
        ("ja", "cp932 euc_jp"),
        ("zh", "gb18030"),
        ("zh-hant", "big5hkscs"),
        ("ko", "cp949"),
    ],
)
def test_the_encodings_of_languages_are_guessed(language: str, encodings: str) -> None:
    text = ARTICLE[language] * 2
    assert [decode(text.encode(name), GUESS)[0] for name in encodings.split()] == [text] * len(encodings.split())


def test_utf_8_with_a_few_bad_bytes_or_lines_of_windows_is_read_as_both() -> None:
    for language in ("ru", "zh", "el"):
        text = ARTICLE[language] * 20
        damaged = text.encode()[:-300] + b"\xff" + text.encode()[-300:-2] + b"\n"
        assert decode(damaged, GUESS)[1] in ("utf_8", guess.MIXED)
        assert decode(damaged, GUESS)[0][:200] == text[:200]
    lines = [ENGLISH_LINES + "“Naïve,” he said – in a café.\n"] * 20
    mixed = b"".join(line.encode("cp1252" if number % 3 else "utf-8") for number, line in enumerate(lines))
    assert decode(mixed, GUESS) == ("".join(lines), guess.MIXED)


def test_the_expected_language_decides_where_a_text_has_few_accents() -> None:
    content = "Az idő".encode("cp1250")
    assert decode(content, GUESS) == ("Az idõ", "cp1252")
    assert decode(content, GUESS, "hu") == ("Az idő", "cp1250")


# the first article of the Universal Declaration of Human Rights
DECLARATION = {
    "en": "All human beings are born free and equal in dignity and rights.",
    "ca": "Tots els éssers humans neixen lliures i iguals en dignitat i en drets.",
    "ro": "Toate fiinţele umane se nasc libere şi egale în demnitate şi în drepturi.",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
    "cy": "Genir pawb yn rhydd ac yn gydradd â'i gilydd mewn urddas a hawliau.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
}


@pytest.mark.parametrize("language", DECLARATION)
def test_a_sentence_is_in_its_language_and_in_no_other(language: str) -> None:
    against = {other: odds_against(DECLARATION[language], other) for other in DECLARATION}
    assert against.pop(language) < 0
    assert min(against.values()) > THRESHOLD
    assert odds_against(DECLARATION[language], ANY_LANGUAGE) < 0


@pytest.mark.parametrize(
    "headline",
    ["Rain on the way for Riverina", "Qld cane growers upbeat", "lol ok", "yes i am", "Thanks mate", "12345 6789", ""],
)
def test_a_few_words_may_be_of_any_language(headline: str) -> None:
    assert odds_against(headline, "en") < THRESHOLD


@given(st.text(max_size=20) | st.integers(0, 5 * SAMPLE).map(lambda length: "".join(map(chr, range(64, 64 + length)))))
def test_a_sample_is_of_the_whole_length(text: str) -> None:
    sample = sampled(text)
    assert len(sample) <= SAMPLE + language_id.WINDOWS - 1
    if len(text) <= SAMPLE:
        assert sample == text
    else:
        starts = [text.index(sample[start : start + 1000]) for start in range(0, len(sample), 1001)]
        assert starts == [number * starts[1] for number in range(4)]
        assert len(text) - (starts[-1] + 1000) < 3


def test_a_language_is_known_by_its_code() -> None:
    assert (language_id.known("EN"), language_id.known("any")) == ("en", ANY_LANGUAGE)
    with pytest.raises(InputError, match="--language english: not known; one of any, .*, en, .*"):
        language_id.known("english")


PHONES = "(415) 555-2671|415-555-2671|415.555.2671|4155552671|+14155552671|+44 20 7946 0958|+49 30 901820"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((f"Call {number}, or come.", f"Call {PHONE}, or come.") for number in PHONES.split("|")),
        ("Write to a.b+c@mail.example.co.uk.", f"Write to {EMAIL}."),
        ("<me@example.org> or you@example.org", f"<{EMAIL}> or {EMAIL}"),
        ("ping 8.8.8.8, then 2001:4860:4860::8888", f"ping {IP}, then {IP}"),
        ("me" * 500_000 + "@example.org", EMAIL),  # would take an hour if the time were quadratic
        ("me" * 500_000 + "@" + "b-" * 500_000, "me" * 500_000 + "@" + "b-" * 500_000),
        ("8.8.8.8 and 415-555-2671 of me@example.org", f"{IP} and {PHONE} of {EMAIL}"),
    ],
    ids=range(13),
)
def test_addresses_are_replaced(text: str, expected: str) -> None:
    assert scrub(text) == expected


@pytest.mark.parametrize(
    "text",
    ["At 12:30:45 it was 192.168.0.1 or 127.0.0.1, not 300.1.1.1 nor v1.2.3.4 nor linux-2.6.8.1-3."]
    + ["ISBN 0-471-95869-7, 978-3-16-148410-0; from 1914 to 1918; 1,234,567,890 people; 3108.204701 seconds."]
    + ["Kernel 2.6.8.1 and driver: 71.84.11.2, as of version 8.8.8.8", "@you, see x@y and 3 @ 4.", ""],
)
def test_other_numbers_and_words_stay(text: str) -> None:
    assert scrub(text) == text


@given(st.text(st.characters(exclude_categories=["N"], exclude_characters="@:")))
def test_text_without_numbers_and_addresses_stays(text: str) -> None:
    assert scrub(text) == text
