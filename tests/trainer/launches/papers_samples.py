"""Small files in the formats of the papers' data, with the names used in the comments of recipes/.

SAMPLES has a function for each collection that a comment builds; it writes the collection's raw files into the working
directory. A train split has TRAIN queries, a dev split DEV or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.formats.ubuntu import EVALUATION
from deepsiam.data_prep.collections.formats.ubuntu import TRAIN as PAIRS
from tests.data_prep import raw
from tests.data_prep.collections import raw_formats
from tests.data_prep.collections.raw_formats import (
    dpr_passage,
    dstc7_item,
    trecqa,
    write_csv,
    write_lines,
    write_mind,
    write_tsv,
    write_wikiqa,
)

TRAIN, DEV = 24, 8
Lists = list[tuple[str, dict[str, float]]]


def lists(split: str, candidates: int, *, right: int = 1, sentences: int = 2, dev: int = DEV) -> Lists:
    """Queries and their candidates: a query is five words of its first candidate; the first `right` are relevant."""
    number, seed = (TRAIN, 1) if split == "train" else (dev, 2)
    texts = iter(raw.texts(number * candidates, seed, sentences))
    found = []
    for _ in range(number):
        own = list(islice(texts, candidates))
        found.append((" ".join(own[0].split()[1:6]), {text: float(i < right) for i, text in enumerate(own)}))
    return found


def mine() -> None:
    """A folder in BEIR's layout."""
    folder, documents, queries = Path("data/mine"), count(), count()
    corpus, asked = [], []
    for split in ("train", "dev"):
        rows = []
        for question, labels in lists(split, 2):
            asked.append({"_id": f"q{next(queries)}", "text": question})
            for text, label in labels.items():
                corpus.append({"_id": f"d{next(documents)}", "title": "", "text": text})
                rows.append([asked[-1]["_id"], corpus[-1]["_id"], int(label)])
        write_tsv(folder / "qrels" / f"{split}.tsv", [["query-id", "corpus-id", "score"], *rows])
    write_lines(folder / "corpus.jsonl", corpus)
    write_lines(folder / "queries.jsonl", asked)


def dpr() -> None:
    """DPR's JSON; a question has two hard negatives and one other negative."""
    for split in ("train", "dev"):
        records = []
        for question, labels in lists(split, 4):
            positive, *negatives = (dpr_passage(text, "The river") for text in labels)
            passages = {
                "positive_ctxs": [positive],
                "negative_ctxs": negatives[:1],
                "hard_negative_ctxs": negatives[1:],
            }
            records.append({"dataset": "nq", "question": question, "answers": ["it"], **passages})
        write_lines(Path(f"biencoder-nq-{split}.json"), [records])


def passages() -> None:
    """MS MARCO's passages: qrels, and triples by id; a query has two negatives."""
    numbers, queries = count(), count(100)
    collection, triples = [], []
    for split, name in (("train", "train"), ("dev", "dev.small")):
        asked, judged = [], []
        for question, labels in lists(split, 3):
            qid, (right, *wrong) = next(queries), list(islice(numbers, 3))
            collection += zip((right, *wrong), labels, strict=True)
            asked.append([qid, question])
            judged.append([qid, 0, right, 1])
            triples += [[qid, right, pid] for pid in wrong if split == "train"]
        write_tsv(Path(f"queries.{name}.tsv"), asked)
        write_tsv(Path(f"qrels.{name}.tsv"), judged)
    write_tsv(Path("collection.tsv"), collection)
    write_tsv(Path("qidpidtriples.train.full.2.tsv"), triples)


def teacher_score(text: str) -> float:
    """A number that depends on the text alone."""
    return len(text) % 13 - 6.0


def examples() -> None:
    """ColBERTv2's examples, of 64 passages each; a dev query has two passages."""
    numbers, queries = count(), count(100)
    collection, lines = [], []
    for split, name, candidates in (("train", "train", 64), ("dev", "dev.small", 2)):
        asked, judged = [], []
        for question, labels in lists(split, candidates, sentences=1):
            qid, named = next(queries), [(next(numbers), text) for text in labels]
            collection += named
            asked.append([qid, question])
            judged.append([qid, 0, named[0][0], 1])
            lines += [[qid, *([pid, teacher_score(text)] for pid, text in named)]] if split == "train" else []
        write_tsv(Path(f"queries.{name}.tsv"), asked)
        write_tsv(Path(f"qrels.{name}.tsv"), judged)
    write_tsv(Path("collection.tsv"), collection)
    write_lines(Path("examples.json"), lines)


def scored() -> None:
    """FlagEmbedding's JSON lines with scores: ten candidates in train, so that eight are drawn."""
    for split, candidates in (("train", 10), ("dev", 8)):
        records = []
        for question, labels in lists(split, candidates):
            pos, *neg = labels
            scores = {"pos_scores": [teacher_score(pos)], "neg_scores": [teacher_score(text) for text in neg]}
            records.append({"query": question, "pos": [pos], "neg": neg, **scores})
        write_lines(Path(f"{split}.scored.jsonl"), records)


def triples() -> None:
    """MS MARCO's triples of texts."""
    rows = ([question, *pair] for question, pair in lists("train", 2))
    write_tsv(Path("triples.train.small.tsv"), rows)


def documents() -> None:
    """MS MARCO's documents; some have more than 512 tokens, and BM25 has not found every relevant one."""
    docs = []
    for split in ("train", "dev"):
        asked, judged, run = [], [], []
        for number, (question, labels) in enumerate(lists(split, 3, sentences=40)):
            qid = f"{1 + (split == 'dev')}{number:03}"
            asked.append([qid, question])
            names = [f"D{qid}{i}" for i in range(3)]
            docs += [[name, "https://a", "The river", text] for name, text in zip(names, labels, strict=True)]
            judged.append(f"{qid} 0 {names[0]} 1")
            found = names if number % 5 else names[1:]
            run += [f"{qid} Q0 {name} {rank} {-5 - rank} IndriQL" for rank, name in enumerate(found, 1)]
        write_tsv(Path(f"msmarco-doc{split}-queries.tsv"), asked)
        write_lines(Path(f"msmarco-doc{split}-qrels.tsv"), judged)
        write_lines(Path(f"msmarco-doc{split}-top100"), run)
    write_tsv(Path("msmarco-docs.tsv"), docs)


def mind() -> None:
    """Impressions of users; new users are shown one piece of news that other new users have clicked."""
    said = raw.texts(60, seed=3, sentences=1)
    news = {f"N{i}": (said[2 * i], said[2 * i + 1] if i % 3 else "") for i in range(30)}
    for split, number in (("train", TRAIN), ("dev", DEV)):
        behaviors = []
        for i in range(number):
            history = "" if i % 4 == 0 else " ".join(f"N{(i + j) % 30}" for j in range(1, 2 + i))
            shown = f"N{i % 30}-1 N{(i + 4) % 30}-0" + f" N{(i + 9) % 30}-0" * (i % 4 > 0)
            behaviors.append(f"{i}\tU{i}\t11/15/2019 10:22:32 AM\t{history}\t{shown}")
        write_mind(Path(f"MINDlarge_{split}"), behaviors, news)


def convai2() -> None:
    """Dialogues of two turns, with twenty candidates each."""
    for split, name in (("train", "train"), ("dev", "valid")):
        found = lists(split, 20, sentences=1)
        text = []
        for (first, replies), (second, others) in zip(found[::2], found[1::2], strict=True):
            text += ["1 your persona: i like rivers .", "2 your persona: i have a house ."]
            for line, said, own in ((3, first, list(replies)), (4, second, list(others))):
                text.append(f"{line} {said}\t{own[0]}\t\t{'|'.join([*own[1:], own[0]])}")
        write_lines(Path(f"{name}_self_original.txt"), text)


def dstc7() -> None:
    """Dialogues with a hundred options each."""
    for split in ("train", "dev"):
        items = []
        for number, (said, labels) in enumerate(lists(split, 100, sentences=1)):
            words, options = said.split(), list(labels)
            messages = [(1, " ".join(words[:2])), (2, words[2]), (1, " ".join(words[3:]))]
            items.append(dstc7_item(number, messages, sorted(options), options[0]))
        write_lines(Path(f"ubuntu_{split}_subtask_1.json"), [items])


def ubuntu() -> None:
    """Pairs to train on, lists of ten to evaluate on: enough replies to draw 15 others from."""
    rows = []
    for context, labels in lists("train", 2, sentences=1):
        said = f"{context} __eou__ __eot__ what is it __eou__ __eot__ "
        rows += [[said, f"{text} __eou__", int(label)] for text, label in labels.items()]
    write_csv(Path("train.csv"), [PAIRS, *rows])
    evaluated = [[f"{context} __eou__ __eot__ ", *labels] for context, labels in lists("dev", 10, sentences=1, dev=16)]
    for name in ("valid", "test"):
        write_csv(Path(f"{name}.csv"), [EVALUATION, *evaluated])


def wikipedia() -> None:
    """Run `data_prep wikipedia` on an export; a tenth of the articles is dev."""
    raw.write_wikipedia(Path("dump.xml"), raw.texts(10 * DEV, seed=4, sentences=6))
    raw.run("wikipedia", "dump.xml", "--out", "data/wikipedia")


def reddit() -> None:
    """Run `data_prep reddit` on fifty threads."""
    said = raw.texts(250, seed=5, sentences=1)
    folder = raw.write_reddit(Path("reddit"), [said[i : i + 5] for i in range(0, 250, 5)])
    raw.run("reddit", folder, "--out", "data/reddit", "--held-out", "0.3")


def quasar_t() -> None:
    """A hundred passages per question; some questions have two relevant passages."""
    for split in ("train", "dev"):
        questions, contexts = [], []
        for number, (question, labels) in enumerate(lists(split, 100, sentences=1)):
            found = list(labels)
            answer = " ".join(found[0].split()[6:9])
            found[1] += f" {answer.capitalize()}." * (number % 2)
            questions.append({"uid": f"s{number}", "question": question, "answer": answer, "tags": []})
            contexts.append({"uid": f"s{number}", "contexts": [[0.5, text] for text in reversed(found)]})
        write_lines(Path(f"{split}_questions.json"), questions)
        write_lines(Path(f"{split}_contexts.json"), contexts)


def hotpotqa() -> None:
    """Ten paragraphs per question, two of them relevant; some questions have five paragraphs."""
    for split, name in (("train", "train_v1.1"), ("dev", "dev_distractor_v1")):
        items = []
        for number, (question, labels) in enumerate(lists(split, 10, right=2)):
            context = [[f"T{i}", [f"{part}." for part in text.split(".")[:2]]] for i, text in enumerate(labels)]
            facts = [["T0", 0], ["T1", 1]]
            shown = context[: 5 if number % 6 == 5 else 10]
            items.append({"_id": str(number), "question": question, "supporting_facts": facts, "context": shown})
        write_lines(Path(f"hotpot_{name}.json"), [items])


def short_lists(split: str) -> Lists:
    """Questions with at most ten passages; if there is only one, it is relevant."""
    return [
        (question, dict(islice(labels.items(), 10 - i % 10)))
        for i, (question, labels) in enumerate(lists(split, 10, sentences=1))
    ]


def wikiqa() -> None:
    """WikiQA's tables."""
    for split in ("train", "dev", "test"):
        write_wikiqa(Path(f"WikiQA-{split}.tsv"), short_lists(split))


def trec_qa() -> None:
    """TREC-QA's files."""
    for split in ("train", "dev", "test"):
        write_lines(Path(f"{split}.xml"), trecqa(short_lists(split)))


def pairs(split: str, classes: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Two texts and their class."""
    for number, (first, (second, *_)) in enumerate(lists(split, 1, sentences=1)):
        yield first, second, classes[number % len(classes)]


ENTAILMENT = ("entailment", "neutral", "contradiction")


def nli_lines(names: dict[str, str], unsure: int) -> None:
    """Write a file for each split; the last `unsure` pairs have no gold label."""
    for split, name in names.items():
        found = [*pairs(split, ENTAILMENT), *[("a house", "the river", "-")] * unsure]
        records: list[dict[str, Any]] = [
            {"sentence1": first, "sentence2": second, "gold_label": label, "annotator_labels": [label]}
            for first, second, label in found
        ]
        write_lines(Path(name), records)


def mnli_lines() -> None:
    """MNLI's JSON lines."""
    nli_lines({"train": "multinli_1.0_train.jsonl", "dev": "multinli_1.0_dev_matched.jsonl"}, unsure=0)


def snli() -> None:
    """SNLI's JSON lines."""
    nli_lines({"train": "snli_1.0_train.jsonl", "dev": "snli_1.0_dev.jsonl"}, unsure=2)


def qqp() -> None:
    """QQP in GLUE's folder."""
    for split in ("train", "dev"):
        rows = [[i, 2 * i, 2 * i + 1, *row] for i, row in enumerate(pairs(split, ("0", "1")))]
        write_tsv(Path("QQP") / f"{split}.tsv", [raw_formats.QQP, *rows])


def rte() -> None:
    """RTE in GLUE's folder."""
    for split in ("train", "dev"):
        rows = [[i, *row] for i, row in enumerate(pairs(split, ("entailment", "not_entailment")))]
        write_tsv(Path("RTE") / f"{split}.tsv", [raw_formats.RTE, *rows])


def sick() -> None:
    """SICK, in which a column names the split."""
    rows = [
        [i, first, second, label.upper(), "4.5", name]
        for split, name in (("train", "TRAIN"), ("dev", "TRIAL"), ("dev", "TEST"))
        for i, (first, second, label) in enumerate(pairs(split, ENTAILMENT))
    ]
    write_tsv(Path("SICK.txt"), [raw_formats.SICK, *rows])


SAMPLES: dict[str, Callable[[], None]] = {
    "data/mine": mine,
    "data/nq": dpr,
    "data/msmarco_qrels": passages,
    "data/msmarco_passage": passages,
    "data/msmarco_passage_qwen3": passages,
    "data/msmarco_triples": triples,
    "data/msmarco_64way": examples,
    "data/msmarco_64way_zephyr": examples,
    "data/scored": scored,
    "data/msmarco_document": documents,
    "data/mind": mind,
    "data/convai2": convai2,
    "data/dstc7": dstc7,
    "data/ubuntu": ubuntu,
    "data/wikipedia_search": wikipedia,
    "data/reddit_dialogues": reddit,
    "data/quasar_t": quasar_t,
    "data/hotpotqa": hotpotqa,
    "data/wikiqa": wikiqa,
    "data/trec_qa": trec_qa,
    "data/mnli": mnli_lines,
    "data/snli": snli,
    "data/qqp": qqp,
    "data/rte": rte,
    "data/sick": sick,
}
