"""A mix of collections: the order of its micro-batches, what each source keeps for itself, what is refused."""

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.jobs.trace import digest, show, trace
from deepsiam.trainer.training.data.open_pairs import pair_data
from deepsiam.trainer.training.data.opened import resume_invariants
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from deepsiam.trainer.training.run.job import check_job
from tests import toy
from tests.trainer.mixed_recipe import SOURCES, mixed_recipe

STEPS = 40


@pytest.fixture(params=["micro_batch", "step"])
def recipe(request: pytest.FixtureRequest, toy_collection: Path, toy_scored: Path, tmp_path: Path) -> FinetuneRecipe:
    return load(FinetuneRecipe, mixed_recipe(tmp_path / "run.yaml", toy_collection, toy_scored, per=request.param))


def test_a_step_has_the_same_examples_for_any_number_of_ranks_and_workers(recipe: FinetuneRecipe) -> None:
    data = pair_data(recipe)

    def digests(ranks: int, workers: int, steps: int) -> list[str]:
        read = islice(trace(recipe, data, 1, ranks, workers), steps)
        return [digest([batch.micro_batch for batch in batches]) for _, batches in read]

    alone = digests(1, 0, STEPS)
    assert len(set(alone)) == STEPS
    for ranks, workers in ((2, 2), (4, 0)):
        steps = 6 if workers else STEPS
        assert digests(ranks, workers, steps) == alone[:steps], (ranks, workers)


def test_sources_are_drawn_by_weight_and_a_step_of_one_is_never_mixed(recipe: FinetuneRecipe) -> None:
    data = pair_data(recipe)
    assert data.order.names == sorted(SOURCES)
    of_steps = [Counter(batch.source for batch in step) for _, step in islice(trace(recipe, data, 1, 2, 0), STEPS)]
    total = sum(of_steps, Counter())
    assert total == {0: 60, 1: 60, 2: 40}
    most = 1 if recipe.data.one_source_per == "step" else 3
    assert {len(step) for step in of_steps} == {most}
    read = data.order.progress(4 * STEPS)
    assert {f"examples/{data.order.names[i]}": 2 * n for i, n in total.items()}.items() <= read.items()
    assert (read["epochs/plain"], read["epochs/prompted"]) == (120 / 100, 120 / 60)


def test_each_source_has_its_own_prompt_and_losses(recipe: FinetuneRecipe) -> None:
    data, seen = pair_data(recipe), set[str]()
    for step, batches in islice(trace(recipe, data, 1, 1, 0), 10):
        for batch in batches:
            name = data.order.names[batch.source]
            lines = list(show(step, [batch], data))
            queries = lines[lines.index("  query_ids") + 1 : lines.index("  document_ids")]
            prompt = data.tokenizer.decode(np.array(data.tokenizer.prompt("abc de").ids))
            assert all((f": [CLS] {prompt}" in line) == (name == "prompted") for line in queries)
            assert batch.micro_batch.counts == ({"kl": 2, "margin_mse": 2} if name == "taught" else {"softmax": 2})
            seen.add(name)
    assert seen == set(SOURCES)


def test_the_order_of_the_names_in_the_recipe_does_not_count(
    toy_collection: Path, toy_scored: Path, tmp_path: Path
) -> None:
    path = mixed_recipe(tmp_path / "run.yaml", toy_collection, toy_scored)
    first = load(FinetuneRecipe, path)
    assert first.data.mix
    reversed_mix = dict(reversed(first.data.mix.items()))
    second = first.model_copy(update={"data": first.data.model_copy(update={"mix": reversed_mix})})
    digests = [
        [digest([batch.micro_batch for batch in step]) for _, step in islice(trace(one, pair_data(one), 1, 1, 0), 5)]
        for one in (first, second)
    ]
    assert digests[0] == digests[1]
    assert resume_invariants(first, pair_data(first)) == resume_invariants(second, pair_data(second))


def test_a_single_collection_is_known_by_the_same_keys_as_before(toy_collection: Path, tmp_path: Path) -> None:
    path = toy.finetune_recipe(tmp_path / "run.yaml", toy_collection, trunk=toy.TRUNK)
    recipe = load(FinetuneRecipe, path)
    assert list(resume_invariants(recipe, pair_data(recipe))["data"]) == [
        *("lanes", "window", "collection", "split", "pairs")
    ]
    assert set(recipe.model_dump()["data"]) == {"lanes", "window", "workers", "collection", "split", "pairs"}


def test_a_temperature_weighs_sources_by_their_sizes(toy_collection: Path, toy_scored: Path, tmp_path: Path) -> None:
    mix = {name: {"collection": str(toy_collection), "pairs": pairs} for name, pairs in (("a", 81), ("b", 9))}
    shares = []
    for temperature in (1, 2, 1e9):
        data = {"mix": mix, "mix_temperature": temperature, "lanes": 4}
        recipe = load(FinetuneRecipe, mixed_recipe(tmp_path / "run.yaml", toy_collection, toy_scored, data=data))
        shares.append(pair_data(recipe).order.mix.shares)
    assert shares == [[9, 1], [3, 1], [500, 500]]


def test_a_source_that_cannot_be_validated_on_is_left_out(recipe: FinetuneRecipe) -> None:
    data = pair_data(recipe)
    assert [(part.name, part.number) for part in data.held_out] == [("plain", 0), ("prompted", 1)]
    (remark,) = data.remarks
    assert remark.startswith("data.mix.taught is not validated on: data.mix.taught.loss=kl and margin_mse compares t")
    assert recipe.validation
    none = recipe.model_copy(update={"validation": recipe.validation.model_copy(update={"split": "dev"})})
    with pytest.raises(InputError, match=r"^data.mix.plain is not .* no split 'dev'; .*; or set validation to null$"):
        pair_data(none)


NAMED = "data.mix.plain"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({f"{NAMED}.weight": 0}, f"{NAMED}.weight: input should be greater than 0, not 0"),
        ({f"{NAMED}.weight": -1}, f"{NAMED}.weight: input should be greater than 0, not -1"),
        (
            {f"{NAMED}.weight": "null"},
            f"{NAMED}.weight: missing: set a weight for every source, or data.mix_temperature",
        ),
        (
            {"data.mix_temperature": 2, f"{NAMED}.weight": 1},
            f"{NAMED}.weight: does not go with .*: set .* or data.mix_temperature and none$",
        ),
        ({f"{NAMED}.wieght": 1}, rf"{NAMED}.wieght: unknown key; did you mean {NAMED}.weight\?$"),
        ({f"{NAMED}.query_promt": "x"}, rf"{NAMED}.query_promt: unknown key; did you mean {NAMED}.query_prompt\?$"),
        ({f"{NAMED}.pooling": "mean"}, f"{NAMED}.pooling: unknown key; a source may have collection, .*query_prompt, "),
        ({f"{NAMED}.loss": "sotfmax"}, f"{NAMED}.loss.*: Input should be 'softmax'"),
        ({f"{NAMED}.loss": "kl"}, f"^[^:]*: {NAMED}.loss=kl learns a teacher's scores .* draws no negatives"),
        (
            {f"{NAMED}.loss": "kl", f"{NAMED}.negatives_per_query": 0, f"{NAMED}.negatives": "own"},
            f"^{NAMED}.loss=kl compares .*, but split train gives query q0 one only",
        ),
        (
            {f"{NAMED}.hard_negatives": 1},
            f"^{NAMED}.hard_negatives: 1, but split train gives .* at random \\({NAMED}.negatives_per_query",
        ),
        ({f"{NAMED}.negatives_per_query": 100}, f"^{NAMED}.negatives_per_query: 100, but split train has only 99 "),
        ({f"{NAMED}.split": "dev"}, f"^{NAMED}.split: .* no split 'dev'; choose one of: test, train"),
        ({f"{NAMED}.pairs": 101}, f"lower {NAMED}.pairs, or name another {NAMED}.split"),
        ({f"{NAMED}.split": "test", "batch.size": 24}, f"^{NAMED}: split test has 20 examples, fewer than .*=24"),
        ({f"{NAMED}.collection": "OTHER"}, "was tokenised with another tokenizer than .*: run: python -m data_prep"),
        ({f"{NAMED}.negatives": "step"}, f"{NAMED}: its losses compare .* set data.one_source_per=step"),
        (
            {"data.collection": "c", f"{NAMED}.collection": "d"},
            "data: name either data.collection or, for several sources, data.mix",
        ),
        ({"data.pairs": 3}, "data.split and data.pairs need data.collection: set those of each source"),
        ({"refresh.every": 2}, f"{NAMED}: what is mined .* {NAMED}.hard_negatives to .* or {NAMED}.refresh to false"),
        (
            {"refresh.every": 2, **{f"data.mix.{name}.refresh": "false" for name in SOURCES}},
            "refresh: no source of data.mix is to be mined for: set refresh to null",
        ),
        ({"optimizer.plateau.factor": 0.5}, "optimizer.plateau: the sources of data.mix have different losses"),
        ({f"{NAMED}.query_prompt": "ab " * 40}, f"{NAMED}: method: query_prompt has .* tokens, which leave a text no"),
    ],
)
def test_a_bad_mix_is_one_line(
    toy_collection: Path, toy_scored: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    if "OTHER" in changes.values():
        tokenizer.train((text for texts in toy.documents(50, seed=5) for text in texts), 200, tmp_path / "other.json")
        changes = {f"{NAMED}.collection": str(toy.write_collection(tmp_path / "other", tmp_path / "other.json"))}
    path = mixed_recipe(tmp_path / "run.yaml", toy_collection, toy_scored)
    with pytest.raises(InputError, match=words) as caught:
        pair_data(load(FinetuneRecipe, path, [f"{key}={value}" for key, value in changes.items()]))
    assert "\n" not in str(caught.value)


def test_zero_3_needs_steps_of_one_source(toy_collection: Path, toy_scored: Path, tmp_path: Path) -> None:
    stage = "deepspeed=zero3_bf16"
    path = mixed_recipe(tmp_path / "run.yaml", toy_collection, toy_scored)
    with pytest.raises(InputError, match=r"^data.mix: .* ZeRO stage 3 .*: set data.one_source_per=step, or deepspeed"):
        check_job(finetuning.build(load(FinetuneRecipe, path, [stage])))
    check_job(finetuning.build(load(FinetuneRecipe, path, [stage, "data.one_source_per=step"])))


def test_a_source_with_too_few_items_for_the_lanes_is_named(toy_collection: Path, tmp_path: Path) -> None:
    mix = {
        name: {"collection": str(toy_collection), "weight": 1, "pairs": pairs}
        for name, pairs in {"many": 40, "few": 10}.items()
    }
    path = toy.finetune_recipe(tmp_path / "r.yaml", toy_collection, data={"mix": mix, "lanes": 16}, trunk=toy.TRUNK)
    with pytest.raises(InputError, match=r"^data.mix.few: data.lanes: 16 lanes need .*, the data has 10: set"):
        finetuning.build(load(FinetuneRecipe, path))
