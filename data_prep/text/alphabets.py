"""The letters of languages, the commonest first, and the encodings that their texts are found in besides UTF-8.

Letters of a to z, which all encodings have, are left out. Encodings are in the order of preference.
"""

from typing import NamedTuple

USUAL = "cp1252"  # of western languages; Latin-1 is a part of it


class Alphabet(NamedTuple):
    """The letters of some languages, which have the same encodings."""

    languages: tuple[str, ...]  # ISO 639 codes
    letters: str
    encodings: tuple[str, ...]
    common: tuple[str, int, int] | None = None  # a codec, and the first bytes of its commoner characters, from, below


_CENTRAL = ("cp1250", "iso8859_2")
_CYRILLIC = ("cp1251", "koi8_r", "koi8_u", "iso8859_5", "cp866", "mac_cyrillic")
_BALTIC = ("cp1257", "iso8859_13")

_KANA = "のにるたをはとがしいてでなりれか、。っまこもあらすんさー"
_SIMPLIFIED = "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过，。"
_TRADITIONAL = "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過，。"
_SYLLABLES = "이다는에의가을고하지로리기사니를은시아서도인자한어나라대있해수정"

WESTERN = Alphabet((), "éèáàíóüöäêçñãâôúïåëîøæßõœûùìòýðþÿ", (USUAL, "iso8859_15", "mac_roman", "cp850"))
ALPHABETS = (
    Alphabet(("pl",), "łóżęąśćńź", _CENTRAL),
    Alphabet(("cs",), "íáéěřýžčšůúťňďó", _CENTRAL),
    Alphabet(("sk",), "áíéýčľžšúťôňóäďĺŕ", _CENTRAL),
    Alphabet(("hu",), "áéőöíóüúű", _CENTRAL),
    Alphabet(("ro",), "ăîşţâșț", _CENTRAL),
    Alphabet(("hr", "sl", "bs"), "čšžćđ", _CENTRAL),
    Alphabet(("tr", "az"), "ıişğüçöâî", ("cp1254", "iso8859_9")),
    Alphabet(("lt",), "ėšžųūįąčę", _BALTIC),
    Alphabet(("lv",), "āīēšņļūžģčķ", _BALTIC),
    Alphabet(("et",), "äõüöšž", _BALTIC),
    Alphabet(("ru", "bg", "mk"), "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё", _CYRILLIC),
    Alphabet(("uk", "be"), "оаиніветрслкудмпязьгбчйхцжїшюєщўыэфґ", _CYRILLIC),
    Alphabet(("sr",), "аиоенрстјувкдмлпзбгшчцљжњхћђџф", _CYRILLIC),
    Alphabet(("el",), "αοιετσνηυρπκμλςωάίόέδγήχθφβύξώζψϊϋΐΰ", ("cp1253", "iso8859_7")),
    Alphabet(("he",), "יוהלאתרבמשנכםדעחפקצזגטןךסףץ", ("cp1255",)),
    Alphabet(("ar", "fa", "ur"), "اليمنترعبوةدسفكهقحجأشطصخىإضذءثزغآئظؤیکپچگ", ("cp1256", "iso8859_6")),
    Alphabet(("th",), "านรอกเงมยลวดทสต่ปี้บคัหแจพช็ใขไโผถ์ศธุูำะิึืณ", ("cp874",)),
    Alphabet(("ja",), _KANA, ("cp932", "euc_jp"), ("euc_jp", 0xA4, 0xD0)),
    Alphabet(("zh",), _SIMPLIFIED, ("gb18030",), ("gb2312", 0xB0, 0xD8)),
    Alphabet(("zh",), _TRADITIONAL, ("big5hkscs",), ("big5", 0xA4, 0xC9)),
    Alphabet(("ko",), _SYLLABLES, ("cp949",), ("euc_kr", 0xB0, 0xC9)),
)
