"""Which input tokens each target of a method's losses depends on, found by experiment: the figure on a method's page.

Each input token is replaced, one at a time; a target depends on the token if the target's own loss changes. The batcher
and the model are the recipe's; the model has random weights in fp64. The text is two documents of a few words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.figures import COLORS, new_figure, save
from deepsiam.data_prep.common.rng import keyed_rngs
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.batching.taught import TaughtBatcher
from deepsiam.models.interface import IGNORED, MicroBatch
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.cluster.planning.compute import MadeUpTeacher
from deepsiam.trainer.training.recipe.build import build_batcher, build_model, trunk_of
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load

TEXT = (
    ("rain fell all night", "the river rose", "at noon the bridge was gone"),
    ("she tuned an old cello", "nobody heard it", "then she played"),
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = [*SPECIAL, *dict.fromkeys(" ".join(chain(*TEXT)).split())]
EXAMPLES = 2  # the most examples in the micro-batch
SMALLEST = 1e-10  # the smallest change of a loss that counts; rounding errors of fp64 are far smaller
ONLY_QUERY = "only_query"  # the query whose losses are computed
SQUARE, PALE = 0.14, "#ececec"  # side in inches; color of a square where the target does not depend on the token

Arrays = dict[str, np.ndarray]


class Wiring(NamedTuple):
    """Which input tokens (without padding) the targets of one loss depend on."""

    targets: list[str]  # what is predicted: a token, a class, a passage
    inputs: list[tuple[str, str]]  # the array that a token is in, and the token
    depends: np.ndarray  # bool [targets, inputs]


def print_wiring(recipe: Path, overrides: Sequence[str], out: Path) -> None:
    """Draw the wiring of a recipe's method; print where, and on how much its targets depend."""
    require("evaluate", "matplotlib")
    wirings = wiring(load(PretrainRecipe, recipe, overrides))
    for loss, (targets, inputs, depends) in wirings.items():
        mean = depends.sum(1).mean()
        print(f"{loss}: {len(targets)} targets; each depends on {mean:.1f} of {len(inputs)} input tokens on average")
    print(draw(wirings, out))


def wiring(recipe: PretrainRecipe) -> dict[str, Wiring]:
    """Find what each target of a small micro-batch depends on; return one `Wiring` for each loss.

    Raise InputError where the method makes no example of TEXT.
    """
    model, batch = _model_and_batch(recipe)
    words = [*WORDS, *(f"[CLS{i}]" for i in range(2, 2 + model.trunk.config.vocab_size - len(WORDS)))]
    ids = {name: array for name, array in batch.arrays.items() if name.endswith("_ids")}
    places = [(name, tuple(place)) for name, array in ids.items() for place in np.argwhere(array)]  # 0 is padding
    inputs = [(name, words[ids[name][place]]) for name, place in places]
    targets: dict[str, list[str]] = {}
    depends: dict[str, list[list[bool]]] = {}
    for target, arrays in _single_targets(batch.arrays, words):
        unchanged = _losses(model, arrays)
        changed = [_losses(model, _replace_token(arrays, name, place)) for name, place in places]
        for loss, value in unchanged.items():
            if value:  # 0: another loss has this target
                targets.setdefault(loss, []).append(target)
                depends.setdefault(loss, []).append([abs(losses[loss] - value) > SMALLEST for losses in changed])
    return {loss: Wiring(targets[loss], inputs, np.array(depends[loss])) for loss in targets}


def _model_and_batch(recipe: PretrainRecipe) -> tuple[TrunkModel, MicroBatch]:
    method = recipe.method
    size = {"vocab_size": len(WORDS) + method.added_tokens, "pad_token_id": 0}
    torch.manual_seed(recipe.seed)
    trunk = trunk_of({"model_type": "bert", **(recipe.trunk or {}), **size}, "trunk")
    model = build_model(method, trunk).double().eval()
    batcher = build_batcher(method, Vocabulary(len(WORDS), pad=0, unk=1, cls=2, sep=3, mask=4))
    if method.learns_vectors:
        batcher = TaughtBatcher(batcher, MadeUpTeacher(getattr(method, "teacher_width", None) or 1))
    number = {word: i for i, word in enumerate(WORDS)}
    texts = [[np.array([number[word] for word in segment.split()]) for segment in text] for text in TEXT]
    segments = 2 if method.needs_pairs else None
    examples = batcher.examples([TokenDocument(text[:segments]) for text in texts])[:EXAMPLES]
    if not examples:
        raise InputError(f"method: {method.name} makes no example of two documents of a few words each")
    return model, batcher.micro_batch(examples, keyed_rngs("wiring", [(recipe.seed, i) for i in range(len(examples))]))


def _single_targets(arrays: Arrays, words: list[str]) -> Iterator[tuple[str, Arrays]]:
    """Yield each target's name, and the micro-batch with only this target."""
    ignored = {name: np.full_like(array, IGNORED) for name, array in arrays.items() if name.endswith("_targets")}
    for name in ignored:
        are_tokens = name.replace("_targets", "_positions") in arrays  # else targets of pairs of texts
        names = words if are_tokens else ("false", "true")
        for place in map(tuple, np.argwhere(arrays[name] != IGNORED)):
            target = ignored[name].copy()
            target[place] = arrays[name][place]
            yield names[target[place]], arrays | ignored | {name: target}
    for query, passages in enumerate(arrays.get("allowed", ())):  # a softmax over the micro-batch's passages
        passage_mask = np.eye(len(arrays["allowed"]), len(passages), dtype=bool)  # with one allowed passage a loss is 0
        passage_mask[query] = passages
        yield f"passage {query + 1}", arrays | {"allowed": passage_mask}
    for query in range(len(arrays.get("teacher_queries", ()))):  # vectors of zeros are learned from no text
        nothing = np.zeros_like(arrays["teacher_documents"])
        yield f"query {query + 1}", arrays | {"teacher_documents": nothing, ONLY_QUERY: np.array(query)}


def _losses(model: TrunkModel, arrays: Arrays) -> dict[str, float]:
    if ONLY_QUERY in arrays:
        query = int(arrays[ONLY_QUERY])
        of_queries = {name for name in arrays if name.startswith("query_")} | {"teacher_queries", "candidates"}
        rows = {name: arrays[name][query : query + 1] for name in of_queries}
        arrays = {name: array for name, array in (arrays | rows).items() if name != ONLY_QUERY}
    with torch.inference_mode():
        losses = model(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    return {name: float(loss) for name, loss in losses.items()}


def _replace_token(arrays: Arrays, name: str, place: tuple[int, ...]) -> Arrays:
    ids = arrays[name].copy()
    ids[place] = len(SPECIAL) + (ids[place] == len(SPECIAL))
    return arrays | {name: ids}


def draw(wirings: dict[str, Wiring], out: Path) -> Path:
    """Plot targets as rows, one colour per loss, and input tokens as columns: filled where one depends on the other."""
    from matplotlib.colors import ListedColormap

    inputs = next(iter(wirings.values())).inputs
    targets = [target for wiring in wirings.values() for target in wiring.targets]
    color = np.concatenate([wiring.depends * (i + 1) for i, wiring in enumerate(wirings.values())])  # [targets, inputs]
    figure, (panel,) = new_figure(1, width=SQUARE * len(inputs) + 1.5, height=SQUARE * len(targets) + 1.2)
    shades = ListedColormap([PALE, *COLORS[: len(wirings)]])
    panel.pcolormesh(color, cmap=shades, vmin=-0.5, vmax=len(wirings) + 0.5, edgecolors="white", linewidth=0.5)
    panel.set_aspect("equal")
    panel.invert_yaxis()
    panel.set_yticks(np.arange(len(targets)) + 0.5, targets, fontsize=7)
    panel.set_xticks(np.arange(len(inputs)) + 0.5, [token for _, token in inputs], rotation=90, fontsize=7)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    for start, end, name in _runs([name for name, _ in inputs]):
        panel.axvline(end, color="black", linewidth=0.8 * (end < len(inputs)))
        panel.text((start + end) / 2, -0.5, name, ha="center", va="bottom", fontsize=8)
    losses = [loss for loss, wiring in wirings.items() for _ in wiring.targets]
    for (start, end, loss), shade in zip(_runs(losses), COLORS, strict=False):
        panel.text(len(inputs) + 0.5, (start + end) / 2, f"loss {loss}", va="center", fontsize=8, color=shade)
    return save(figure, out)


def _runs(names: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and name of each run of equal names."""
    for name, places in groupby(range(len(names)), key=names.__getitem__):
        start, *places_after = places
        yield start, start + len(places_after) + 1, name
