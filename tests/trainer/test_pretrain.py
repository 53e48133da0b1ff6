"""Pre-training from published folders, on shards of their own tokenizers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.causality import is_causal
from deepsiam.trainer.jobs import finetuning, pretraining
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build, load
from deepsiam.trainer.training.run.job import Job
from tests import toy
from tests.data_prep.tokenizers.families import WORDS
from tests.trainer.interop.family_folders import write_folder
from tests.trainer.interop.published_folders import own_embeddings
from tests.trainer.launches.test_methods import METHODS
from tests.trainer.runs import save_run

WIDTH, MASK, CLS = "its width 16 must be hidden_size 32", r"needs a mask token", r"needs a token before a text"
CAUSAL = "is causal, so .CLS. sees no text"
ALL = ("mlm", "seed", "retromae", "cross_thought")
REFUSED = {  # by the folder's type, why all methods but ICT refuse it
    **dict.fromkeys(("bert", "roberta", "deberta-v2", "modernbert", "eurobert")),
    "albert": WIDTH,
    **dict.fromkeys(("t5", "qwen3"), CLS),
    "llama": MASK,
    "gemma3_text": CAUSAL,
}


def write_shards(folder: Path, published: Path) -> Path:
    """Shards of sentences of a few words, with the tokenizer of a published folder."""
    tokenizer, words = tokenizers.load(published), WORDS.split()
    with ShardWriter(folder, tokenizer, chunk_tokens=500, chunks_per_shard=2) as writer:
        for i in range(100):
            texts = [" ".join(np.roll(words, i + 3 * j)[: 3 + (i + j) % 9]) for j in range(6)]
            writer.add(f"d{i}", tokenizer.encode(texts))
    return folder


def job_of(folder: Path, start: Path, bidirectional: bool = False, **method: Any) -> Job:
    """The job of a method on shards beside a published folder, which it starts from."""
    data, keys = {"shards": str(folder / "shards"), "lanes": 4, "window": 2}, {**METHODS[method["name"]], **method}
    changes = {"data": data, "trunk": None, "init_from": str(start), "bidirectional": bidirectional, "method": keys}
    return pretraining.build(build(PretrainRecipe, {**toy.SEED_RECIPE, **changes}, "test"))


def gradients_of(job: Job) -> list[torch.Tensor]:
    """The gradients of the encoder's parameters that the first micro-batch trains."""
    arrays = next(iter(job.order.stream(job.order.start(), 0, 1))).micro_batch.arrays
    losses = job.model(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    sum(losses.values()).backward()
    return [parameter.grad for parameter in job.model.trunk.parameters() if parameter.grad is not None]


def test_the_seed_decides_new_weights_the_order_and_what_validation_masks(shards: Path, tmp_path: Path) -> None:
    def drawn(seed: int) -> dict[str, np.ndarray]:
        keys = {"seed": seed, "validation": {"shards": str(shards), "every": 4}}
        job = pretraining.build(load(PretrainRecipe, toy.seed_recipe(tmp_path / "a.yaml", shards, **keys), []))
        batch = next(iter(job.order.stream(job.order.start(), 0, 1))).micro_batch
        return {
            "trunk": job.model.trunk.encoder.layer[0].output.dense.weight.detach().numpy(),
            "head": job.model.lm_head.dense.weight.detach().numpy(),
            "order": batch.arrays["input_ids"],
            "validation": job.data.held_out[0].first().arrays["input_ids"],
        }

    one, same, other = (drawn(seed) for seed in (1, 1, 2))
    assert all(np.array_equal(values, same[name]) for name, values in one.items())
    assert not any(np.array_equal(values, other[name]) for name, values in one.items())


@pytest.mark.parametrize("kind", REFUSED)
def test_methods_train_from_a_published_folder_or_say_what_they_lack(kind: str, tmp_path: Path) -> None:
    start = write_folder(tmp_path / kind, kind, "cls")
    (start / "modules.json").unlink()  # an encoder alone
    write_shards(tmp_path / "shards", start)
    in_turn = ALL[[*REFUSED].index(kind) % len(ALL)]
    for name in (*(ALL if toy.FULL_TESTS or kind == "bert" else (in_turn,)), "ict"):
        if name != "ict" and REFUSED[kind]:
            with pytest.raises(InputError, match=f"^method: .*{REFUSED[kind]}"):
                job_of(tmp_path, start, name=name)
            continue
        job = job_of(tmp_path, start, name=name)
        gradients = gradients_of(job)
        assert gradients
        assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", ["seed", "retromae", "ict"])
def test_a_mean_pooled_folder_stays_one(name: str, toy_collection: Path, tmp_path: Path) -> None:
    """Its pooling is the bottleneck, is kept by run and export, and is what a fine-tuning goes on with."""
    start = write_folder(tmp_path / "bert", "bert", "mean")
    write_shards(tmp_path / "shards", start)
    assert job_of(tmp_path, start, name=name, pooling="cls").model.pooling == "cls"
    job = job_of(tmp_path, start, name=name)
    assert job.model.pooling == job.recipe.method.pooling == "mean"  # type: ignore[attr-defined]
    run = save_run(tmp_path / "run", job)
    export_encoder(load_trained(run), tmp_path / "out")
    texts = ["the ship of bread", "a long way", "12 loaves"]
    before, after = (own_embeddings(load_any(folder), texts) for folder in (start, tmp_path / "out"))
    lengths = np.linalg.norm(after, axis=1, keepdims=True)  # an export of a pre-training is ranked by `dot`
    np.testing.assert_allclose(after / lengths, before, atol=1e-6)
    toy.write_collection(tmp_path / "c", start / "tokenizer.json")
    for pretrained in (run, tmp_path / "out"):
        values = toy.finetune_values(tmp_path / "tuned", tmp_path / "c", init_from=str(pretrained))
        assert finetuning.build(build(FinetuneRecipe, values, "test")).model.keys.pooling == "mean"


def test_a_bidirectional_decoder_learns_by_its_mean(tmp_path: Path) -> None:
    start = write_folder(tmp_path / "gemma3_text", "gemma3_text", "mean")
    write_shards(tmp_path / "shards", start)
    with pytest.raises(InputError, match=CAUSAL):
        job_of(tmp_path, start, name="seed")
    job = job_of(tmp_path, start, name="seed", bidirectional=True)
    assert gradients_of(job)
    assert job.model.pooling == "mean"
    assert not is_causal(load_trained(save_run(tmp_path / "run", job)).model.trunk)
