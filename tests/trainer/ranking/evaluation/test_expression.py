"""The language of systems: what a text means, how a tree reads, and where an error is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.evaluation.expression import BM25, Expression, Fuse, Fusion, Leaf, Rerank, parse, walk

A, B = Leaf("runs/a"), Leaf("runs/b")
FEW = Leaf("b", (("n", "1"), ("m", "2")))
KNOWN: dict[str, Expression] = {"a": A, "both": Fuse(BM25, A), "few": Leaf("b", (("n", "0"), ("m", "2")))}


@pytest.mark.parametrize(
    ("text", "name", "expression"),
    [
        ("bm25", "bm25", BM25),
        (" words = bm25 ", "words", BM25),
        ("export", "export", Leaf("export")),  # a folder that is here
        ("b=runs/b", "b", B),
        ('b="my runs/b, 1"', "b", Leaf("my runs/b, 1")),
        (r'b="a \"b\" \\ c"', "b", Leaf(r'a "b" \ c')),
        ('b="bm25"', "b", Leaf("./bm25")),
        ("x=a", "x", A),
        ("x=fuse(bm25,a)", "x", Fuse(BM25, A)),
        ("x=fuse", "x", Leaf("fuse")),
        ("x=fuse ( bm25 , a , weight=0.3 )", "x", Fuse(BM25, A, Fusion(weight=0.3))),
        ("x=fuse(bm25, a, rule=scores, split=train)", "x", Fuse(BM25, A, Fusion(split="train"))),
        ("x=fuse(bm25, a, rule=ranks)", "x", Fuse(BM25, A, Fusion(rule="ranks"))),
        ("x=bm25>100 runs/b", "x", Rerank(BM25, 100, B)),
        ("x=a > 9 + bm25(weight=1)", "x", Rerank(A, 9, BM25, Fusion(weight=1.0))),
        ("x=a(pairs=9)", "x", Leaf("runs/a", (("pairs", "9"),))),
        ("x=bm25 > 9 runs/b(m=9, n=x)", "x", Rerank(BM25, 9, Leaf("runs/b", (("m", "9"), ("n", "x"))))),
        ("x=bm25 > 9 +b(n=1,rule=ranks, m=2)", "x", Rerank(BM25, 9, FEW, Fusion(rule="ranks"))),
        ("x=bm25 > 9 few(n=1) > 5 few", "x", Rerank(Rerank(BM25, 9, FEW), 5, Leaf("b", (("n", "0"), ("m", "2"))))),
        ("x=(bm25 > 100 a) > 10 runs/b", "x", Rerank(Rerank(BM25, 100, A), 10, B)),
        ("x=both > 50 runs/b", "x", Rerank(Fuse(BM25, A), 50, B)),
        ("x=fuse(fuse(bm25, a), runs/b > 50 a)", "x", Fuse(Fuse(BM25, A), Rerank(B, 50, A))),
    ],
)
def test_a_text_is_a_name_and_a_tree(text: str, name: str, expression: Expression) -> None:
    assert parse(text, KNOWN) == (name, expression, text)


MIXES = st.one_of(
    st.builds(Fusion, weight=st.floats(0, 1)),
    st.builds(Fusion, split=st.sampled_from(["dev", "train-1"])),
    st.builds(Fusion, rule=st.sampled_from([None, "scores", "ranks"])),
)
PATHS = st.text(min_size=1).filter(lambda path: path != "bm25")
OWN = st.dictionaries(
    st.sampled_from(["pairs", "fuse", "bm25"]), st.sampled_from(["9", "bm25", "a b: ", '"\\', ""])
).map(dict.items)
LEAVES = st.one_of(st.just(BM25), st.builds(Leaf, PATHS, OWN.map(tuple)))
TREES = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.builds(Fuse, parts, parts, MIXES).filter(lambda tree: tree.first != tree.second),
        st.builds(Rerank, parts, st.integers(1, 999_999_999), LEAVES, st.none() | MIXES),
    ),
    max_leaves=8,
)


@given(TREES)
def test_what_a_tree_reads_as_is_the_same_tree(tree: Expression) -> None:
    assert parse(f"x={tree}", {})[:2] == ("x", tree)
    assert parse(f"x={tree}", {"a": A, "export": B, "fuse": B})[:2] == ("x", tree)  # paths are told from names
    assert hash(parse(f"x=({tree})", {}).expression) == hash(tree)


@given(st.text(alphabet='ab/=+>(), "\\019.', max_size=30))
def test_any_text_is_a_system_or_an_error(text: str) -> None:
    try:
        name, tree, _ = parse(text, KNOWN)
    except InputError:
        return
    assert parse(f"x={tree}", {}).expression == tree
    assert "/" not in name


@pytest.mark.parametrize(
    ("text", "character", "message"),
    [
        ("", 1, "the end is no system: write bm25, a name given before, a path, or fuse(..., ...)"),
        ("x=)", 3, "')' is no system"),
        ("runs/b", 1, "give the system a name: NAME=runs/b"),
        ("bm25 > 9 a", 1, "give the system a name: NAME=bm25 > 9 a"),
        ("a/b=bm25", 1, "the name 'a/b' has a slash"),
        ("bm25=runs/b", 1, "'bm25' is a word of the language: choose another name"),
        ("BM25=runs/b", 1, "'BM25' is what tables call bm25: choose another name, NAME=SYSTEM"),
        ("a=bm25", 1, "the name 'a' is taken"),
        ("a", 1, "the name 'a' is taken"),
        ("x=a b", 5, "'b' cannot follow here: write > DEPTH MODEL to re-rank, or end"),
        ("x=fuse(bm25)", 12, "')' stands where ',' and a second system is expected"),
        ("x=fuse(bm25, a", 15, "the end stands where ',' or ')' is expected"),
        ("x=fuse(bm25, a, b)", 17, "'b' is not an option: weight, split, rule"),
        ("x=fuse(bm25, bm25)", 14, "fuse takes two different systems"),
        ("x=fuse(a, runs/a)", 11, "fuse takes two different systems"),
        ("x=fuse(bm25, a, weight 1)", 24, "'1' stands where '=' is expected"),
        ("x=fuse(bm25, a, weight=1.1)", 24, "'1.1': the weight is a number from 0 to 1"),
        ("x=fuse(bm25, a, rule=max)", 22, "'max': the rule is scores or ranks"),
        ("x=fuse(bm25, a, rule=ranks, weight=0.1)", 29, "reciprocal ranks have no weight"),
        ("x=fuse(bm25, a, weight=0.1, split=dev)", 29, "needs no split to choose it on: leave out one"),
        ("x=fuse(bm25, a, split=dev, split=dev)", 28, "'split' is there twice"),
        ("x=bm25 > a", 10, "'a' is not how many documents to re-rank: a number such as 100"),
        ("x=bm25 > 0 a", 10, "'0' is not how many documents"),
        ("x=bm25 > \u0663 a", 10, "is not how many documents"),
        (f"x=bm25 > {'1' * 5000} a", 10, "is not how many documents"),
        ("x=bm25 > 100 both", 14, "a system of several parts re-ranks nothing: name one model, or bm25"),
        ("x=bm25 > 100 a(weight=0.1)", 15, "options are for fused scores: write +a(...)"),
        ("x=bm25 > 100 a(n=1, n=2)", 21, "'n' is there twice"),
        ("x=bm25 > 100 a()", 16, "')' is not an option: write NAME=VALUE"),
        ("x=bm25 > 100 a(n=,)", 18, "',' is no value of 'n'"),
        ("x=a/b(n=))", 9, "')' is no value of 'n'"),
        ("x=bm25(n=1)", 8, "'n' is not an option: weight, split, rule"),
        ("x=(bm25", 8, "the end stands where ')' is expected"),
        ("x=bm25 < 100 a", 8, "'<' means nothing here"),
        ('x="runs/b', 3, "the quotation mark is never closed"),
        ('x=""', 3, "the path is empty"),
        ("x=" + "(" * 500, 201, "the system is too long"),
        ("x=fuse(bm25, a) > 10 ++a", 23, "'+' is no system"),
    ],
)
def test_an_error_names_the_character(text: str, character: int, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, KNOWN)
    assert f": character {character}: " in str(error.value)
    assert message in str(error.value)
    assert str(error.value).startswith("--system '")


def test_the_parts_of_a_tree_come_before_it() -> None:
    tree = Rerank(Fuse(BM25, A), 5, B, Fusion())
    assert list(walk(tree)) == [BM25, A, tree.first, tree]
