"""Adapters on real ranks: equal to peft's own model; ZeRO stages, precisions, resuming, other numbers of ranks."""

import json
from itertools import islice, product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy
from tests.trainer.many_runs import LOSS_SCALE_POWER, ds_config, job_of, stage_file, train, train_and_resume
from tests.trainer.pairs_in_order import pairs_in_order
from tests.trainer.runs import write_run

peft = pytest.importorskip("peft")  # an extra
pytestmark = pytest.mark.slow  # real processes

STEPS = 4
COMPARED = 20  # steps next to another library
LR = 3e-3
LORA = {"lora": {"rank": 4, "targets": ["query", "value", "dense"]}}
KINDS = {  # changes of the recipe, which starts from a pre-training run
    "siamese": [],
    "towers": ["method.towers=2", "method.learn_temperature=true"],
    "markers": ["method={name: colbert, dimension: 16, max_query_tokens: 16, max_document_tokens: 32}"],
    "top": ["optimizer.train=1"],  # no adapters: the lower layers are frozen
}
HALF = ("zero1_bf16", "zero2_fp16", "zero3_bf16")
RECOMPUTED = ("zero1", "zero3_bf16")
# every kind, stage and precision; a step at stage 3 takes ten times as long as one at stages 1 and 2
WHOLE = [("siamese", "zero1"), ("siamese", "zero2_fp16"), ("siamese", "zero3_bf16")]
WHOLE += [("towers", "zero2"), ("towers", "zero1_bf16"), ("markers", "zero3")]
if toy.FULL_TESTS:
    WHOLE = list(product(("siamese", "towers", "markers"), ("zero1", "zero2", "zero3", *HALF)))
RESUMED = [("siamese", "zero1"), ("siamese", "zero3_bf16"), ("markers", "zero3")]  # top: test_optimizers


@pytest.fixture(scope="module")
def recipe(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fine-tuning of adapters and a head, with dropout, from a run whose weights no seed gives."""
    folder = tmp_path_factory.mktemp("adapters")
    start = write_run(folder / "start", toy_collection / "tokenizer.json", seed=9, name="mlm", max_tokens=32)
    return toy.finetune_recipe(
        folder / "run.yaml",
        toy_collection,
        steps=STEPS,
        init_from=str(start),
        method={"pooling": "mean", "similarity": "cosine", "temperature": 0.3},
        optimizer={"lr": LR, "eps": 1e-3, "weight_decay": 0.1, "schedule": "constant", "train": LORA},
        checkpoint={"every": STEPS // 2},
    )


@pytest.fixture(scope="module")
def runs(recipe: Path) -> Path:
    """A folder with the runs KIND-RANKS-CONFIG.

    Runs on 2 ranks that ended half-way and were resumed end in -same (on 2 ranks) and -other (on one rank).
    """
    folder = recipe.parent
    files = {f"zero{stage}": stage_file(folder, stage) for stage in (1, 2, 3)}
    files |= {config: ds_config(folder, config, LOSS_SCALE_POWER) for config in HALF}

    def run(kind: str, config: str, name: str, *changes: str) -> list[object]:
        folders = [f"run={folder}/{kind}-{name}", f"deepspeed={files[config]}"]
        return [recipe, *folders, *KINDS[kind], *changes]

    whole = [run(kind, config, f"2-{config}") for kind, config in dict.fromkeys([*WHOLE, *RESUMED])]
    recomputed = "activation_checkpointing=true"
    whole += [run("siamese", config, f"2-{config}-recomputed", recomputed) for config in RECOMPUTED]
    alone = [run(kind, "zero1", "1-zero1") for kind in KINDS]
    train_and_resume(whole, alone, RESUMED, run, STEPS, folder)
    return folder


def weights_of(run: Path, step: int = STEPS) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.folder(run, step) / checkpoint.WEIGHTS)


@pytest.mark.parametrize(("kind", "config"), WHOLE)
def test_ranks_stages_and_precisions_agree(runs: Path, kind: str, config: str) -> None:
    seen, expected = (toy.scalars(runs / f"{kind}-{run}", "loss/softmax") for run in (f"2-{config}", "1-zero1"))
    assert sorted(seen) == list(range(1, STEPS + 1))
    half = {"bf16": 3e-2, "fp16": 6e-3}
    assert seen == pytest.approx(expected, rel=half.get(config.split("_")[-1], 1e-4))


@pytest.mark.parametrize(("kind", "config"), RESUMED)
def test_stopped_and_resumed_it_is_the_same_run_to_the_bit(runs: Path, kind: str, config: str) -> None:
    one, other = (runs / f"{kind}-2-{config}{end}" for end in ("", "-same"))
    assert toy.scalars(one, "loss/softmax") == toy.scalars(other, "loss/softmax")
    files = [checkpoint.folder(run, STEPS) / checkpoint.WEIGHTS for run in (one, other)]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("config", RECOMPUTED)
def test_activation_checkpointing_changes_no_bit(runs: Path, config: str) -> None:
    one, other = (runs / f"siamese-2-{config}{end}" for end in ("", "-recomputed"))
    assert toy.scalars(one, "loss/softmax") == toy.scalars(other, "loss/softmax")
    assert all(tensor.equal(weights_of(other)[name]) for name, tensor in weights_of(one).items())


@pytest.mark.parametrize(("kind", "config"), RESUMED)
def test_it_resumes_with_another_number_of_ranks(runs: Path, kind: str, config: str) -> None:
    seen, whole = (toy.scalars(runs / f"{kind}-2-{config}{end}", "loss/softmax") for end in ("-other", ""))
    assert seen == pytest.approx(
        {step: loss for step, loss in whole.items() if step > STEPS // 2}, rel=3e-2 if "bf16" in config else 1e-4
    )


@pytest.mark.parametrize(("kind", "config"), WHOLE)
def test_a_checkpoint_has_the_adapters_and_heads_alone(runs: Path, kind: str, config: str) -> None:
    """Of the encoder, it has only what the base lacks: the table with the markers."""
    run = runs / f"{kind}-2-{config}"
    own, before, folder = weights_of(run), weights_of(run, STEPS // 2), checkpoint.folder(run, STEPS)
    assert not [name for name, weight in own.items() if "lora_" in name and weight.equal(before[name])]
    frozen = {name for name in own if "trunk." in name and "lora_" not in name}
    assert frozen == ({"trunk.embeddings.word_embeddings.weight"} if kind == "markers" else set())
    head = {"towers": "log_temperature", "markers": "projection.weight"}.get(kind)
    assert {name for name in own if "trunk." not in name} == ({head} if head else set())
    assert any(name.startswith("document_trunk.") for name in own) == (kind == "towers")
    states = torch.load(next((folder / checkpoint.ENGINE).glob("*mp_rank_00_model_states.pt")), weights_only=False)
    assert {name for name in states["module"] if "trunk." in name and "lora_" not in name} == set()
    assert not states.get("frozen_param_fragments")
    assert json.loads((folder / checkpoint.BASE).read_text())["folder"].endswith("start/checkpoints/step-00000007")


@pytest.mark.parametrize(("kind", "config"), [*((kind, "zero1") for kind in KINDS), ("markers", "zero3")])
def test_a_loaded_run_computes_what_was_trained(recipe: Path, runs: Path, kind: str, config: str) -> None:
    """Its adapters are merged; in the model that was trained they are beside the layers."""
    ranks = 1 if config == "zero1" else 2
    loaded = load_trained(runs / f"{kind}-{ranks}-{config}")
    job = job_of(recipe, KINDS[kind])
    own = dict(job.model.named_parameters())
    with torch.no_grad():
        for name, tensor in weights_of(runs / f"{kind}-{ranks}-{config}").items():
            own[name].copy_(tensor)
    ids = torch.arange(5, 29).view(3, 8)
    mask = torch.ones(3, 8, dtype=torch.bool)
    with torch.no_grad():
        expected = job.model.eval().embed_documents(ids, mask).vectors
        torch.testing.assert_close(loaded.model.embed_documents(ids, mask).vectors, expected, rtol=0, atol=2e-6)
    assert all(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.model.from_base == frozenset()
    assert not any("lora_" in name or "base_layer" in name for name, _ in loaded.model.named_parameters())


def test_the_losses_are_those_of_sentence_transformers_with_pefts_model(toy_collection: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")  # an extra: pip install deepsiam[export]
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    keys = {"name": "siamese", "pooling": "mean", "similarity": "cosine", "max_query_tokens": 32}
    run = write_run(tmp_path / "base", toy_collection / "tokenizer.json", max_document_tokens=32, **keys)
    export_encoder(load_trained(run), tmp_path / "folder")
    config = tmp_path / "folder" / "config.json"
    dropouts = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config.write_text(json.dumps({**json.loads(config.read_text()), **dropouts}))
    optimizer = {"lr": 1e-2, "weight_decay": 0.01, "train": {"lora": {"rank": 4, "alpha": 8, "dropout": 0.0}}}
    path = toy.finetune_recipe(
        tmp_path / "tuned.yaml",
        toy_collection,
        steps=COMPARED,
        init_from=str(tmp_path / "folder"),
        batch={"size": 8, "micro": 8},
        method={"max_query_tokens": 32, "pooling": "mean", "similarity": "cosine", "temperature": 0.05},
        optimizer=optimizer,
    )
    train(1, [[path]], tmp_path)
    ours = toy.scalars(tmp_path / "tuned", "loss/softmax")

    model = library.SentenceTransformer(str(tmp_path / "folder"), device="cpu", local_files_only=True)
    model.add_adapter(peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["query", "value"]))
    first = {name.removeprefix("trunk."): p for name, p in job_of(path, []).model.named_parameters()}
    adapters = {name: p for name, p in model[0].auto_model.named_parameters() if p.requires_grad}
    assert len(adapters) == 8
    with torch.no_grad():
        for name, parameter in adapters.items():
            parameter.copy_(first[name])
    recipe, theirs, loss_of = load(FinetuneRecipe, path), {}, MultipleNegativesRankingLoss(model)
    adamw = torch.optim.AdamW(adapters.values(), eps=recipe.optimizer.eps, weight_decay=recipe.optimizer.weight_decay)
    for step, pairs in enumerate(islice(pairs_in_order(recipe), COMPARED), start=1):
        for group in adamw.param_groups:
            group["lr"] = recipe.optimizer.rate(step - 1, COMPARED)
        loss = loss_of([model.tokenize(list(side)) for side in zip(*pairs, strict=True)], None)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adapters.values(), recipe.optimizer.clip)
        adamw.step()
        adamw.zero_grad()
        theirs[step] = loss.item()
    assert theirs[COMPARED] < 0.8 * theirs[1]
    assert [ours[step] for step in (1, 2, 3)] == pytest.approx([theirs[step] for step in (1, 2, 3)], rel=1e-6)
    assert ours == pytest.approx(theirs, rel=1e-4)
