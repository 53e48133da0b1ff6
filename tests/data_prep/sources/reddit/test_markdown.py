import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.sources.reddit.markdown import is_links_only, paragraphs


@pytest.mark.parametrize(
    ("markdown", "plain"),
    [
        ("Two lines\r\nof one paragraph.\n\nAnd another.", ["Two lines of one paragraph.", "And another."]),
        ("&gt; what you said\nand went on\n\nI disagree.", ["I disagree."]),
        ("before\n> quoted\n\nafter", ["before", "after"]),
        ("&gt;!He dies!&lt; in the end", ["He dies in the end"]),
        ("Try:\n\n    import this\n    more()\n\nIt works.", ["Try:", "It works."]),
        ("Try:\n```python\nimport this\n\nmore()\n```\nIt works.", ["Try:", "It works."]),
        ("```one line``` of code\nIt works.", ["one line of code It works."]),
        ("Run `make test` first, or ``make`` alone", ["Run make test first, or make alone"]),
        ("# Heading\n## Another\ntext #tag", ["Heading", "Another text #tag"]),
        ("* one\n* two\n    goes on\n\n    still two\n1. three", ["one", "two goes on", "still two", "three"]),
        ("a table:\n\nname | age\n---|---:\nBob | 7\n\nafter", ["a table:", "after"]),
        ("cmd | grep x | less", ["cmd | grep x | less"]),
        ("above\n\n---\n\n* * *\n\nbelow", ["above", "below"]),
        ("**bold** and *so* ***on*** and __that__ _too_ ~~gone~~", ["bold and so on and that too gone"]),
        ("2*3*4 = 24, snake_case_name, sh\\*tty, a * b * c", ["2*3*4 = 24, snake_case_name, sh*tty, a * b * c"]),
        ("^^tiny ^(small print) but x^2", ["tiny small print but x^2"]),
        ('see [the docs](http://x.org/a_(b)) and [these](/r/python "title").', ["see the docs and these."]),
        ("see [this][1] of it\n\n[1]: http://x.org", ["see this of it"]),
        ("look (http://x.org/a_(b)) at <https://y.org> or www.z.org/q?a=1 now", ["look at or now"]),
        ("![gif](giphy|abc) nice", ["nice"]),
        ("Tom &amp;amp; Jerry &amp; co &lt;3&amp;nbsp;x &amp;#x200B;", ["Tom & Jerry & co <3 x"]),
        ("&amp;gt; typed as an entity", ["> typed as an entity"]),
        ("half \ud83d an emoji\x00", ["half an emoji"]),
        ("", []),
        (" \n\n ", []),
    ],
)
def test_paragraphs(markdown: str, plain: list[str]) -> None:
    assert paragraphs(markdown) == plain


@pytest.mark.parametrize(
    ("markdown", "only"),
    [
        ("http://x.org", True),
        ("[a label](http://x.org) - https://y.org!", True),
        ("see http://x.org", False),
        ("[1]: http://x.org", True),
        (":-)", False),
        ("", False),
    ],
)
def test_links_only(markdown: str, only: bool) -> None:
    assert is_links_only(markdown) == only


@given(st.text(st.sampled_from('ab &;<>!*_~^`[]()#-|=:./\\\n"1\ud83d') | st.characters(), max_size=200))
def test_any_text_becomes_lines_of_text(markdown: str) -> None:
    for paragraph in paragraphs(markdown):
        assert paragraph == " ".join(paragraph.split()) != ""
        assert paragraph.encode()
    assert is_links_only(markdown) in (True, False)


@pytest.mark.parametrize(
    "piece",
    ["[", "[a](", "[a](b ", "[a](b 'c", "![a](b", "*a", "**a ", "_a", "`", "``a", "~~a", ">!a", "^(", "^", "\\", "&lt;"]
    + ["http://(", "www.((", "<http://", "(", "( ", "- ", "-|", "|", "> ", "[a]: ", "&amp;amp;", "[a", "[a](b(c", "*_"],
)
def test_time_is_linear(piece: str) -> None:
    start = time.process_time()
    text = piece * (100_000 // len(piece))
    paragraphs(text)
    is_links_only(text)
    assert time.process_time() - start < 2
