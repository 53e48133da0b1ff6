"""Figures 3, 4 and 5 of the SEED paper from our own runs: what a decoder learns from [CLS], and how it changes [CLS].

    python -m benchmarks.claims.seed_figures [--steps N] [--data FOLDER] [--out FOLDER]     (after make demo)

Pre-trains on Wikipedia, by the small recipes, a masked LM and decoders whose three layers see the last two tokens or
the whole past, each in the three settings of the paper's section 4.3 and in a fourth: a decoder without [CLS] that has
the same embeddings as RoBERTa-CLS. As these are frozen, the comparison shows the effect of RoBERTa-CLS's [CLS].
trainer.analyse draws the loss curves, and the cosine between the decoders' states and [CLS] in held-out articles. A
stopped run resumes.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.claims.material import TOKENIZER, add_data_option, prepare
from benchmarks.common.training import file_name, run_or_exit, train
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error

ATTENTION = {"window 2": 2, "whole past": "all"}  # tokens that a decoder layer sees
FROZEN: dict[str, object] = {"trunk": "null", "method.freeze_encoder": "true"}  # and init_from=the masked LM
SETTINGS: dict[str, dict[str, object]] = {
    "SEED": {},
    "RoBERTa-CLS": FROZEN,
    "no-CLS": {"method.cls": "false", "method.loss_weights.mlm": 0},
    "no-CLS, the embeddings of RoBERTa-CLS": {"method.cls": "false", **FROZEN},
}


def articles(data: Path, out: Path) -> Path:
    """Prepare shards of Wikipedia's articles, some of them held out, unless they exist; return the folder."""
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; name one with wiki")
    if not TOKENIZER.is_file():
        raise InputError(f"{TOKENIZER}: no such tokenizer; run: make demo")
    prepare("wikipedia", data, out, TOKENIZER, "--held-out", "0.02")
    return out


def pretrained(shards: Path, out: Path, steps: int) -> dict[str, Path]:
    """Train every run that is not finished yet; return their folders by name: "mlm", and "SETTING, ATTENTION"."""
    common = {"data.shards": shards, "steps": steps, "log_every": 20, "checkpoint.every": 500}
    runs = {"mlm": out / "mlm"}
    train("trainer.pretrain", "recipes/mlm_small.yaml", runs["mlm"], common)
    for attention, window in ATTENTION.items():
        for setting, changes in SETTINGS.items():
            run = runs[f"{setting}, {attention}"] = out / file_name(f"{setting}-{attention}")
            start = {"init_from": runs["mlm"]} if "method.freeze_encoder" in changes else {}
            changes = {**common, "method.window": window, **start, **changes}
            train("trainer.pretrain", "recipes/seed_small.yaml", run, changes)
    return runs


def draw(runs: Mapping[str, Path], held_out: Path, out: Path) -> None:
    """Write the figures as PNG files into `out`, and print the numbers of each."""
    for letter, attention in zip("ba", ATTENTION, strict=True):
        curves = {setting: runs[f"{setting}, {attention}"] for setting in SETTINGS}
        _analyse(f"figure_3{letter}", curves, out, "curves", "--tag", "loss/decoder")
    seed = {attention: runs[f"SEED, {attention}"] for attention in ATTENTION}
    _analyse("figure_4", seed, out, "cosine", "--shards", str(held_out))
    _analyse("figure_5", {"masked LM alone": runs["mlm"], **seed}, out, "curves", "--tag", "loss/mlm")


def _analyse(name: str, runs: Mapping[str, Path], out: Path, *command: str) -> None:
    named = [f"{label}={run}" for label, run in runs.items()]
    run_or_exit([sys.executable, "-m", "trainer.analyse", *command, "--out", str(out / f"{name}.png"), *named])


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.claims.seed_figures", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=positive, default=2000, metavar="N", help="of every run (2,000)")
    add_data_option(parser)
    parser.add_argument("--out", type=Path, default=Path("runs/seed_figures"), metavar="FOLDER")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.claims.seed_figures"):
        wikipedia = articles(chosen.data, chosen.out / "data")
        draw(pretrained(wikipedia / "shards", chosen.out, chosen.steps), wikipedia / "held_out", chosen.out)


if __name__ == "__main__":
    main()
