"""Merging: means compared with fp64, adapters with their products, the greedy choice, what is refused, atomicity."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import yaml
from safetensors.torch import load_file

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import sha256_of
from deepsiam.trainer import evaluate, export, index
from deepsiam.trainer import merge as command
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking import merging
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.trainer.runs import STEP, vouch, write_adapters, write_run

SIAMESE = {"name": "siamese", "max_query_tokens": 16, "max_document_tokens": 32}
KINDS: dict[str, dict[str, Any]] = {
    "projection": {**SIAMESE, "projection": 8, "learn_temperature": True},
    "added rows": {**SIAMESE, "special_tokens": 3},
    "markers": {"name": "colbert"},
    "tied head": {"name": "mlm"},
}


def write_runs(folder: Path, collection: Path, count: int, **method: Any) -> list[Path]:
    """Runs of one start with different weights."""
    tokenizer, method = collection / "tokenizer.json", method or SIAMESE
    return [write_run(folder / f"run{i}", tokenizer, seed=i, **method) for i in range(count)]


def edit(run: Path, **values: Any) -> Path:
    """Write other keys into the recipe of a run; a dotted one is of a section."""
    folder = checkpoint.folder(run, STEP)
    recipe = yaml.safe_load((folder / checkpoint.RECIPE).read_text())
    for key, value in values.items():
        section, _, name = key.rpartition("__")
        (recipe[section] if section else recipe)[name] = value
    (folder / checkpoint.RECIPE).write_text(yaml.safe_dump(recipe, sort_keys=False))
    vouch(folder)
    return run


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.find(run) / checkpoint.WEIGHTS)


def check_mean(out: Path, runs: Sequence[Path], shares: Sequence[float]) -> None:
    """Compare a merged model with the fp64 mean of the files of the runs."""
    parts = [weights_of(run) for run in runs]
    merged = dict(load_trained(out).model.named_parameters())
    assert merged.keys() == parts[0].keys()
    for name, weight in merged.items():
        expected = sum(share * part[name].double() for share, part in zip(shares, parts, strict=True))
        torch.testing.assert_close(weight.detach().double(), expected, rtol=3e-7, atol=3e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mean_is_that_of_every_tensor(toy_collection: Path, tmp_path: Path, kind: str) -> None:
    runs = write_runs(tmp_path, toy_collection, 3, **KINDS[kind])
    command.main([*map(str, runs), "--weights", "0.5", "0.3", "0.2", f"--out={tmp_path / 'out'}"])
    check_mean(tmp_path / "out", runs, [0.5, 0.3, 0.2])
    record = json.loads((tmp_path / "out" / merging.RECORD).read_text())["merged"]
    assert [row["weight"] for row in record] == [0.5, 0.3, 0.2]
    for row, run in zip(record, runs, strict=True):
        assert row["checkpoint"] == str(checkpoint.folder(run, STEP))
        assert row["sha256"] == sha256_of(checkpoint.folder(run, STEP) / checkpoint.WEIGHTS)


def test_of_adapters_the_products_are_averaged(toy_collection: Path, tmp_path: Path) -> None:
    start = write_run(tmp_path / "start", toy_collection / "tokenizer.json", **SIAMESE)
    sizes = [(2, 4), (3, 3)]  # ranks may differ
    runs = []
    for rank, alpha in sizes:
        lora = {"rank": rank, "alpha": alpha, "targets": ["query", "value"]}
        runs.append(write_adapters(tmp_path / f"run{rank}", toy_collection, start, lora))
    command.main([*map(str, runs), "--weights", "0.25", "0.75", f"--out={tmp_path / 'out'}"])
    base, parts = weights_of(start), [weights_of(run) for run in runs]
    merged, adapted = weights_of(tmp_path / "out"), 0
    assert merged.keys() == base.keys()
    for name, weight in base.items():
        layer, expected = name.removesuffix(".weight"), weight.double()
        for share, part, (rank, alpha) in zip((0.25, 0.75), parts, sizes, strict=True):
            if (matrix := f"{layer}.lora_A.default.weight") in part:
                product = part[matrix.replace("lora_A", "lora_B")].double() @ part[matrix].double()
                expected, adapted = expected + share * alpha / rank * product, adapted + 1
        torch.testing.assert_close(merged[name].double(), expected, rtol=1e-6, atol=1e-6)
    assert adapted == 2 * 2 * toy.TRUNK["num_hidden_layers"]
    assert not (tmp_path / "out" / checkpoint.BASE).exists()


def test_every_command_takes_it_in_place_of_a_run(toy_collection: Path, tmp_path: Path) -> None:
    runs, out = write_runs(tmp_path, toy_collection, 2), tmp_path / "out"
    options = [f"--collection={toy_collection}", "--choose=test", "--metric=ndcg@10"]
    command.main([*map(str, runs), *options, f"--out={out}"])
    record = json.loads((out / merging.RECORD).read_text())
    systems = [f"--system={path.name}={path}" for path in (*runs, out)]
    evaluate.main([f"--collection={toy_collection}", "--split=test", *systems, f"--out={tmp_path / 'results.json'}"])
    results = json.loads((tmp_path / "results.json").read_text())["systems"]
    values = [results[path.name]["metrics"]["ndcg@10"] for path in (*runs, out)]
    assert record["alone"] == pytest.approx(values[:-1])
    assert record["mean"] == pytest.approx(values[-1])
    assert values[-1] >= max(values[:-1])
    check_mean(out, runs, [row["weight"] for row in record["merged"]])
    export.main([str(out), str(tmp_path / "exported")])
    index.main([str(out), f"--collection={toy_collection}", f"--out={tmp_path / 'index'}"])
    recipe = build(FinetuneRecipe, toy.finetune_values(tmp_path / "next", toy_collection, init_from=str(out)), "test")
    trunk = finetuning.build(recipe).model.trunk
    merged = weights_of(out)
    assert all(torch.equal(parameter, merged[f"trunk.{name}"]) for name, parameter in trunk.named_parameters())


class Distance:
    """Judges a model by how near it is to a mean of given runs; keeps what it was shown."""

    metric, split = "nearness", "dev"

    def __init__(self, runs: Sequence[Path], shares: Sequence[float]) -> None:
        self.task = Mock()
        self.task.collection.sha256 = "0" * 64
        parts = [weights_of(run) for run in runs]
        self.target = {
            name: sum(share * part[name] for share, part in zip(shares, parts, strict=True)) for name in parts[0]
        }

    def measure(self, trained: TrainedModel) -> float:
        parameters = dict(trained.model.named_parameters())
        return -float(sum((parameters[name].detach() - weight).pow(2).sum() for name, weight in self.target.items()))


def test_the_greedy_choice_adds_in_order_and_takes_back_what_does_harm(toy_collection: Path, tmp_path: Path) -> None:
    """The best alone is run 2, then 0, then 3, then 1; the mean of 2 and 0 is nearest: 3 and 1 are taken back."""
    runs = write_runs(tmp_path, toy_collection, 4)
    judge = Distance(runs, [0.45, 0.0, 0.5, 0.05])
    alone = [judge.measure(load_trained(run)) for run in runs]
    assert sorted(range(4), key=lambda i: -alone[i]) == [2, 0, 3, 1]
    merging.merge(runs, tmp_path / "out", None, lambda: judge)  # type: ignore[arg-type, return-value]
    check_mean(tmp_path / "out", runs, [0.5, 0.0, 0.5, 0.0])
    record = json.loads((tmp_path / "out" / merging.RECORD).read_text())
    assert [row["weight"] for row in record["merged"]] == [0.5, 0.0, 0.5, 0.0]
    assert record["alone"] == alone
    assert record["mean"] == judge.measure(load_trained(tmp_path / "out"))


def test_descendants_and_other_training_keys_are_no_other_start(toy_collection: Path, tmp_path: Path) -> None:
    first, second, child = write_runs(tmp_path, toy_collection, 3)
    edit(second, seed=2, optimizer__lr=0.5, method__temperature=0.1, method__hard_negatives=0)
    edit(child, init_from=str(first))
    merging.merge([first, second], tmp_path / "same start", None, None)
    merging.merge([child, first], tmp_path / "with its start", None, None)  # WiSE-FT
    with pytest.raises(InputError, match=r"run2/checkpoints/.*: began with .*/run0, and .*run1/.* with .*/p: the mean"):
        merging.merge([second, child], tmp_path / "other starts", None, None)


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        (SIAMESE, {"init_from": "q"}, r"run1/.*: began with .*/q, and .*run0/.* with .*/p: the mean of such weights"),
        (SIAMESE, {"random_weights": True, "seed": 2}, r"began with random weights of seed 2, and "),
        (SIAMESE, {"method__pooling": "mean"}, r"run1/.*: method.pooling is mean, and cls in .*run0/"),
        (SIAMESE, {"method__query_prompt": "q: "}, r"method.query_prompt is q: , and None in "),
        ({**SIAMESE, "projection": 8}, {"seed": 2}, r"run0/.*: projection.0.weight is not in .*: each seed drew"),
        ({"name": "colbert"}, {"seed": 2}, r"run0/.*: \S+ is not in .*: each seed drew another one: merge runs of one"),
    ],
)
def test_runs_that_do_not_suit_each_other_are_refused(
    toy_collection: Path, tmp_path: Path, method: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    start = write_run(tmp_path / "p", toy_collection / "tokenizer.json", name="mlm")
    runs = [edit(run, init_from=str(start)) for run in write_runs(tmp_path, toy_collection, 2, **method)]
    edit(runs[1], **changes)
    with pytest.raises(InputError, match=message):
        merging.merge(runs, tmp_path / "out", None, None)
    assert not (tmp_path / "out").exists()


def test_other_shapes_methods_and_tokenizers_are_refused(toy_collection: Path, tmp_path: Path) -> None:
    tokenizer, wide = toy_collection / "tokenizer.json", {**toy.TRUNK, "intermediate_size": 96}
    first, other = (write_run(tmp_path / name, tokenizer, **SIAMESE) for name in ("first", "other"))
    file = checkpoint.folder(other, STEP) / checkpoint.TOKENIZER
    file.write_text(file.read_text() + "\n")
    vouch(file.parent)
    for run, message in (
        (
            write_run(tmp_path / "wider", tokenizer, trunk=wide, **SIAMESE),
            "trunk.intermediate_size is 96, and 64 in .*first/",
        ),
        (write_run(tmp_path / "colbert", tokenizer, name="colbert"), "method.name is colbert, and siamese in "),
        (other, "tokenizer.sha256 is "),
    ):
        with pytest.raises(InputError, match=f"{run.name}/.*: {message}"):
            merging.merge([first, run], tmp_path / "out", None, None)


@pytest.fixture(scope="module")
def two_runs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_runs(tmp_path_factory.mktemp("runs"), toy_collection, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weights", "0.5"], "--weights: 1 weights of 2 runs: give one for each"),
        (["--weights", "0.5", "0.6"], "--weights: their sum is 1.1: give positive weights with the sum 1"),
        (["--weights", "1.5", "-0.5"], "--weights: their sum is 1: give positive weights with the sum 1"),
        (["--weights", "nan", "0.5"], "--weights: their sum is nan: give positive"),
        (["--choose", "dev"], "--choose and --collection need each other"),
        (["--metric", "ndcg@10"], "--metric is for --choose"),
        (["--choose", "dev", "--weights", "0.5", "0.5"], "not allowed with argument"),
        (["--choose", "dev", "--collection", "COLLECTION"], "no split 'dev'; choose one of: test, train"),
        (["--choose", "test", "--collection", "COLLECTION", "--metric", "x"], "--metric: 'x' is not a metric"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    two_runs: list[Path],
    toy_collection: Path,
    tmp_path: Path,
    refused: Callable[..., str],
    options: list[str],
    message: str,
) -> None:
    given = [str(toy_collection) if option == "COLLECTION" else option for option in options]
    assert message in refused(command.main, *two_runs, *given, f"--out={tmp_path / 'out'}")
    assert not (tmp_path / "out").exists()


def test_equal_weights_stay_the_same_to_the_bit_and_nothing_half_written_is_left(
    two_runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merging.merge([two_runs[0]] * 3, tmp_path / "out", None, None)
    weights = checkpoint.folder(two_runs[0], STEP) / checkpoint.WEIGHTS
    assert (tmp_path / "out" / checkpoint.WEIGHTS).read_bytes() == weights.read_bytes()
    monkeypatch.setattr(merging, "write_weights", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(InputError, match=r"other: .*No space left"):
        merging.merge(two_runs, tmp_path / "other", None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_one_run_damage_a_folder_that_exists_and_re_rankers_are_refused(toy_collection: Path, tmp_path: Path) -> None:
    first, second = write_runs(tmp_path, toy_collection, 2)
    with pytest.raises(InputError, match="a mean needs two runs or more"):
        merging.merge([first], tmp_path / "out", None, None)
    with pytest.raises(InputError, match=f"{second}: exists: name a new folder"):
        merging.merge([first, second], second, None, None)
    weights = checkpoint.folder(second, STEP) / checkpoint.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"run1/.*weights.safetensors is damaged"):
        merging.merge([first, second], tmp_path / "out", None, None)
    runs = write_runs(tmp_path / "cross", toy_collection, 2, name="cross_encoder", negatives_per_query=1)
    with pytest.raises(InputError, match=r"--choose: .* re-ranks, and cannot search a pool: give --weights"):
        merging.merge(runs, tmp_path / "out", None, lambda: merging.Judge.open(toy_collection, "test", "ndcg@10"))
