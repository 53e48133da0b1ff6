"""`method.negatives=step` on real ranks: the same training for any number of ranks, ZeRO stage and precision."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from deepsiam.trainer.jobs.trace import digest, trace
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.data.open_pairs import pair_data
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy
from tests.trainer.many_runs import LOSS_SCALE_POWER, copy_half_way, ds_config, in_stage_3, stage_file, train

STEPS = 4
WHOLE = ["zero1_fp32", "zero3_fp32"]  # stage 2: `2-ignoring`
HALF = ["zero3_fp16"]
if toy.FULL_TESTS:
    WHOLE = [f"zero{stage}_fp32" for stage in range(4)]
    HALF = [f"zero{stage}_{precision}" for stage in (1, 3) for precision in ("bf16", "fp16")]
# streamed pairs: the keys of the method, and the ZeRO stage
STREAMED: dict[str, tuple[dict[str, Any], int]] = {
    "pairs": ({"similarity": "cosine", "temperature": 0.1, "both_directions": True, "same_side": True}, 1),
    "colbert": ({"score": {"name": "colbert", "dimension": 16}, "temperature": 4.0}, 2),
    "sparse": ({"score": {"name": "sparse", "head": "new_mlm", "query": "table"}, "temperature": 20.0}, 1),
}
NO_DROPOUT = ["trunk.hidden_dropout_prob=0", "trunk.attention_probs_dropout_prob=0"]


def recipe_of(folder: Path, collection: Path, **method: Any) -> Path:
    """Four micro-batches of two queries per step; each query has a random negative; dropout is on."""
    keys = {
        "negatives": "step",
        "negatives_per_query": 1,
        "similarity": "cosine",
        "temperature": 0.1,
        "learn_temperature": True,
        **method,
    }
    return toy.finetune_recipe(
        folder / "run.yaml",
        collection,
        steps=STEPS,
        batch={"size": 8, "micro": 2},
        trunk={**toy.TRUNK, "initializer_range": 0.2},  # different texts get different vectors
        method=keys,
        # steps change no rate; with a small eps, rounding alone could move a weight by a whole lr
        optimizer={"lr": 3e-3, "eps": 1e-3, "schedule": "constant"},
        checkpoint={"every": STEPS // 2},
        validation={"split": "test", "every": STEPS},
    )


@pytest.fixture(scope="module")
def runs(toy_collection: Path, shards: Path, pair_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs RANKS-CONFIG, RANKS-cut and RANKS-STREAMED, and one-lane runs without dropout, whole to 2.

    Those in -same were stopped and resumed half-way; so were 4-resumed and 1-STREAMED, on another number of ranks.
    """
    folder = tmp_path_factory.mktemp("step_negatives")
    recipe = recipe_of(folder, toy_collection)
    configs = {f"zero{stage}_fp32": stage_file(folder, stage) for stage in range(4)}
    configs |= {name: ds_config(folder, name, LOSS_SCALE_POWER) for name in HALF}

    def commands(ranks: int, *names: str) -> list[list[object]]:
        return [[recipe, f"run={folder}/{ranks}-{name}", f"deepspeed={configs[name]}"] for name in names]

    one_lane = [
        [recipe, "data.lanes=1", f"run={folder}/{name}", f"batch.micro={micro}", f"method.negatives={kind}"]
        for name, micro, kind in (("whole", 8, "micro_batch"), ("8", 8, "step"), ("4", 4, "step"), ("2", 2, "step"))
    ]
    behind = ["method.query_prompt='abc de'", "method.document_prompt=fg", "method.pooling=mean"]
    one_lane += [
        [*command[:2], f"run={folder}/prompts-{name}", *command[3:], *behind, "method.prompt_in_pooling=false"]
        for name, command in (("whole", one_lane[0]), ("2", one_lane[-1]))
    ]
    cut = {n: [*commands(n, "zero1_fp32")[0], f"run={folder}/{n}-cut", "method.dimensions=[32,8]"] for n in (1, 2)}
    fixed = ["method.ignore_above=0.1", "method.learn_temperature=false"]
    ignoring = {n: [*commands(n, f"zero{n}_fp32")[0], f"run={folder}/{n}-ignoring", *fixed] for n in (1, 2)}
    one_lane = [[*command, *NO_DROPOUT] for command in one_lane]
    second = toy.write_pairs(folder / "second", shards, 200, seed=8)
    streamed = {
        name: (pretrain_recipe(folder / f"{name}.yaml", pair_shards, second, keys), stage)
        for name, (keys, stage) in STREAMED.items()
    }

    def streamed_runs(named: str, *changes: str) -> list[list[object]]:
        return [
            [recipe, f"run={folder}/{named.format(name)}", f"deepspeed={configs[f'zero{stage}_fp32']}", *changes]
            for name, (recipe, stage) in streamed.items()
        ]

    stopped = [
        [*run, f"steps={end}"]
        for end in (STEPS // 2, STEPS)
        for run in [
            [recipe, f"run={folder}/2-zero1_fp32-same", f"deepspeed={configs['zero1_fp32']}"],
            *streamed_runs("2-{}-same"),
        ]
    ]
    two = [cut[2], ignoring[2], *commands(2, *WHOLE, *HALF), *streamed_runs("2-{}"), *stopped]
    train(2, sorted(two, key=in_stage_3), folder)
    for name in STREAMED:
        copy_half_way(folder / f"2-{name}", STEPS // 2, folder / f"1-{name}")
    copy_half_way(folder / "2-zero3_fp32", STEPS // 2, folder / "4-resumed")
    train(1, [*commands(1, "zero1_fp32"), cut[1], ignoring[1], *one_lane, *streamed_runs("1-{}")], folder)
    resumed = [recipe, f"run={folder}/4-resumed", f"deepspeed={configs['zero3_fp32']}"]
    train(4, [*commands(4, "zero1_fp32"), resumed], folder)
    return folder


def pretrain_recipe(path: Path, first: Path, second: Path, method: dict[str, Any]) -> Path:
    """The same sizes for streamed pairs of two sources."""
    mix = {"first": {"shards": str(first), "weight": 2}, "second": {"shards": str(second), "weight": 1}}
    lengths = {"max_query_tokens": 16, "max_document_tokens": 32}
    return toy.seed_recipe(
        path,
        first,
        data={"mix": mix, "one_source_per": "step", "lanes": 4, "window": 2},
        batch={"size": 8, "micro": 2},
        trunk={**toy.TRUNK, "initializer_range": 0.2},
        method={"name": "pairs", "negatives": "step", **lengths, **method},
        steps=STEPS,
        optimizer={"lr": 3e-3, "eps": 1e-3, "schedule": "constant"},
        checkpoint={"every": STEPS // 2},
    )


def losses_of(run: Path, term: str = "softmax") -> dict[int, float]:
    return toy.scalars(run, f"loss/{term}")


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.folder(run, STEPS) / checkpoint.WEIGHTS)


def compare(run: Path, expected: Path, tolerance: float, term: str = "softmax") -> None:
    """Check that two runs in fp32 have the same losses and end with the same weights."""
    losses, weights = losses_of(expected, term), weights_of(run)
    for step, loss in losses_of(run, term).items():
        assert loss == pytest.approx(losses[step], rel=1e-5)
    for name, weight in weights_of(expected).items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(f"2-{config}" for config in WHOLE), "4-zero1_fp32"])
def test_any_number_of_ranks_trains_the_same_model_at_every_stage(runs: Path, name: str) -> None:
    assert len(losses_of(runs / name)) == STEPS
    validation = [toy.scalars(runs / run, "validation/softmax") for run in (name, "1-zero1_fp32")]
    assert validation[0] == pytest.approx(validation[1], rel=1e-5)
    compare(runs / name, runs / "1-zero1_fp32", 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", HALF)
def test_half_precision_agrees(runs: Path, name: str) -> None:
    expected, seen = losses_of(runs / "1-zero1_fp32"), losses_of(runs / f"2-{name}")
    assert len(seen) == STEPS
    assert seen == pytest.approx(expected, rel=1e-2 if "bf16" in name else 2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("micro", [8, 4, 2])
def test_any_size_of_micro_batches_trains_as_the_whole_step_in_one(runs: Path, micro: int) -> None:
    compare(runs / str(micro), runs / "whole", 1e-5)


@pytest.mark.slow
def test_prompts_change_the_losses_and_micro_batches_of_them_do_not(runs: Path) -> None:
    compare(runs / "prompts-2", runs / "prompts-whole", 1e-5)
    assert losses_of(runs / "prompts-whole")[1] != pytest.approx(losses_of(runs / "whole")[1], rel=1e-3)


@pytest.mark.slow
def test_each_number_of_dimensions_has_the_same_losses_on_two_ranks(runs: Path) -> None:
    for number in (32, 8):
        one, two = (toy.scalars(runs / f"{ranks}-cut", f"loss/softmax_{number}") for ranks in (1, 2))
        assert len(one) == STEPS
        assert two == pytest.approx(one, rel=1e-5)


@pytest.mark.slow
def test_the_same_documents_are_ignored_on_two_ranks(runs: Path) -> None:
    compare(runs / "2-ignoring", runs / "1-ignoring", 1e-6)
    shares = [toy.scalars(runs / f"{ranks}-ignoring", "loss/ignored") for ranks in (1, 2)]
    assert shares[1] == pytest.approx(shares[0], rel=1e-5)
    assert all(0 < share < 1 for share in shares[0].values())
    assert losses_of(runs / "1-ignoring")[1] < losses_of(runs / "1-zero1_fp32")[1]


@pytest.mark.slow
def test_the_temperature_is_learnt(runs: Path) -> None:
    weights = [weights_of(runs / name)["log_temperature"] for name in ("1-zero1_fp32", "whole")]
    assert all(abs(weight.exp().item() - 0.1) > 1e-5 for weight in weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "term"), [("2-zero1_fp32", "softmax"), *((f"2-{name}", "pairs") for name in STREAMED)]
)
def test_stopped_and_resumed_it_is_the_same_run_to_the_bit(runs: Path, name: str, term: str) -> None:
    assert losses_of(runs / f"{name}-same", term) == losses_of(runs / name, term)
    one, other = (checkpoint.folder(runs / f"{name}{end}", STEPS) / checkpoint.WEIGHTS for end in ("", "-same"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected", "term"),
    [("4-resumed", "1-zero1_fp32", "softmax"), *((f"1-{name}", f"2-{name}", "pairs") for name in STREAMED)],
)
def test_it_resumes_with_another_number_of_ranks(runs: Path, name: str, expected: str, term: str) -> None:
    assert sorted(losses_of(runs / name, term)) == list(range(STEPS // 2 + 1, STEPS + 1))
    compare(runs / name, runs / expected, 1e-6, term)


def test_the_step_has_the_same_examples_for_any_number_of_ranks(toy_collection: Path, tmp_path: Path) -> None:
    recipe = load(FinetuneRecipe, recipe_of(tmp_path, toy_collection))
    digests, indices = [], []
    for ranks in (1, 2, 4):
        steps = [batches for _, batches in islice(trace(recipe, pair_data(recipe), 1, ranks, 0), 3 * STEPS)]
        digests.append([digest([batch.micro_batch for batch in batches]) for batches in steps])
        indices.append([sorted(batch.index for batch in batches) for batches in steps])
        assert all("document_keys" in batch.micro_batch.arrays for batches in steps for batch in batches)
    assert digests[0] == digests[1] == digests[2]
    assert len(set(digests[0])) == 3 * STEPS
    assert indices[0] == indices[1] == indices[2] == [list(range(4 * i, 4 * i + 4)) for i in range(3 * STEPS)]
