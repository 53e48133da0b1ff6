"""Encodings guessed for texts of many languages, the first article of the Declaration of Human Rights in each."""

import random

import pytest

from deepsiam.data_prep.text import guess
from deepsiam.data_prep.text.encoding import GUESS, decode

pytest.importorskip("py3langid", reason="needs the packages of the extra `dumps`")

ENGLISH = (
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
    text = ENGLISH * 20 + f"It was {accents}, he said. "
    assert decode(text.encode("cp1252"), GUESS) == (text, "cp1252")
    assert decode((text * 40).encode("cp1252"), GUESS, "en") == (text * 40, "cp1252")


@pytest.mark.parametrize("text", ["“Don’t be naïve,” he said—“not you.” ", "He ‘owed’ £5,000… to a café. "])
def test_quotes_of_windows_and_of_a_macintosh_are_told_apart(text: str) -> None:
    text = (ENGLISH * 3 + text) * 9
    assert decode(text.encode("cp1252"), GUESS) == (text, "cp1252")
    assert decode(text.encode("mac_roman"), GUESS) == (text, "mac_roman")


@pytest.mark.parametrize(
    ("language", "encoding"),
    [
        *(("fr", name) for name in ("cp1252", "iso8859_15", "mac_roman")),
        *(("de", name) for name in ("cp1252", "mac_roman", "cp850")),
        *((language, name) for language in ("cs", "pl", "hu") for name in ("cp1250", "iso8859_2")),
        *(("tr", name) for name in ("cp1254", "iso8859_9")),
        *(("ru", name) for name in ("cp1251", "koi8_r", "cp866", "iso8859_5")),
        *(("uk", name) for name in ("cp1251", "koi8_u")),
        *(("el", name) for name in ("cp1253", "iso8859_7")),
        ("he", "cp1255"),
        ("ar", "cp1256"),
        *(("ja", name) for name in ("cp932", "euc_jp")),
        ("zh", "gb18030"),
        ("zh-hant", "big5hkscs"),
        ("ko", "cp949"),
    ],
)
def test_the_encodings_of_languages_are_guessed(language: str, encoding: str) -> None:
    text = ARTICLE[language] * 2
    assert decode(text.encode(encoding), GUESS)[0] == text


def test_utf_8_with_a_few_bad_bytes_or_lines_of_windows_is_read_as_both() -> None:
    for language in ("ru", "zh", "el"):
        text = ARTICLE[language] * 20
        damaged = text.encode()[:-300] + b"\xff" + text.encode()[-300:-2] + b"\n"
        assert decode(damaged, GUESS)[1] in ("utf_8", guess.MIXED)
        assert decode(damaged, GUESS)[0][:200] == text[:200]
    lines = [ENGLISH + "“Naïve,” he said – in a café.\n"] * 20
    mixed = b"".join(line.encode("cp1252" if number % 3 else "utf-8") for number, line in enumerate(lines))
    assert decode(mixed, GUESS) == ("".join(lines), guess.MIXED)


def test_what_is_text_in_no_encoding_is_refused() -> None:
    rng = random.Random(0)
    for junk in (rng.randbytes(5000), bytes(rng.randrange(0x80, 0x100) for _ in range(999)), b"\x89PNG\r\n\x1a\n" * 99):
        with pytest.raises(ValueError, match="^not "):
            decode(junk, GUESS)


def test_one_odd_byte_does_not_cost_a_book() -> None:
    content = (ENGLISH * 20).encode()
    for odd in (0x80, 0x81, 0x9D, 0xAD, 0xB3, 0xFF):
        assert decode(content + bytes([odd]), GUESS)[0][:-1] == ENGLISH * 20


def test_the_expected_language_decides_where_a_text_has_few_accents() -> None:
    content = "Az idő".encode("cp1250")
    assert decode(content, GUESS) == ("Az idõ", "cp1252")
    assert decode(content, GUESS, "hu") == ("Az idő", "cp1250")
