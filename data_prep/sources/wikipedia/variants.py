"""The variants of languages, such as scripts: `-{zh-hans:计算机; zh-hant:電腦}-`."""

import re

_ENTITY = re.compile(r"(&#?\w{1,30});")  # whose semicolon ends no text

# the codes of a language's variants (scripts, regions), as MediaWiki falls back from its own code
_VARIANTS = """
    ban ban-bali ban-x-dharma ban-x-palmleaf ban-x-pku; crh crh-latn crh-cyrl; gan gan-hans gan-hant;
    iu ike-cans ike-latn; kk kk-cyrl kk-latn kk-arab kk-kz kk-tr kk-cn; ku ku-latn ku-arab; mni mni-beng;
    sh sh-latn sh-cyrl; shi shi-latn shi-tfng; sr sr-ec sr-cyrl sr-el sr-latn; tg tg-latn; tly tly-cyrl;
    uz uz-latn uz-cyrl; wuu wuu-hans wuu-hant; zgh zgh-latn;
    zh zh-hans zh-hant zh-cn zh-tw zh-hk zh-sg zh-mo zh-my
"""
VARIANTS = {codes.split()[0]: codes.split() for codes in _VARIANTS.split(";")}


def variant_text(content: str, language: str) -> str | None:
    """Return what `-{content}-` shows in a language of VARIANTS: zh-hans:计算机; zh-hant:電腦.

    None for a list of the variants, or the name of one, which are in the words of the wiki. A change of the page's
    title, or of words elsewhere on it, shows nothing.
    """
    codes = VARIANTS[language]
    head, bar, tail = content.partition("|")
    flags = {flag.strip() for flag in head.split(";")} if bar else set()
    rules = tail if bar else content
    if "R" in flags or not flags.isdisjoint(codes):
        return rules
    if not flags.isdisjoint(("-", "H")) or flags == {"T"}:
        return ""
    if not flags.isdisjoint(("D", "N")):
        return None
    texts: dict[str, list[str]] = {}
    code = ""
    for part in _ENTITY.sub("\\1\0", rules).split(";"):
        name, colon, text = part.partition(":")
        name = name.rpartition("=>")[2].strip()
        if colon and name in codes:
            code, texts[name] = name, [text]
        elif code:
            texts[code].append(part)
    shown = (";".join(texts[code]).strip("; \n").replace("\0", ";") for code in (*codes, *texts) if code in texts)
    return next(shown, rules)
