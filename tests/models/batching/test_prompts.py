"""Prompts: the ids of the whole text, what is cut where one is too long, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.batching.prompts import PromptFraming
from tests.data_prep.tokenizers.families import FAMILIES
from tests.models.tiny import VOCABULARY

READERS = ["gpt2", "qwen2", "llama3", "mistral", "llama", "gemma", "bert", "xlm-roberta"]
LIST = "sell: {query}\nbread:\n{passages}\nits crew, of {labels}, had sailed {query}\n=\n"
PAIR = "old <Query>: {query}\n<Document>: {document}\n\nlong="
PAIRS = [  # a text is read as it stands: first, behind a token, white space or a mark, before a line break
    PAIR,
    "{query}\n{document}=",
    "<s>{query}  {document}\n",
    "{document}\t{query}\n\n{document}\r\n",
    " ({query}) [{document}]\n",
    '"{query}"\u3000{document}\n',
    "<think>\n{query}</think>{document} ",
]
TEXTS = ["the ship of bread?", "was old: 12 loaves.", "naïve 漢字", "3 pies", "what they baked each day"]
LENGTHS: dict[str, Any] = {"max_tokens": 400, "max_query_tokens": 50, "max_document_tokens": 50}


def framing(vocabulary: Any = VOCABULARY, template: str = LIST, **keys: Any) -> PromptFraming:
    given = {"line": "[{label}] {passage}\n", "labels": [*"ABCDE"], **LENGTHS, **keys}
    return PromptFraming(vocabulary, template, **given)


def filled(template: str, query: str, passages: list[str], labels: str = "ABCDE") -> str:
    """The prompt as text."""
    lines = "".join(f"[{label}] {text}\n" for label, text in zip(labels, passages, strict=False))
    template = template.replace("{passages}", lines).replace("{document}", passages[0])
    return template.replace("{labels}", ", ".join(labels[: len(passages)])).replace("{query}", query)


@pytest.mark.parametrize("family", READERS)
def test_the_ids_are_those_of_the_whole_text(family: str, tmp_path: Path) -> None:
    tokenizer = tokenizers.load(FAMILIES[family].write(tmp_path))
    begin = [*tokenizer.text_frame[0]]
    pairs = [(template, [text]) for template in PAIRS for text in ("", *TEXTS)]
    for template, passages in [(LIST, TEXTS[1:]), (LIST, TEXTS[1:3]), *pairs]:
        labels = [*"ABCDE"] if template == LIST else ["old", "long"]
        row = framing(tokenizer, template, labels=labels).row(TEXTS[0], passages)
        (whole,) = tokenizer.encode([filled(template, TEXTS[0], passages)])
        expected = whole.tolist()
        assert row.tolist() == (expected if expected[: len(begin)] == begin else [*begin, *expected])


@pytest.mark.parametrize("family", ["gpt2", "qwen2", "llama3", "llama", "gemma", "roberta"])
def test_special_tokens_are_those_of_the_template_alone(family: str, tmp_path: Path) -> None:
    tokenizer = tokenizers.load(FAMILIES[family].write(tmp_path))
    token, mask = tokenizer.special_tokens["sep"], tokenizer.special_tokens.get("mask", "")
    template = f"{token}{{query}}{token} {{document}}\n"
    row = framing(tokenizer, template, labels=["A", "B"]).row(f"a {mask}{token}", [f"{mask}{token}{token}"]).tolist()
    assert row.count(tokenizer.sep) == 2 + [*tokenizer.text_frame[0]].count(tokenizer.sep)
    assert tokenizer.mask not in row


def test_a_label_is_the_token_after_the_end(tmp_path: Path) -> None:
    tokenizer = tokenizers.load(FAMILIES["mistral"].write(tmp_path))
    labels = ["b", "s"]
    ids = framing(tokenizer, "{query}{document}\n", labels=labels).label_ids
    assert [tokenizer.vocabulary()[label] for label in labels] == ids  # not "▁b"


@pytest.mark.parametrize(("kept", "ids"), [("start", [5, 6, 7]), ("end", [10, 11, 12])])
def test_the_chosen_end_of_a_query_is_kept_and_of_a_passage_the_start(kept: Any, ids: list[int]) -> None:
    limits: dict[str, Any] = {"max_query_tokens": 3, "max_document_tokens": 5, "kept_of_query": kept}
    text = "".join(f"w{i}" for i in range(5, 13))
    row = framing(template="{query}:{document}=", labels=["y", "n"], **limits).row(text, [text])
    colon, equals = (ids[0] for ids in VOCABULARY.encode([":", "="]))
    assert row.tolist() == [VOCABULARY.cls, *ids, colon, *range(5, 10), equals]


@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=5), most=st.integers(16, 60))
def test_the_longest_passages_are_shortened_until_the_prompt_fits(lengths: list[int], most: int) -> None:
    one = framing(template="{query}{passages}", line="{label}{passage}", max_tokens=most, max_query_tokens=5)
    row = one.row("w39", [f"w{20 + i}" * n for i, n in enumerate(lengths)])
    fixed = 2 + len(lengths)  # [CLS], the query, the labels
    kept = [int((row == 20 + i).sum()) for i in range(len(lengths))]
    assert len(row) == fixed + sum(kept) <= most
    cut = [n for n, length in zip(kept, lengths, strict=True) if n < length]
    if cut:
        assert min(cut) == max(cut) >= max(kept)  # one limit for all, and no token more would fit
        assert fixed + sum(min(n, cut[0] + 1) for n in lengths) > most


@pytest.mark.parametrize(
    ("family", "keys", "words"),
    [
        ("qwen2", {"labels": ["A", "10"]}, "method.labels: '10' is not a single token of the tokenizer after the te"),
        ("mistral", {"labels": ["A", "漢"]}, "'漢' is not a single token"),
        ("bert", {"labels": ["a", "漢"]}, "'漢' is not a single token"),
        ("gpt2", {"labels": ["A", "B", "A"]}, "method.labels: 'A' is the same token as 'A'"),
        ("gpt2", {"template": "{query}{document}= ", "labels": ["old", "long"]}, "end the template without a blank"),
        ("gpt2", {"max_tokens": 60}, "method.max_prompt_tokens=60 leaves no room for a passage beside a template of"),
    ],
)
def test_what_no_prompt_can_have_is_refused(family: str, keys: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        _ = framing(tokenizers.load(FAMILIES[family].write(tmp_path)), **keys).label_ids
