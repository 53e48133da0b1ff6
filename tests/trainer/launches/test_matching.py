"""Every matching model, from a collection to a trained run: real ranks, precisions and ZeRO stages agree."""

from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from deepsiam.models.matching.dual_encoder import DualEncoderConfig
from deepsiam.models.registry import MATCHING
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.yaml_file import read
from tests import toy
from tests.trainer.many_runs import configs, job_of, train, train_in_all_ways

pytestmark = pytest.mark.slow  # every launch is real processes, about ten seconds

# for every model, also those registered later: a negative for models that have no others
KEYS: dict[str, Any] = {"negatives_per_query": 1}
# scores near 1, so that half-precision rounding errors do not grow from step to step
OWN: dict[str, dict[str, Any]] = {
    "siamese": {"similarity": "cosine", "temperature": 0.1},
    "poly_encoder": {"m": 8},
    "colbert": {"dimension": 16, "temperature": 4.0},
    "sparse": {
        "query": "table",
        "temperature": 20.0,
        "regularise": {"query": {"l1": 0.01}, "document": {"flops": 0.01}, "ramp": 2},
    },
    "duobert": {"max_duel_tokens": 64},
    "label_ranker": {
        "template": "{query}\n{passages}\n",
        "passage": "{label} {passage}\n",
        "labels": [*"ABC"],
        "max_prompt_tokens": 64,
        "max_document_tokens": 20,
    },
    "cross_thought_pairs": {"classes": 3, "negatives_per_query": 0},
    # sums over the vocabulary overflow in the first steps of fp16, which DeepSpeed skips
    "tilde": {"negatives_per_query": 0, "loss": {"query_likelihood": 0.01, "document_likelihood": 0.01}},
}
OF_CLASSES = ("cross_thought_pairs",)
DECODERS = ("label_ranker",)
SEVERAL = "siamese_several"  # losses: of the documents of the step, and of each query's scored candidates
ALL = [*MATCHING, SEVERAL]
TRUNK = {  # different texts get different vectors
    **toy.TRUNK,
    "initializer_range": 0.2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
OF_STEP = [  # models that can be trained on negatives of the step
    name
    for name, config in MATCHING.items()
    if issubclass(config, DualEncoderConfig) and "step" in get_args(config.model_fields["negatives"].annotation)
]
TRUNKS = {
    **dict.fromkeys(OF_CLASSES, {**TRUNK, "initializer_range": 0.05}),  # logits near 1
    **dict.fromkeys(DECODERS, {**TRUNK, "initializer_range": 0.05, "is_decoder": True}),
}
ONE_LANE = ["data.lanes=1", "data.window=8", "steps=2", "checkpoint.every=2"]
STEPS = 2  # the second loss depends on the first update
# tolerated loss difference for other numbers of ranks and ZeRO stages, by precision, as a share of the largest loss
TOLERANCE = {"cpu": 1e-5, "bf16": 3e-2, "fp16": 2e-3}


@pytest.fixture(scope="module")
def recipes(
    toy_collection: Path, toy_classes: Path, toy_scored: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """A recipe of every model, and one of several losses."""
    folder, collections = tmp_path_factory.mktemp("matching"), (toy_collection, toy_classes)
    every = {
        name: toy.finetune_recipe(
            folder / f"{name}.yaml",
            collections[name in OF_CLASSES],
            steps=STEPS,
            trunk=TRUNKS.get(name, TRUNK),
            method={"name": name, **KEYS, **OWN.get(name, {})},
            optimizer={"lr": 1e-3, "eps": 1e-3},  # with a small eps, rounding alone could move a weight by a whole lr
            checkpoint={"every": STEPS},
        )
        for name in MATCHING
    }
    several = {
        "loss": {"softmax": 1.0, "kl": 0.5},
        "negatives": "step",
        "candidates": {"per_query": 3},
        **OWN["siamese"],
    }
    same = {key: value for key, value in read(every["siamese"]).items() if key not in ("run", "method", "data")}
    return {**every, SEVERAL: toy.finetune_recipe(folder / f"{SEVERAL}.yaml", toy_scored, method=several, **same)}


@pytest.fixture(scope="module")
def trained(recipes: dict[str, Path]) -> Path:
    """A folder with the runs NAME of every model, on one rank in fp32, and NAME-CONFIG, on two ranks."""
    folder = next(iter(recipes.values())).parent
    train_in_all_ways(recipes, folder)
    # the same steps, with one micro-batch and with two
    whole = [[recipes[name], f"run={folder}/{name}-whole", *ONE_LANE, "batch.micro=8"] for name in OF_STEP]
    steps = [[recipes[name], f"run={folder}/{name}-step", *ONE_LANE, "method.negatives=step"] for name in OF_STEP]
    train(1, [*whole, *steps], folder)
    return folder


@pytest.mark.parametrize("name", ALL)
def test_ranks_precisions_and_zero_stages_agree(trained: Path, name: str) -> None:
    terms = list(load_trained(trained / name).recipe.method.weights)
    print(f"\n{name:<14} {STEPS} losses, the largest difference from one rank in fp32, as a share of the largest loss")
    for config in configs(ALL)[name]:
        for term in terms:
            losses, seen = (toy.scalars(trained / run, f"loss/{term}") for run in (name, f"{name}-{config}"))
            assert sorted(seen) == sorted(losses) == list(range(1, 1 + STEPS))
            worst = max(abs(seen[step] - loss) for step, loss in losses.items()) / max(losses.values())
            print(f"{'':<14} {term:<10} 2 ranks {config:<11} {worst:.1e}")
            assert worst < TOLERANCE[config.split("_")[-1]]


@pytest.mark.parametrize("name", OF_STEP)
def test_negatives_of_the_step_are_those_of_all_micro_batches(trained: Path, name: str) -> None:
    whole, step = (toy.scalars(trained / f"{name}-{kind}", "loss/softmax") for kind in ("whole", "step"))
    assert len(whole) == 2  # the second loss depends on the first update
    assert step == pytest.approx(whole, rel=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_every_weight_is_trained_and_saved(trained: Path, recipes: dict[str, Path], name: str) -> None:
    before = dict(job_of(recipes[name], []).model.named_parameters())
    shifts = ("key.bias", "key_value.bias", "head.3.bias")  # they shift all logits of a softmax alike: no gradient
    for config in configs(ALL)[name]:
        after = dict(load_trained(trained / f"{name}-{config}").model.named_parameters())
        assert before.keys() == after.keys()
        same = [k for k, p in before.items() if torch.equal(p, after[k]) and not k.endswith(shifts)]
        assert same == []
