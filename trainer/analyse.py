"""Look into what a pre-training has learned: the figures of the SEED paper and the case study of Cross-Thought.

python -m trainer.analyse curves --tag loss/decoder --out F.png SEED=RUN no-CLS=RUN ...      Figures 3 and 5
python -m trainer.analyse cosine --shards HELD_OUT --out F.png "k = 2"=RUN all=RUN ...        Figure 4
python -m trainer.analyse attention RUN --shards HELD_OUT                                     Table 4
python -m trainer.analyse wiring RECIPE [key=value ...] --out F.png      what each target of a method's losses hangs on
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from data_prep.errors import InputError, exit_on_input_error, printable
from data_prep.manifest import Manifest
from models.cross_thought import CrossThought
from models.encoder import encode, token_embedding
from models.losses import IGNORED
from models.seed import Seed
from trainer.extras import require
from trainer.keyed import keyed_rngs
from trainer.methods import pretrain_batcher
from trainer.plots import COLORS, Curve, new_figure, read_scalars, save, smooth
from trainer.recipe import PretrainRecipe
from trainer.recipe import load as load_recipe
from trainer.sources import ShardSource
from trainer.trained import Trained, load
from trainer.wiring import draw, wiring

EXAMPLES = 256  # blocks that the cosines are means of
SHOWN = 5  # sequences that a sequence's attention is shown of


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    chosen = _parser().parse_args(argv)
    with exit_on_input_error("trainer.analyse"):
        chosen.run(chosen)


def _curves(chosen: argparse.Namespace) -> None:
    require("matplotlib")
    curves = {name: _curve(run, chosen.tag) for name, run in chosen.runs}
    print(draw_curves(curves, chosen.tag, chosen.out))
    for name, (steps, values) in curves.items():
        print(f"{name}: {smooth(values)[-1]:.4f} at step {steps[-1]:,}")


def _curve(run: Path, tag: str) -> Curve:
    scalars = read_scalars(run)
    if tag not in scalars:
        there = ", ".join(sorted(scalars)) or "none"
        raise InputError(f"{run}: has not logged {tag}; it has {there}")
    return scalars[tag]


def draw_curves(curves: dict[str, Curve], tag: str, out: Path) -> Path:
    """One scalar of several runs over their steps, as moving averages."""
    figure, (panel,) = new_figure(1, width=6.0, height=3.8)
    for color, (name, (steps, values)) in zip(COLORS * len(curves), curves.items(), strict=False):
        panel.plot(steps, smooth(values), color=color, linewidth=2.0, label=name)
    panel.legend(frameon=False)
    panel.set_xlabel("optimizer step")
    panel.set_ylabel(f"{tag}, moving average")
    panel.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    return save(figure, out)


def _cosine(chosen: argparse.Namespace) -> None:
    require("matplotlib")
    rows = {name: cosines(load(run), chosen.shards) for name, run in chosen.runs}
    figure, (panel,) = new_figure(1, width=6.0, height=3.8)
    for color, (name, means) in zip(COLORS * len(rows), rows.items(), strict=False):
        panel.plot(np.arange(1, len(means) + 1), means, color=color, linewidth=2.0, label=name)
    panel.legend(frameon=False)
    panel.set_xlabel("position")
    panel.set_ylabel("cosine of the decoder's state and [CLS]")
    print(save(figure, chosen.out))
    for name, means in rows.items():
        quarters = ", ".join(f"{part.mean():.3f}" for part in np.array_split(means, 4))
        print(f"{name}: {quarters} (means over the four quarters of the positions)")


def cosines(trained: Trained, shards: Path) -> np.ndarray:
    """The cosine of each position's last decoder state with h_0, a mean over held-out blocks: fp64 [positions].

    Raises:
        InputError: the run is not of SEED, or its decoder has no [CLS].
    """
    model = trained.model
    if not isinstance(model, Seed) or not model.cls:
        raise InputError(f"{trained.checkpoint}: no SEED run whose decoder reads [CLS]; name one")
    sums, counts = np.zeros(0), np.zeros(0)
    for micro_batch in _micro_batches(trained, shards, EXAMPLES, 16):
        arrays = {name: torch.from_numpy(array) for name, array in micro_batch.items()}
        with torch.inference_mode():
            cls = encode(model.trunk, arrays["input_ids"], arrays["attention_mask"])[:, 0]  # [B, H]
            states = model.decoder(cls, arrays["original_ids"], token_embedding(model.trunk))  # [B, T, H]
            found = F.cosine_similarity(states, cls[:, None], dim=-1).double().numpy()  # [B, T]
        told = np.zeros(found.shape, dtype=bool)  # where there is a next token: a row's last state is untrained
        told.reshape(-1)[micro_batch["decoder_positions"][micro_batch["decoder_targets"] != IGNORED]] = True
        told, found = told[:, 1:], found[:, 1:]  # slot 0 is [CLS] itself
        longer = max(0, found.shape[1] - len(sums))
        sums, counts = np.pad(sums, (0, longer)), np.pad(counts, (0, longer))
        sums[: found.shape[1]] += (found * told).sum(0)
        counts[: found.shape[1]] += told.sum(0)
    return sums[counts > 0] / counts[counts > 0]  # no row has a next token at its last position


def _attention(chosen: argparse.Namespace) -> None:
    trained = load(chosen.run_folder)
    if not isinstance(trained.model, CrossThought):
        raise InputError(f"{trained.checkpoint}: no Cross-Thought run; name one")
    arrays = next(_micro_batches(trained, chosen.shards, 1, 1))
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    with torch.inference_mode():
        alpha = trained.model.attention(tensors["input_ids"], tensors["attention_mask"], tensors["offsets"])
    taken = alpha[0].mean(dim=(0, 1)).numpy()  # [M, M], over heads and special tokens
    for line in case_study(trained, arrays["input_ids"][0], arrays["attention_mask"][0], taken, chosen.sequence):
        print(line)


def case_study(
    trained: Trained, ids: np.ndarray, mask: np.ndarray, taken: np.ndarray, sequence: int | None
) -> Iterator[str]:
    """A masked sequence of a held-out document, and the others that its attention took most from.

    Args:
        ids, mask: int64 and bool [M, T].
        taken: [M, M], the share of attention of each sequence (row) on each.
        sequence: which; None: the one whose attention is least even.
    """
    real = np.flatnonzero(mask.any(1))
    if sequence is None:
        entropy = -(taken[real] * np.log(np.maximum(taken[real], 1e-12))).sum(1)
        sequence = int(real[entropy.argmin()])
    if sequence not in real:
        raise InputError(f"--sequence: {sequence} is none of the {len(real)} sequences of the example")

    def words(number: int) -> str:
        known = mask[number] & (ids[number] < trained.tokenizer.vocab_size)  # the method's own tokens have no spelling
        return printable(trained.tokenizer.decode(ids[number][known]))

    yield f"sequence {sequence} of {len(real)}: {words(sequence)}"
    for other in taken[sequence].argsort()[::-1][: SHOWN + 1].tolist():
        itself = " (itself)" if other == sequence else ""
        yield f"  {taken[sequence, other]:.3f}  {other}{itself}: {words(other)}"


def _wiring(chosen: argparse.Namespace) -> None:
    require("matplotlib")
    found = wiring(load_recipe(PretrainRecipe, chosen.recipe, chosen.overrides))
    for loss, one in found.items():
        print(f"{loss}: {len(one.targets)} targets, each hanging on {one.hangs.sum(1).mean():.1f} of {len(one.inputs)}")
    print(draw(found, chosen.out))


def _micro_batches(trained: Trained, shards: Path, examples: int, size: int) -> Iterator[dict[str, np.ndarray]]:
    """The arrays of the first so many examples of held-out shards, masked in the same way every time."""
    source = ShardSource(Manifest.load(shards))
    if source.manifest.tokenizer["fingerprint"] != trained.tokenizer.fingerprint:
        raise InputError(f"{shards}: made with another tokenizer than {trained.checkpoint}; name held-out shards of it")
    assert isinstance(trained.recipe, PretrainRecipe)  # its model is one of those
    batcher = pretrain_batcher(trained.recipe.method, trained.tokenizer)
    documents: list[Any] = []
    found: list[Any] = []
    for shard in range(len(source.chunks)):  # opening one reads it whole, and mostly one will do
        documents += source.read(shard, 0)
        found = batcher.examples(documents)
        if len(found) > examples:  # the last one may be short
            break
    found = found[:examples]
    for start in range(0, len(found), size):
        some = found[start : start + size]
        keys = [(start + i,) for i in range(len(some))]
        yield batcher.micro_batch(some, keyed_rngs("analyse", keys)).arrays


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainer.analyse", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    curves = commands.add_parser("curves", help="one logged scalar of several runs")
    curves.add_argument("runs", nargs="+", type=_named, metavar="NAME=RUN")
    curves.add_argument("--tag", required=True, help="as loss/decoder")
    curves.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    curves.set_defaults(run=_curves)

    cosine = commands.add_parser("cosine", help="how like [CLS] SEED's decoder states are, by position")
    cosine.add_argument("runs", nargs="+", type=_named, metavar="NAME=RUN")
    cosine.add_argument("--shards", type=Path, required=True, metavar="DIR", help="held-out shards")
    cosine.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    cosine.set_defaults(run=_cosine)

    attention = commands.add_parser("attention", help="which sequences a masked one of Cross-Thought drew on")
    attention.add_argument("run_folder", type=Path, metavar="RUN")
    attention.add_argument("--shards", type=Path, required=True, metavar="DIR", help="held-out shards")
    attention.add_argument("--sequence", type=int, metavar="N", help="which (the one that is choosiest)")
    attention.set_defaults(run=_attention)

    wired = commands.add_parser("wiring", help="what each target of a method's losses hangs on")
    wired.add_argument("recipe", type=Path, metavar="RECIPE")
    wired.add_argument("overrides", nargs="*", metavar="key=value", help="as method.max_tokens=16, for a figure to fit")
    wired.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    wired.set_defaults(run=_wiring)
    return parser


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=RUN")
    return name, Path(path)


if __name__ == "__main__":
    main()
