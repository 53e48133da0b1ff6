"""Draw what a model has learned: learning curves, the papers' figures, what a loss depends on.

python -m trainer.analyse curves --tag loss/decoder --out F.png SEED=RUN no-CLS=RUN ...      Figures 3 and 5
python -m trainer.analyse cosine --shards HELD_OUT --out F.png "k = 2"=RUN all=RUN ...        Figure 4
python -m trainer.analyse learning --collection C --split dev --over steps --out F.png SEED=RUN ...       Figure 7
python -m trainer.analyse attention RUN --shards HELD_OUT                                     Table 4
python -m trainer.analyse wiring RECIPE [key=value ...] --out F.png   what each target of a method's losses depends on
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.figures import COLORS, new_figure, save
from deepsiam.data_prep.common.files import make_directory, refuse_folder
from deepsiam.data_prep.common.parser import Parser
from deepsiam.models.pretraining.cross_thought import CrossThought
from deepsiam.trainer.analysis import learning
from deepsiam.trainer.analysis.cross_thought import case_study
from deepsiam.trainer.analysis.curves import draw_curves, read_curve
from deepsiam.trainer.analysis.held_out import held_out_arrays
from deepsiam.trainer.analysis.plots import smooth
from deepsiam.trainer.analysis.seed import cosines
from deepsiam.trainer.analysis.wiring import draw, wiring
from deepsiam.trainer.ranking.evaluation.metrics import more_metrics
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load as load_recipe


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    with exit_on_input_error("trainer.analyse"):
        arguments.run(arguments)


def _curves(arguments: argparse.Namespace) -> None:
    require("evaluate", "matplotlib")
    curves = {name: read_curve(run, arguments.tag) for name, run in arguments.runs}
    print(draw_curves(curves, arguments.tag, arguments.out))
    for name, (steps, values) in curves.items():
        print(f"{name}: {smooth(values)[-1]:.4f} at step {steps[-1]:,}")


def _cosine(arguments: argparse.Namespace) -> None:
    require("evaluate", "matplotlib")
    rows = {name: cosines(load_trained(run), arguments.shards) for name, run in arguments.runs}
    figure, (panel,) = new_figure(1, width=6.0, height=3.8)
    for color, (name, means) in zip(COLORS * len(rows), rows.items(), strict=False):
        panel.plot(np.arange(1, len(means) + 1), means, color=color, linewidth=2.0, label=name)
    panel.legend(frameon=False)
    panel.set_xlabel("position")
    panel.set_ylabel("cosine of the decoder's state and [CLS]")
    print(save(figure, arguments.out))
    for name, means in rows.items():
        quarters = ", ".join(f"{part.mean():.3f}" for part in np.array_split(means, 4))
        print(f"{name}: {quarters} (means over the four quarters of the positions)")


def _learning(arguments: argparse.Namespace) -> None:
    require("evaluate", "matplotlib", "bm25s", "ir_measures", "pytrec_eval")
    more_metrics([arguments.metric], "--metric")
    refuse_folder(arguments.out)
    results = arguments.out.with_suffix(".json")
    if results == arguments.out:
        raise InputError(f"--out {results}: the numbers are kept there, beside the figure: name a file FIGURE.png")
    task = Task.of(Collection.open(arguments.collection), arguments.split)
    make_directory(arguments.out.parent)
    curves = learning.measure(task, arguments.split, arguments.runs, arguments.over, arguments.metric, results)
    flat = learning.bm25(task, arguments.metric) if arguments.bm25 else None
    print("\n".join(learning.table(curves, arguments.over)))
    if flat is not None:
        print(f"BM25 {flat:.4f}")
    print(learning.draw(curves, arguments.over, arguments.metric, flat, arguments.out))


def _attention(arguments: argparse.Namespace) -> None:
    trained = load_trained(arguments.run_folder)
    if not isinstance(trained.model, CrossThought):
        raise InputError(f"{trained.checkpoint}: not a Cross-Thought run; name one")
    arrays = next(held_out_arrays(trained, arguments.shards, 1, 1))
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    with torch.inference_mode():
        alpha = trained.model.attention(tensors["input_ids"], tensors["attention_mask"], tensors["offsets"])
    attention = alpha[0].mean(dim=(0, 1)).numpy()  # [M, M], over heads and special tokens
    for line in case_study(trained, arrays["input_ids"][0], arrays["attention_mask"][0], attention, arguments.sequence):
        print(line)


def _wiring(arguments: argparse.Namespace) -> None:
    require("evaluate", "matplotlib")
    wirings = wiring(load_recipe(PretrainRecipe, arguments.recipe, arguments.overrides))
    for loss, (targets, inputs, depends) in wirings.items():
        mean = depends.sum(1).mean()
        print(f"{loss}: {len(targets)} targets; each depends on {mean:.1f} of {len(inputs)} input tokens on average")
    print(draw(wirings, arguments.out))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="trainer.analyse", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    curves = commands.add_parser("curves", help="draw one logged scalar of several runs")
    curves.add_argument("runs", nargs="+", type=_named, metavar="NAME=RUN")
    curves.add_argument("--tag", required=True, help="tag of the scalar, such as loss/decoder")
    curves.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    curves.set_defaults(run=_curves)

    cosine = commands.add_parser("cosine", help="draw how similar SEED's decoder states are to [CLS], by position")
    cosine.add_argument("runs", nargs="+", type=_named, metavar="NAME=RUN")
    cosine.add_argument("--shards", type=Path, required=True, metavar="DIR", help="held-out shards")
    cosine.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    cosine.set_defaults(run=_cosine)

    learned = commands.add_parser("learning", help="draw how well fine-tuned models rank, over steps or labels")
    learned.add_argument(
        "runs", nargs="+", type=_named, metavar="NAME=RUN", help="runs with the same name form one curve"
    )
    learned.add_argument("--collection", type=Path, required=True, help="the collection to rank")
    learned.add_argument("--split", required=True, help="split with the queries")
    learned.add_argument("--over", choices=learning.OVER, required=True, help="the horizontal axis")
    learned.add_argument("--metric", default="mrr@10", metavar="NAME@K", help="mrr, ndcg, recall or map (mrr@10)")
    learned.add_argument("--bm25", action="store_true", help="also draw BM25, as a horizontal line")
    learned.add_argument(
        "--out", type=Path, required=True, metavar="FILE.png", help="the figure; its numbers are kept in FILE.json"
    )
    learned.set_defaults(run=_learning)

    attention = commands.add_parser(
        "attention", help="print which sequences a masked sequence of Cross-Thought attends to"
    )
    attention.add_argument("run_folder", type=Path, metavar="RUN")
    attention.add_argument("--shards", type=Path, required=True, metavar="DIR", help="held-out shards")
    attention.add_argument(
        "--sequence",
        type=int,
        metavar="N",
        help="number of the sequence (default: the one whose attention is least even)",
    )
    attention.set_defaults(run=_attention)

    wiring_ = commands.add_parser("wiring", help="draw what each target of a method's losses depends on")
    wiring_.add_argument("recipe", type=Path, metavar="RECIPE")
    wiring_.add_argument(
        "overrides", nargs="*", metavar="key=value", help="such as method.max_tokens=16, for a small figure"
    )
    wiring_.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    wiring_.set_defaults(run=_wiring)
    return parser


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=RUN")
    return name, Path(path)


if __name__ == "__main__":
    main()
