"""What each target of a method's losses hangs on, found by trying: the figure on a method's page.

One input token after another is replaced, and a target hangs on it where its own loss then changes. Batcher and model
are the recipe's own, the model with random weights and in fp64; the text is two documents of a few words.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from data_prep.errors import InputError
from models.encoder import TrunkModel
from models.losses import IGNORED
from models.task import MicroBatch, Vocabulary
from trainer.keyed import keyed_rngs
from trainer.methods import PRETRAINING, as_input_error, model_of, trunk_of
from trainer.plots import COLORS, new_figure, save
from trainer.recipe import PretrainRecipe

TEXT = (
    ("rain fell all night", "the river rose", "at noon the bridge was gone"),
    ("she tuned an old cello", "nobody heard it", "then she played"),
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = [*SPECIAL, *dict.fromkeys(" ".join(chain(*TEXT)).split())]
EXAMPLES = 2  # at most, of which a micro-batch is made
SMALLEST = 1e-10  # change of a loss; the rounding of fp64 is far below
INCH, PALE = 0.14, "#ececec"  # of a square

Arrays = dict[str, np.ndarray]


class Wiring(NamedTuple):
    """What the targets of one loss hang on; padding is no input."""

    targets: list[str]  # what is to be told: a token, a class, a passage
    inputs: list[tuple[str, str]]  # the array that a token is in, and the token
    hangs: np.ndarray  # bool [targets, inputs]


def wiring(recipe: PretrainRecipe) -> dict[str, Wiring]:
    """What each target of a small micro-batch hangs on, by loss; InputError where the method makes none of TEXT."""
    model, batch = _made(recipe)
    words = [*WORDS, *(f"[CLS{i}]" for i in range(2, 2 + model.trunk.config.vocab_size - len(WORDS)))]
    ids = {name: array for name, array in batch.arrays.items() if name.endswith("_ids")}
    places = [(name, tuple(place)) for name, array in ids.items() for place in np.argwhere(array)]  # 0 is padding
    inputs = [(name, words[ids[name][place]]) for name, place in places]
    rows: dict[str, list[tuple[str, list[bool]]]] = {}
    for target, alone in _targets(batch.arrays, words):
        own = _losses(model, alone)
        others = [_losses(model, _with_another(alone, name, place)) for name, place in places]
        for loss, value in own.items():
            if value:  # 0: the target is none of this loss's
                rows.setdefault(loss, []).append((target, [abs(o[loss] - value) > SMALLEST for o in others]))
    return {
        loss: Wiring([target for target, _ in found], inputs, np.array([hangs for _, hangs in found]))
        for loss, found in rows.items()
    }


def _made(recipe: PretrainRecipe) -> tuple[TrunkModel, MicroBatch]:
    method = recipe.method
    how = PRETRAINING[type(method)]
    size = {"vocab_size": len(WORDS) + how.own_tokens(method), "pad_token_id": 0}
    torch.manual_seed(recipe.seed)
    model = model_of(method, trunk_of({"model_type": "bert", **(recipe.trunk or {}), **size}, "trunk")).double().eval()
    with as_input_error("method"):
        batcher = how.batcher(method, Vocabulary(len(WORDS), pad=0, unk=1, cls=2, sep=3, mask=4))
    number = {word: i for i, word in enumerate(WORDS)}
    documents = [[np.array([number[word] for word in segment.split()]) for segment in text] for text in TEXT]
    examples = batcher.examples(documents)[:EXAMPLES]
    if not examples:
        raise InputError(f"method: {method.name} makes no example of two documents of a few words each")
    return model, batcher.micro_batch(examples, keyed_rngs("wiring", [(recipe.seed, i) for i in range(len(examples))]))


def _targets(arrays: Arrays, words: list[str]) -> Iterator[tuple[str, Arrays]]:
    """Each target's name, and the micro-batch without the others."""
    none = {name: np.full_like(array, IGNORED) for name, array in arrays.items() if name.endswith("_targets")}
    for name in none:
        names = (
            words if name.replace("_targets", "_positions") in arrays else ("false", "true")
        )  # of a token, of a pair
        for place in map(tuple, np.argwhere(arrays[name] != IGNORED)):
            target = none[name].copy()
            target[place] = arrays[name][place]
            yield names[target[place]], arrays | none | {name: target}
    for query, passages in enumerate(arrays.get("allowed", ())):  # of a softmax over the micro-batch's passages
        allowed = np.eye(len(passages), dtype=bool)  # a query with nothing to be told from has no loss
        allowed[query] = passages
        yield f"passage {query + 1}", arrays | {"allowed": allowed}


def _losses(model: TrunkModel, arrays: Arrays) -> dict[str, float]:
    with torch.inference_mode():
        losses = model(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    return {name: float(loss) for name, loss in losses.items()}


def _with_another(arrays: Arrays, name: str, place: tuple[int, ...]) -> Arrays:
    """The micro-batch with another word at one place."""
    ids = arrays[name].copy()
    ids[place] = len(SPECIAL) + (ids[place] == len(SPECIAL))
    return arrays | {name: ids}


def draw(found: dict[str, Wiring], out: Path) -> Path:
    """Targets downwards, a colour a loss, and input tokens across: filled where one hangs on the other."""
    from matplotlib.colors import ListedColormap

    inputs = next(iter(found.values())).inputs
    targets = [target for one in found.values() for target in one.targets]
    filled = np.concatenate([one.hangs * (i + 1) for i, one in enumerate(found.values())])  # [targets, inputs]
    figure, (panel,) = new_figure(1, width=INCH * len(inputs) + 1.5, height=INCH * len(targets) + 1.2)
    shades = ListedColormap([PALE, *COLORS[: len(found)]])
    panel.pcolormesh(filled, cmap=shades, vmin=-0.5, vmax=len(found) + 0.5, edgecolors="white", linewidth=0.5)
    panel.set_aspect("equal")
    panel.invert_yaxis()
    panel.set_yticks(np.arange(len(targets)) + 0.5, targets, fontsize=7)
    panel.set_xticks(np.arange(len(inputs)) + 0.5, [token for _, token in inputs], rotation=90, fontsize=7)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    for first, last, name in _runs([name for name, _ in inputs]):
        panel.axvline(last, color="black", linewidth=0.8 * (last < len(inputs)))
        panel.text((first + last) / 2, -0.5, name, ha="center", va="bottom", fontsize=8)
    losses = [loss for loss, one in found.items() for _ in one.targets]
    for (first, last, loss), color in zip(_runs(losses), COLORS, strict=False):
        panel.text(len(inputs) + 0.5, (first + last) / 2, f"loss {loss}", va="center", fontsize=8, color=color)
    return save(figure, out)


def _runs(names: list[str]) -> Iterator[tuple[int, int, str]]:
    """Where each stretch of one name begins, where it ends, and the name."""
    for name, places in groupby(range(len(names)), key=names.__getitem__):
        first, *others = places
        yield first, first + len(others) + 1, name
