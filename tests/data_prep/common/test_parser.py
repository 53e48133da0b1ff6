import pytest

from deepsiam.data_prep.common.parser import Parser


@pytest.fixture
def parser() -> Parser:
    parser = Parser(prog="cook")
    parser.add_argument("--plain", action="store_true")
    dishes = parser.add_subparsers(required=True, metavar="DISH")
    soup = dishes.add_parser("soup", example="cook soup 2 3", page="docs/soups.md", description="word " * 20)
    soup.add_argument("--held-out", type=float)
    soup.add_argument("--salt", choices=["little", "much"])
    soup.add_argument("bowls", nargs="*")
    cake = dishes.add_parser("cake")
    cake.add_argument("flour")
    cake.add_argument("eggs", nargs="*")
    return parser


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("soup --helt-out 0.1", "cook soup: unknown option --helt-out; did you mean --held-out?; see cook soup --help"),
        ("soup --held-outs=0.1", "cook soup: unknown option --held-outs; did you mean --held-out?; see"),
        ("soup a --wxyz", "cook soup: unknown option --wxyz; see cook soup --help"),
        ("soup --salt mutch", "invalid choice: 'mutch' (choose from 'little', 'much'); did you mean much?; see"),
        ("soop", "did you mean soup?; see cook --help"),
        ("", "cook: the following arguments are required: DISH; see cook --help"),
        ("cake", "cook cake: the following arguments are required: flour; see cook cake --help"),
    ],
)
def test_what_is_not_known_is_one_line_with_the_nearest_name(
    parser: Parser, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(line.split())
    assert ended.value.code == 2
    (printed,) = capsys.readouterr().err.splitlines()
    assert message in printed


def test_what_is_known_is_parsed(parser: Parser) -> None:
    chosen = parser.parse_args(["soup", "--held-out", "0.1", "a", "b", "--salt", "much"])
    assert (chosen.held_out, chosen.salt, chosen.bowls, chosen.plain) == (0.1, "much", ["a", "b"], False)


def test_help_ends_with_the_example_and_the_page(parser: Parser, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["soup", "--help"])
    printed = capsys.readouterr().out
    assert printed.endswith("\n\nexample:\n  cook soup 2 3\n\nmore: docs/soups.md\n")
    assert "word " * 20 not in printed  # a paragraph is wrapped
