"""Our own dialogues: each reply once with its context, nineteen replies from other threads, the same every time."""

from pathlib import Path

import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.formats import reddit_dialogues
from deepsiam.data_prep.collections.formats.reddit_dialogues import RedditDialogues
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep import raw


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty threads of five utterances, one of eighty, some held out; read only."""
    folder = tmp_path_factory.mktemp("reddit")
    said = raw.texts(50 * 5 + 80, sentences=1)
    threads = [said[i * 5 : (i + 1) * 5] for i in range(50)] + [said[250:]]
    raw.run("reddit", raw.write_reddit(folder / "raw", threads), "--out", folder / "out", "--held-out", "0.3")
    return folder / "out"


def write(
    folder: Path, tok: Tokenizer, documents: list[list[list[int]]], *sizes: int, dialogues: bool = True, **source: bool
) -> Path:
    with ShardWriter(folder, tok, *sizes, source={"dialogues": dialogues, **source}) as shards:
        for number, document in enumerate(documents):
            shards.add(f"d{number}", document)
    return folder


def expected(prepared: Path, split: str, tokens: int) -> dict[str, tuple[list[str], str]]:
    """Return the context and the reply of each id, taken directly from the documents."""
    texts = raw.decoded(prepared, split)
    pairs = {}
    for document in raw.documents(prepared, split):
        for i in range(max(document.context, 1), len(document.segments)):
            first = i - 1
            while first and sum(map(len, document.segments[first - 1 : i])) <= tokens:
                first -= 1
            pairs[f"{document.id}#{i}"] = (texts[document.id][first:i], texts[document.id][i])
    return pairs


@pytest.mark.parametrize("tokens", [360, 30])
def test_every_reply_once_with_what_was_before(prepared: Path, monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    monkeypatch.setattr(reddit_dialogues, "CONTEXT", tokens)
    reader = RedditDialogues([prepared])
    queries, corpus = list(reader.queries()), list(reader.corpus())
    pairs = expected(prepared, "shards", tokens) | expected(prepared, "held_out", tokens)
    assert len(pairs) == 50 * 4 + 79  # each reply of a thread; the long one is several documents
    assert any(document.context for split in ("shards", "held_out") for document in raw.documents(prepared, split))
    assert {text.id: (list(text.parts), reply.parts[0]) for text, reply in zip(queries, corpus, strict=True)} == pairs
    assert len(queries) == len(pairs)
    assert max(len(text.parts) for text in queries) > (1 if tokens == 30 else 8)


def test_twenty_candidates_of_other_threads_but_the_first(prepared: Path, small: Tokenizer, tmp_path: Path) -> None:
    opened = build("reddit_dialogues", [prepared], tmp_path / "out", tokenizer.load(prepared / "shards"))
    assert opened.splits() == ["dev", "train"]
    threads = {
        document.id: document.group for split in ("shards", "held_out") for document in raw.documents(prepared, split)
    }
    drawn = set()
    for split, folder in (("train", "shards"), ("dev", "held_out")):
        groups = opened.groups(split)
        replies = expected(prepared, folder, 360)
        assert [opened.queries.ids[number] for number in groups.queries.tolist()] == list(replies)
        for i in range(len(groups)):
            query, candidates, labels = groups[i]
            names = [opened.corpus.ids[number] for number in candidates.tolist()]
            assert names[0] == opened.queries.ids[query]
            assert labels.tolist() == [1.0] + [0.0] * 19
            assert len({replies[name][1] for name in names}) == 20  # all different, and of the same split
            own, *others = [threads[name.partition("#")[0]] for name in names]
            assert own not in others
            drawn |= set(names[1:])
    assert len(drawn) == len(opened.corpus)  # 279 replies, each expected 19 times


def test_the_candidates_are_the_same_in_any_folder(prepared: Path, tmp_path: Path) -> None:
    first = list(RedditDialogues([prepared]).groups("dev"))
    again = RedditDialogues([prepared / "shards", Path(f"test={prepared / 'held_out'}")])
    assert again.splits() == ["train", "test"]
    assert first == list(again.groups("test"))
    assert len({tuple(group.candidates[1:]) for group in first}) == len(first)


def test_small_shards_are_drawn_together(tmp_path: Path, small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [[[5 + number // 20], [30 + number % 20, 60]] for number in range(62)]
    write(tmp_path / "shards", small, documents, 12, 1)  # four documents per shard
    monkeypatch.setattr(reddit_dialogues, "WINDOW", 30)
    groups = list(RedditDialogues([tmp_path / "shards"]).groups("train"))
    assert [group.query for group in groups] == [f"d{number}#1" for number in range(62)]
    for number, group in enumerate(groups):  # whole shards make windows of 32 and of 30 replies
        assert {int(name[1:-2]) < 32 for name in group.candidates} == {number < 32}
    monkeypatch.setattr(reddit_dialogues, "WINDOW", 33)
    whole = list(RedditDialogues([tmp_path / "shards"]).groups("train"))
    assert any(int(name[1:-2]) > 35 for name in whole[0].candidates)


def test_utterances_without_tokens_are_no_replies_equal_replies_no_negatives(tmp_path: Path, small: Tokenizer) -> None:
    alike = [[[50 + number], [60]] for number in range(30)]  # all have the same reply
    others = [[[50], [], [61], [70 + number]] for number in range(18)]
    folder = write(tmp_path / "shards", small, [*alike, *others, [[51], [62, 63]]])
    groups = list(RedditDialogues([folder]).groups("train"))
    assert len(groups) == 30 + 18 + 1  # `others` have one reply each, the last: [61] answers nothing
    assert all(
        sum(name.startswith("d") and int(name[1:].split("#")[0]) < 30 for name in g.candidates) == 1 for g in groups
    )
    assert groups[0].candidates[0] == "d0#1"
    assert sorted(groups[0].candidates[1:]) == sorted([f"d{30 + number}#3" for number in range(18)] + ["d48#1"])


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("few", "shard-000000.tar:1: fewer than 19 different replies of other threads"),
        ("articles", "articles: its documents are not dialogues: name what `data_prep reddit` made"),
        ("pairs", "pairs: its documents are pairs, to pre-train on: name articles or dialogues"),
        ("nowhere", "nowhere: no such file"),
        ("empty", "empty/manifest.json: no such file"),
    ],
)
def test_what_is_no_folder_of_enough_dialogues_is_refused(
    tmp_path: Path, small: Tokenizer, name: str, problem: str
) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "few", small, [[[50], [60 + number % 19]] for number in range(40)])
    write(tmp_path / "articles", small, [[[50], [60]]], dialogues=False)
    write(tmp_path / "pairs", small, [[[50], [60]]], dialogues=False, pairs=True)
    with pytest.raises(InputError, match=problem):
        list(RedditDialogues([tmp_path / name]).groups("train"))
