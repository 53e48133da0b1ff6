"""Small data and real processes for the tests: shards and a collection in a made-up language, and launches."""

import atexit
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.derive import NewCandidates, derive
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers import tokenizer
from tests import warm, warm_python
from tests.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
FULL_TESTS = bool(os.environ.get("FULL_TESTS"))  # every combination and more drawn examples: CONTRIBUTING.md
LAUNCHER = Path(sys.executable).with_name("deepspeed")
TRUNK = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
PROMPT: dict[str, Any] = {  # of a ranker by labels, with its trunk
    "template": "{query}\n{passages}\n",
    "passage": "{label} {passage}\n",
    "labels": [*"abcd"],
    "max_prompt_tokens": 100,
    "trunk": {**TRUNK, "is_decoder": True, "max_position_embeddings": 100},
}
SEED_RECIPE: dict[str, Any] = {
    "run": "runs/x",
    "steps": 10,
    "data": {"shards": "data/x"},
    "batch": {"size": 8, "micro": 4},
    "trunk": TRUNK,
    "method": {"name": "seed"},
    "optimizer": {"lr": 1e-4},
}  # the keys that a recipe must have


def documents(count: int, seed: int = 0) -> list[list[str]]:
    """Documents of one to five sentences; the made-up words have Zipf-like frequencies."""
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list("abcdefghij"), rng.integers(2, 6))) for _ in range(200)]
    chance = 1 / np.arange(1, 201)
    chance /= chance.sum()
    return [
        [" ".join(rng.choice(words, rng.integers(2, 12), p=chance)) for _ in range(rng.integers(1, 6))]
        for _ in range(count)
    ]


def write_shards(folder: Path, count: int = 600, seed: int = 0) -> Path:
    """Shards of `count` documents: about 20 shards of two chunks each."""
    texts = documents(count, seed)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = tokenizer.train((s for d in texts for s in d), 300, folder / "trained.json")
    with ShardWriter(folder / "shards", vocabulary, chunk_tokens=500, chunks_per_shard=2) as writer:
        for number, text in enumerate(texts):
            writer.add(f"d{number}", vocabulary.encode(text))
    return folder / "shards"


def write_shards_with(folder: Path, other: Path, count: int, seed: int = 9) -> Path:
    """Shards of other documents, with the tokenizer of the shards at `other`."""
    vocabulary = tokenizer.load(other / "tokenizer.json")
    with ShardWriter(folder / "held_out", vocabulary, chunk_tokens=500, chunks_per_shard=2) as writer:
        for number, text in enumerate(documents(count, seed)):
            writer.add(f"h{number}", vocabulary.encode(text))
    return folder / "held_out"


def write_pairs(folder: Path, other: Path, count: int = 400, seed: int = 6) -> Path:
    """Shards of pairs, with the tokenizer of the shards at `other`: two sentences that share half their words."""
    vocabulary = tokenizer.load(other / "tokenizer.json")
    texts = [sentences[0].split() for sentences in documents(2 * count, seed)]
    source = {"pairs": True}
    with ShardWriter(folder, vocabulary, chunk_tokens=300, chunks_per_shard=2, source=source) as writer:
        for number, (query, more) in enumerate(zip(texts[:count], texts[count:], strict=True)):
            document = [*query[: 1 + len(query) // 2], *more]
            writer.add(f"p{number}", vocabulary.encode([" ".join(query), " ".join(document)]))
    return folder


def write_collection(folder: Path, tokenizer_json: Path, count: int = 120, seed: int = 1) -> Path:
    """A collection whose query i is the first sentence of document i; the last 20 queries are the test split."""
    import json

    texts = documents(count, seed)
    (folder / "qrels").mkdir(parents=True)
    with open(folder / "corpus.jsonl", "w") as corpus, open(folder / "queries.jsonl", "w") as queries:
        for number, sentences in enumerate(texts):
            corpus.write(json.dumps({"_id": f"d{number}", "title": "", "text": " ".join(sentences)}) + "\n")
            queries.write(json.dumps({"_id": f"q{number}", "text": sentences[0]}) + "\n")
    for split, numbers in {"train": range(count - 20), "test": range(count - 20, count)}.items():
        rows = "".join(f"q{number}\td{number}\t1\n" for number in numbers)
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    build("beir", [folder], folder, tokenizer.load(tokenizer_json))
    return folder


def write_scored(folder: Path, source: Path, others: int = 4) -> Path:
    """A copy of a collection whose train split has made-up negatives and a teacher's scores beside the labels."""
    opened, rng = Collection.open(source), np.random.default_rng(3)
    groups = opened.groups("train")
    known = np.unique(groups.candidates.flat)
    given = [groups[i] for i in range(len(groups))]
    rows = [[*group.candidates, *rng.choice(np.setdiff1d(known, group.candidates), others, False)] for group in given]
    ends, documents = np.cumsum([len(row) for row in rows]), np.concatenate(rows)
    labels = np.concatenate([[*group.labels, *[0] * others] for group in given]).astype(np.float32)
    found = np.zeros(len(documents), np.uint8), np.full(len(documents), np.nan, np.float32)
    scores = (labels + rng.normal(0, 1, len(documents))).astype(np.float32)
    derive(
        opened,
        folder,
        "train",
        NewCandidates(np.asarray(groups.queries), ends, documents, labels, *found, scores),
        {},
        [],
    )
    return folder


def write_beir(folder: Path, corpus: Mapping[str, str], queries: Mapping[str, str], **qrels: str) -> Path:
    """A folder in BEIR's layout: texts by their ids, and the judgements of each split, without the header."""
    import json

    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, texts in {"corpus": corpus, "queries": queries}.items():
        lines = (json.dumps({"_id": i, "title": "", "text": text}) + "\n" for i, text in texts.items())
        (folder / f"{name}.jsonl").write_text("".join(lines))
    for split, rows in qrels.items():
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return folder


def write_classes(folder: Path, tokenizer_json: Path, count: int = 120, seed: int = 5) -> Path:
    """A collection of sentence pairs with three classes and a split `train`."""
    import json

    texts = [sentences[0] for sentences in documents(2 * count, seed)]
    names = ("entailment", "neutral", "contradiction")
    pairs = zip(texts[:count], texts[count:], strict=True)
    rows = [{"premise": a, "hypothesis": b, "label": names[i % 3]} for i, (a, b) in enumerate(pairs)]
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build("nli", [folder / "train.jsonl"], folder / "collection", tokenizer.load(tokenizer_json))
    return folder / "collection"


def write_recipe(path: Path, **values: object) -> Path:
    """A recipe file of plain values."""
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


def seed_recipe(path: Path, shards: Path, **changes: object) -> Path:
    """A SEED run small enough for a test: 4 lanes, 2 micro-batches of 4 blocks a step, fp32, no dropout."""
    values: dict[str, Any] = {
        "run": str(path.with_suffix("")),
        "steps": 8,
        "log_every": 1,
        "deepspeed": "cpu",
        "data": {"shards": str(shards), "lanes": 4, "window": 2},
        "batch": {"size": 8, "micro": 4},
        "trunk": {**TRUNK, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        "method": {"name": "seed", "max_tokens": 32, "decoder_layers": 2},
        "optimizer": {"lr": 1e-3, "warmup_steps": 4},
        "checkpoint": {"every": 4},
    }
    values |= changes
    if values["method"]["name"] == "distil" and "data" not in changes:
        values["data"]["teacher"] = str(vectors_beside(shards))
    return write_recipe(path, **values)


def vectors_beside(texts: Path) -> Path:
    """Where the fixtures `taught_shards` and `taught_collection` put the teacher's vectors of texts."""
    return texts.with_name(f"{texts.name}-vectors")


def finetune_values(run: Path, collection: Path, *, method: Mapping[str, Any] | None = None, **changes: Any) -> Any:
    """The values of a siamese fine-tuning small enough for a test; it needs a `trunk` or `init_from`.

    Those of `method` are added, and take the place of those of the same name; all other changes replace whole keys.
    """
    values = {
        "run": str(run),
        "steps": 2,
        "log_every": 1,
        "deepspeed": "cpu",
        "data": {"collection": str(collection), "lanes": 4, "window": 2},
        "batch": {"size": 8, "micro": 4},
        "method": {"name": "siamese", "max_query_tokens": 16, "max_document_tokens": 32, **(method or {})},
        "optimizer": {"lr": 1e-3},
    }
    return {**values, **changes}


def finetune_recipe(path: Path, collection: Path, **changes: Any) -> Path:
    """A recipe of `finetune_values`; its run has the recipe's name."""
    return write_recipe(path, **finetune_values(path.with_suffix(""), collection, **changes))


@cache
def forked_python() -> Path:
    """A `python` that is forked, with `deepspeed` beside it; what forked commands start is forked by it, too."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = Path(stack.enter_context(TemporaryDirectory()))
    stack.enter_context(warm_python.programs(folder))
    return folder / "python"


def _forked_environment(port: int | None = None, **variables: object) -> dict[str, str]:
    """Return the variables of a forked command: what it starts as `python` is forked, too."""
    forked = {"MASTER_PORT": port or free_port(), warm.EXECUTABLE: forked_python()}
    return environment() | {name: str(value) for name, value in {**forked, **variables}.items()}


def launch_command(launcher: Path, ranks: int, module: str, *arguments: object, port: int | None = None) -> list[str]:
    """The command line of DeepSpeed's launcher for `ranks` processes on this host."""
    started = [str(launcher), "--num_accelerators", str(ranks), "--master_port", str(port or free_port())]
    return [*started, "--module", module, *map(str, arguments)]


def launch(
    ranks: int,
    module: str,
    *arguments: object,
    port: int | None = None,
    launcher: Path | None = None,
    **variables: object,
) -> subprocess.CompletedProcess[str]:
    """Run ranks to their end, with environment variables; the caller checks the exit code and the output.

    They are forked from a process that has their imports, or started by DeepSpeed's launcher: LAUNCHER as a user would.
    """
    if launcher:
        command = launch_command(launcher, ranks, module, *arguments, port=port)
        typed = environment() | {name: str(value) for name, value in variables.items()}
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=warm.PATIENCE, env=typed)
    return warm.run(module, *map(str, arguments), ranks=ranks, environment=_forked_environment(port, **variables))


def run(
    module: str, *arguments: object, timeout: float = warm.PATIENCE, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m module argument ...` to its end, with environment variables, forked as in `launch`."""
    variables = _forked_environment(**variables)
    return warm.run(module, *map(str, arguments), ranks=0, environment=variables, timeout=timeout)


def start(
    ranks: int, module: str, *arguments: object, printed: Path, launcher: Path | None = None
) -> warm.Started | subprocess.Popen[bytes]:
    """Start ranks in the same two ways, as the leader of a session; append their output to a file."""
    if launcher:
        command = launch_command(launcher, ranks, module, *arguments)
        with open(printed, "a") as out:
            return subprocess.Popen(
                command, cwd=ROOT, env=environment(), stdout=out, stderr=out, start_new_session=True
            )
    variables = _forked_environment()
    return warm.start(module, *map(str, arguments), ranks=ranks, environment=variables, out=printed, err=printed)


def environment() -> dict[str, str]:
    """This process's environment, on the CPU, without the variables of a distributed run."""
    dropped = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
    return {**{k: v for k, v in os.environ.items() if k not in dropped}, "DS_ACCELERATOR": "cpu"}


def scalars(run: Path, tag: str) -> dict[int, float]:
    """A TensorBoard scalar of a run by step: the exact fp32 values that were written."""
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {event.step: event.value for event in events.Scalars(tag)}
