"""Every pre-training method, from shards to an exported encoder: real ranks, precisions and ZeRO stages agree."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.batching.taught import TaughtBatcher
from deepsiam.models.encode import encode
from deepsiam.models.pretraining.config import PretrainingConfig
from deepsiam.models.registry import PRETRAINING
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints.init_from import load_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.build import build_batcher, new_trunk
from tests import toy
from tests.models.tiny import HashedTeacher
from tests.trainer.many_runs import configs, train, train_in_all_ways

pytestmark = pytest.mark.slow  # every run is real processes, about ten seconds each

METHODS: dict[str, dict[str, Any]] = {
    "mlm": {"max_tokens": 32},
    "seed": {"max_tokens": 32, "decoder_layers": 2},
    "clm": {"max_tokens": 32},
    "ict": {"max_tokens": 32, "max_query_tokens": 16},
    "skip_thought": {"max_tokens": 24, "decoder_layers": 1},
    "cross_thought": {"sequences": 4, "sequence_tokens": 12, "special_tokens": 3},
    "poly": {"max_tokens": 48, "tokens": 400},
    "retromae": {"max_tokens": 32},
    "condenser": {"max_tokens": 32, "early_layers": 1, "head_layers": 1},
    "pairs": {
        "max_query_tokens": 16,
        "max_document_tokens": 32,
        "similarity": "cosine",
        "pooling": "mean",
        "temperature": 0.5,
        "negatives": "step",
        "both_directions": True,
        "same_side": True,
    },
    "distil": {
        "loss": {"vectors": 1.0, "vectors_mse": 1.0, "batch_kl": 1.0},
        "passage_tokens": 32,
        "max_query_tokens": 16,
        "max_document_tokens": 32,
        "pooling": "mean",
        "temperature": 0.05,  # so that the score matrices differ: a divergence of equal ones is rounding alone
        "negatives": "step",
        "dimensions": [32, 8],
        "teacher_width": 32,
    },
}
# weak pairs for other networks than the Siamese one
SCORES: dict[str, dict[str, Any]] = {
    "pairs of ColBERT": {"score": {"name": "colbert", "dimension": 16}, "temperature": 4.0},
    "sparse pairs": {
        "score": {"name": "sparse", "head": "new_mlm", "regularise": {"document": {"flops": 0.01}, "ramp": 2}},
        "temperature": 20.0,
    },
}
PAIRS = {"name": "pairs", "max_query_tokens": 16, "max_document_tokens": 32, "negatives": "step"}
TRAINED = {name: {"name": name, **keys} for name, keys in METHODS.items()}
TRAINED |= {name: {**PAIRS, **keys} for name, keys in SCORES.items()}
STEPS = 2  # the second loss depends on the first update
# tolerated relative loss difference for other numbers of ranks and ZeRO stages, by precision
TOLERANCE = {"cpu": 1e-5, "bf16": 1.5e-3, "fp16": 1e-4}
# times as much: a divergence of score matrices is a small difference of large numbers, a score of ColBERT a sum over
# vectors, FLOPS a square
ROUNDED = {"distil": 20.0, "pairs of ColBERT": 5.0, "sparse pairs": 5.0}


def recipe_of(path: Path, shards: Path, name: str) -> Path:
    trunk = {**toy.TRUNK, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    changes: dict[str, Any] = {"steps": STEPS, "trunk": trunk, "method": TRAINED[name]}
    if name == "clm":
        changes["trunk"]["is_decoder"] = True
    if name == "poly":
        changes["batch"] = {"size": 2, "micro": 1}
    return toy.seed_recipe(path, shards, **changes, checkpoint={"every": STEPS})


def test_every_method_is_tested_here() -> None:
    assert set(METHODS) == set(PRETRAINING)


@pytest.fixture(scope="module")
def shards_of(shards: Path, pair_shards: Path, taught_shards: Path) -> dict[str, Path]:
    """The shards that each method reads."""
    return dict.fromkeys(TRAINED, shards) | dict.fromkeys(["pairs", *SCORES], pair_shards) | {"distil": taught_shards}


@pytest.fixture(scope="module")
def trained(shards_of: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs NAME of every method, on one rank in fp32, and NAME-CONFIG, on two ranks."""
    folder = tmp_path_factory.mktemp("methods")
    recipes = {name: recipe_of(folder / f"{name}.yaml", shards, name) for name, shards in shards_of.items()}
    train_in_all_ways(recipes, folder)
    return folder


@pytest.fixture(scope="module")
def published(trained: Path) -> dict[str, Path]:
    """Every method's encoder, exported with its heads."""
    folders = {name: trained / f"{name}-published" for name in METHODS}
    for name, folder in folders.items():
        run = load_trained(trained / name)
        export_encoder(run, folder, with_decoder=bool(heads_of(run.model)))
    return folders


def heads_of(model: torch.nn.Module) -> set[str]:
    """The names of the weights outside the encoder that an export can have."""
    return {name for name, _ in model.named_parameters() if not name.startswith(("trunk.", "teacher_head."))}


@pytest.mark.parametrize("name", TRAINED)
def test_ranks_precisions_and_zero_stages_agree(trained: Path, name: str) -> None:
    terms = list(load_trained(trained / name).recipe.method.weights)
    print(f"\n{name:<14} {STEPS} losses, the largest difference from one rank in fp32")
    for config in configs(TRAINED)[name]:
        for term in terms:
            losses, seen = (toy.scalars(trained / run, f"loss/{term}") for run in (name, f"{name}-{config}"))
            assert seen.keys() == losses.keys()
            assert len(seen) == STEPS or name == "poly"  # there, a step has only one of the two losses
            worst = max((abs(seen[step] / loss - 1) for step, loss in losses.items()), default=0.0)
            print(f"{'':<14} {term:<10} 2 ranks {config:<11} {worst:.1e}")
            assert worst < TOLERANCE[config.split("_")[-1]] * ROUNDED.get(name, 1.0)


@pytest.mark.parametrize("name", METHODS)
def test_the_exported_encoder_is_a_stock_model(trained: Path, published: dict[str, Path], name: str) -> None:
    run = load_trained(trained / name)
    stock, loading = AutoModel.from_pretrained(published[name], output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    ids = torch.randint(5, 290, (3, 20), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(20) < torch.tensor([20, 7, 13])[:, None]
    with torch.inference_mode():
        own = encode(run.model.trunk, ids, mask)
        theirs = stock.eval()(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    torch.testing.assert_close(theirs[mask], own[mask], atol=1e-5, rtol=0)
    encoder = load_encoder(Folder(published[name]), run.tokenizer)
    assert set(encoder.heads) >= heads_of(run.model)


def test_pretraining_continues_from_an_export(trained: Path, published: dict[str, Path]) -> None:
    on = ["trunk=null", "steps=2", "optimizer.lr=1e-9"]
    runs = [
        [trained / f"{name}.yaml", f"init_from={folder}", f"run={trained}/{name}-on", *on]
        for name, folder in published.items()
    ]
    printed = train(1, runs, trained)
    for name in METHODS.keys() - {"distil"}:  # its layer to the teacher's width, which losses depend on, is new
        weights = len(heads_of(load_trained(trained / name).model))
        heads = f", and {weights} of the {weights} head weights" if weights else ""
        assert f"starting from {published[name]}: the encoder{heads}\n" in printed
        for term, losses in (
            (t, toy.scalars(trained / name, f"loss/{t}")) for t in load_trained(trained / name).recipe.method.weights
        ):
            on_losses = toy.scalars(trained / f"{name}-on", f"loss/{term}")
            assert all(loss < 1.05 * losses[max(losses)] for loss in on_losses.values())


@pytest.mark.parametrize("name", METHODS)
def test_a_trunk_of_any_kind_learns_or_is_refused_by_name(
    shards_of: dict[str, Path], tmp_path: Path, name: str
) -> None:
    from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
    from deepsiam.models.config import resize_embeddings
    from deepsiam.trainer.training.recipe.build import build_model
    from deepsiam.trainer.training.recipe.schema import PretrainRecipe
    from deepsiam.trainer.training.recipe.yaml_file import load as load_recipe

    shards = shards_of[name]
    tokenizer = tokenizers.load(shards / "tokenizer.json")
    method = load_recipe(PretrainRecipe, recipe_of(tmp_path / "run.yaml", shards, name)).method
    shape = {k: v for k, v in toy.TRUNK.items() if k not in ("model_type", "intermediate_size")}
    kinds = {
        "bert": {"intermediate_size": 64},
        "roberta": {"intermediate_size": 64, "max_position_embeddings": 80},
        "distilbert": {"hidden_dim": 64},
        "modernbert": {"intermediate_size": 64},
    }
    if name == "clm":
        kinds = {kind: {**keys, "is_decoder": True} for kind, keys in kinds.items() if kind in ("bert", "roberta")}
    trained, refused = [], {}
    for kind, keys in kinds.items():
        trunk = new_trunk({**shape, **keys, "model_type": kind}, tokenizer)
        try:
            resize_embeddings(method, trunk, tokenizer)
            model = build_model(method, trunk)
        except InputError as error:
            refused[kind] = str(error)
            continue
        losses = one_step(model, method, tokenizer, shards)
        assert all(torch.isfinite(loss) for loss in losses.values())
        trained.append(kind)
    assert "bert" in trained
    assert all(kind in message or "trunk" in message for kind, message in refused.items())


def one_step(model: Any, method: PretrainingConfig, tokenizer: Any, shards: Path) -> dict[str, torch.Tensor]:
    from deepsiam.data_prep.common.rng import keyed_rngs
    from deepsiam.data_prep.shards.manifest import Manifest
    from deepsiam.trainer.training.data.shard_source import ShardSource

    batcher = build_batcher(method, tokenizer)
    if method.learns_vectors:
        batcher = TaughtBatcher(batcher, HashedTeacher(32))
    examples = batcher.examples(ShardSource(Manifest.load(shards)).read(0, 0))[:4]
    batch = batcher.micro_batch(examples, keyed_rngs("test", [(i,) for i in range(len(examples))]))
    losses = model(**{key: torch.from_numpy(array) for key, array in batch.arrays.items()})
    assert losses.keys() == batch.counts.keys()
    sum(losses.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    return losses


def test_data_without_sentences_is_refused_before_the_first_step(tmp_path: Path, shards: Path) -> None:
    from deepsiam.data_prep.shards.writer import ShardWriter
    from deepsiam.data_prep.tokenizers import tokenizer as tokenizers

    tokenizer = tokenizers.load(shards / "tokenizer.json")
    with ShardWriter(tmp_path / "flat", tokenizer, chunk_tokens=500, chunks_per_shard=2) as writer:
        for number, text in enumerate(toy.documents(300)):
            writer.add(f"d{number}", tokenizer.encode([" ".join(text)]))
    for name in ("ict", "skip_thought", "poly"):
        recipe = recipe_of(tmp_path / f"{name}.yaml", tmp_path / "flat", name)
        done = toy.launch(1, "trainer.pretrain", recipe)
        assert done.returncode == 2, (name, done.stderr)
        (line,) = (line for line in done.stderr.splitlines() if line.startswith("trainer.pretrain: "))
        assert "sentence" in line
        assert "Traceback" not in done.stderr
        shutil.rmtree(tmp_path / name, ignore_errors=True)
