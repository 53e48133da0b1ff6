"""Golden values of training: the losses of the first steps of every method, and the data of its first micro-batches."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from deepsiam.models.registry import MATCHING, PRETRAINING
from tests import toy
from tests.golden.toy_data import ToyData
from tests.golden.values import digest, number
from tests.trainer.many_runs import job_of, train
from tests.trainer.mixed_recipe import mixed_recipe
from tests.trainer.runs import write_run

STEPS, FEW = 20, 5  # of each method; of its variants
MICRO_BATCHES = 6
LOGGED = ("loss/", "validation/", "probe/", "lr", "grad_norm", "padding_share", "examples/", "negatives/")
TIMES = ("negatives/minutes",)
TRUNK = {**toy.TRUNK, "num_hidden_layers": 1, "initializer_range": 0.2}  # different texts get different vectors
DECODER = {**TRUNK, "initializer_range": 0.05, "is_decoder": True}
TRUNKS = {"clm": DECODER, "label_ranker": DECODER, "condenser": {**TRUNK, "num_hidden_layers": 2}}
OPTIMIZER = {"lr": 1e-3, "warmup_steps": 2, "eps": 1e-3}  # a small eps would let rounding move a weight by a whole lr
LENGTHS = {"max_query_tokens": 16, "max_document_tokens": 32}
SEED = {"max_tokens": 32, "decoder_layers": 2}
PAIRS = {**LENGTHS, "similarity": "cosine", "temperature": 0.5}
COSINE = {"similarity": "cosine", "temperature": 0.1}
NEGATIVE = {"negatives_per_query": 1}
THREE = {"candidates": {"per_query": 3}}
PROMPT = {
    "template": "{query}\n{passages}\n",
    "passage": "{label} {passage}\n",
    "labels": [*"ABC"],
    "max_prompt_tokens": 64,
    "max_document_tokens": 20,
}
REGULARISED = {"query": {"l1": 0.01}, "document": {"flops": 0.01}, "ramp": 3}

PRETRAINED: dict[str, dict[str, Any]] = {
    "seed": SEED,
    "mlm": {"max_tokens": 32},
    "clm": {"max_tokens": 32},
    "ict": {"max_tokens": 32, "max_query_tokens": 16},
    "skip_thought": {"max_tokens": 24, "decoder_layers": 1},
    "cross_thought": {"sequences": 4, "sequence_tokens": 12, "special_tokens": 3},
    "poly": {"max_tokens": 48, "tokens": 400},
    "retromae": {"max_tokens": 32},
    "condenser": {"max_tokens": 32, "early_layers": 1, "head_layers": 1},
    "pairs": PAIRS,
}
PRETRAINED_VARIANTS: dict[str, dict[str, Any]] = {  # the name of the method is before the hyphen
    "seed-released": {**SEED, "variant": "released", "window": "all", "pooling": "mean", "loss_weights": {"mlm": 0.5}},
    "seed-alone": {**SEED, "cls": False, "blocks": "complete_doc"},
    "mlm-masks": {"max_tokens": 32, "mask": 0.3, "blocks": "complete_doc"},
    "ict-mean": {"max_tokens": 32, "max_query_tokens": 16, "remove": 0.5, "pooling": "mean"},
    "retromae-mean": {"max_tokens": 32, "pooling": "mean", "encoder_mask": 0.15, "decoder_mask": 0.7},
    "poly-spans": {"max_tokens": 48, "tokens": 400, "pairs": "spans"},
    "pairs-step": {**PAIRS, "pooling": "mean", "negatives": "step", "both_directions": True, "same_side": True}
    | {"query_prompt": "abc de", "prompt_in_pooling": False},
}
MATCHED: dict[str, dict[str, Any]] = {
    "siamese": COSINE,
    "poly_encoder": {"m": 8},
    "colbert": {"dimension": 16, "temperature": 4.0},
    "sparse": {"temperature": 20.0, "regularise": REGULARISED},
    "cross_encoder": NEGATIVE,
    "cross_thought_answers": NEGATIVE,
    "cross_thought_pairs": {"classes": 3},
    "duobert": {"max_duel_tokens": 64, **NEGATIVE},
    "tilde": {"loss": {"query_likelihood": 0.01, "document_likelihood": 0.01}},
    "label_ranker": {**PROMPT, "negatives_per_query": 2},
}
MATCHED_VARIANTS: dict[str, dict[str, Any]] = {
    "siamese-hinge": {**COSINE, "loss": "hinge", "negatives": "own", **NEGATIVE},
    "siamese-binary": {**COSINE, "loss": "binary", "negatives": "own", **NEGATIVE},
    "siamese-scored": {**COSINE, "negatives": "own", **THREE, "loss": {"kl": 1.0, "margin_mse": 0.5}}
    | {"teacher_scale": "min_max"},
    "siamese-scored-step": {**COSINE, "loss": {"softmax": 1.0, "kl": 0.5}, "negatives": "step", **THREE},
    "siamese-step": {**COSINE, "negatives": "step", **NEGATIVE, "learn_temperature": True},
    "siamese-towers": {**COSINE, "towers": 2, "pooling": "mean", "projection": 8, "ignore_above": 0.9},
    "siamese-states": {"pooling": "first_m", "pooled_states": 3, "kept_of_query": "end"},
    "siamese-special": {"special_tokens": 2},
    "siamese-chunks": {**COSINE, "document_chunks": 2, "query_prompt": "abc de", "document_prompt": "fg"},
    "siamese-sizes": {**COSINE, "dimensions": [16, 8]},
    "poly_encoder-first": {"m": 8, "codes": "first", "reduction": "mean"},
    "poly_encoder-last": {"m": 4, "codes": "last_and_first", "output_scaling": 0.5},
    "colbert-plain": {"dimension": 16, "temperature": 4.0, "expansion": "none", "skip_list": ["a"]},
    "sparse-lexical": {"query": "tokens", "document": "own_tokens", "head": "linear", "temperature": 20.0},
    "sparse-sum": {"temperature": 20.0, "pooling": "sum", "head": "new_mlm"},
    "cross_encoder-binary": {"loss": "binary", "pooling": "mean", "hidden_activation": "relu", "hidden_norm": True}
    | NEGATIVE,
    "cross_encoder-scored": {"loss": "margin_mse", **THREE},
    "cross_encoder-classes": {"loss": "classes", "classes": 3},
    "label_ranker-binary": {**PROMPT, "template": "{query}\n{document}\n", "labels": ["a", "b"], "loss": "binary"}
    | {"negatives_per_query": 2},
    "label_ranker-scored": {**PROMPT, "loss": "rank_net", **THREE},
}


def _methods(*tables: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the keys of every run's method, with its name."""
    return {run: {"name": run.split("-")[0], **keys} for table in tables for run, keys in table.items()}


def _pretraining(data: ToyData, folder: Path, start: Path) -> dict[str, Path]:
    recipes = {}
    for name, method in _methods(PRETRAINED, PRETRAINED_VARIANTS).items():
        changes: dict[str, Any] = {
            "steps": STEPS if name in PRETRAINED else FEW,
            "trunk": TRUNKS.get(method["name"], TRUNK),
            "method": method,
            "optimizer": OPTIMIZER,
            "checkpoint": {"every": STEPS},
        }
        if method["name"] == "poly":
            changes["batch"] = {"size": 2, "micro": 1}
        shards = data.pairs if method["name"] == "pairs" else data.shards
        recipes[name] = toy.seed_recipe(folder / f"{name}.yaml", shards, **changes)
    few = {"steps": FEW, "checkpoint": {"every": FEW}}
    mix = {"first": {"shards": str(data.shards), "weight": 3}, "second": {"shards": str(data.held_out), "weight": 1}}
    held_out = {"shards": str(data.held_out), "every": 3}
    others: dict[str, dict[str, Any]] = {
        "seed-frozen": {
            "init_from": str(start),
            "trunk": None,
            "optimizer": OPTIMIZER,
            "method": {"name": "seed", **SEED, "freeze_encoder": True},
        },
        "seed-mixed": {
            "trunk": TRUNK,
            "data": {"mix": mix, "lanes": 4, "window": 2},
            "optimizer": {**OPTIMIZER, "name": "adamax", "schedule": "inverse_sqrt", "clip": 0.5},
            "validation": held_out,
        },
        "mlm-continued": {
            "init_from": str(start),
            "trunk": None,
            "method": {"name": "mlm", "max_tokens": 32},
            "optimizer": {**OPTIMIZER, "schedule": "wsd", "decay_steps": 2, "plateau": {"factor": 0.5}, "train": 1},
            "validation": held_out,
            "activation_checkpointing": True,
        },
    }
    return recipes | {
        name: toy.seed_recipe(folder / f"{name}.yaml", data.shards, **few, **changes)
        for name, changes in others.items()
    }


def _finetuning(data: ToyData, folder: Path, start: Path) -> dict[str, Path]:
    recipes = {}
    for name, method in _methods(MATCHED, MATCHED_VARIANTS).items():
        scored = "scored" in name
        classes = "classes" in method
        collection = data.scored if scored else data.classes if classes else data.collection
        recipes[name] = toy.finetune_recipe(
            folder / f"{name}.yaml",
            collection,
            steps=STEPS if name in MATCHED else FEW,
            trunk=TRUNKS.get(method.get("name", ""), TRUNK),
            method=method,
            optimizer=OPTIMIZER,
            checkpoint={"every": STEPS},
        )
    few: dict[str, Any] = {"steps": FEW, "checkpoint": {"every": FEW}, "optimizer": OPTIMIZER}
    lora = {"lora": {"rank": 4, "targets": ["query", "value"]}}
    mined = {"refresh": {"every": 2, "depth": 1000}, "method": {**COSINE, "hard_negatives": 1}}
    others: dict[str, dict[str, Any]] = {
        "adapters": {"init_from": str(start), "method": COSINE, "optimizer": {**OPTIMIZER, "train": lora}},
        "refresh": {"trunk": TRUNK, **mined},
        "continued": {
            "init_from": str(start),
            "method": COSINE,
            "validation": {"split": "test", "every": 3},
            "probe": {"split": "test", "every": 3},
            "checkpoint": {"every": 3, "keep_best": "ndcg@10"},
        },
        "random": {"init_from": str(start), "method": COSINE, "random_weights": True},
    }
    for name, changes in others.items():
        path = folder / f"siamese-{name}.yaml"
        recipes[f"siamese-{name}"] = toy.finetune_recipe(path, data.collection, **{**few, **changes})
    for per in ("micro_batch", "step"):
        path = folder / f"mix-{per}.yaml"
        recipes[f"mix-{per}"] = mixed_recipe(path, data.collection, data.scored, per=per, refreshed=per == "step")
    return recipes


def recipes_of(data: ToyData, folder: Path) -> dict[str, Path]:
    """Write the recipe of every run; those that continue a run start from one with random weights."""
    assert PRETRAINED.keys() == PRETRAINING.keys()
    assert MATCHED.keys() == MATCHING.keys()
    start = write_run(folder / "start", data.shards / "tokenizer.json", seed=9, name="mlm", max_tokens=32)
    return {**_pretraining(data, folder, start), **_finetuning(data, folder, start)}


def scalars(run: Path) -> dict[str, dict[str, float]]:
    """Return what a run has logged, by tag and step, without times."""
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    tags = [tag for tag in events.Tags()["scalars"] if tag.startswith(LOGGED) and not tag.startswith(TIMES)]
    return {tag: {str(e.step): number(e.value) for e in events.Scalars(tag)} for tag in tags}


def losses(data: ToyData, folder: Path) -> dict[str, Any]:
    """Train every run, one after another in one launch."""
    recipes = recipes_of(data, folder)
    train(1, [[path] for path in recipes.values()], folder)
    return {name: scalars(folder / name) for name in recipes}


def micro_batches(data: ToyData, folder: Path) -> dict[str, Any]:
    """Hash the integers of the first micro-batches of every run, and the names of their documents."""
    found = {}
    for name, path in recipes_of(data, folder).items():
        order = job_of(path, []).order
        values = []
        for batch in islice(order.stream(order.start(), 0, 1), MICRO_BATCHES):
            arrays = batch.micro_batch.arrays
            whole = {key: array for key, array in sorted(arrays.items()) if array.dtype.kind != "f"}
            origins = np.frombuffer(repr(order.origins(batch)).encode(), np.uint8)
            values.append([batch.source, batch.lane, digest(*whole.values(), origins), sorted(arrays)])
        found[name] = {"arrays": values[0][-1], "batches": [value[:-1] for value in values]}
    return found
