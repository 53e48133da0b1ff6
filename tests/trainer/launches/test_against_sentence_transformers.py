"""A recipe trains like the script that a sentence-transformers user would write: equal losses at every step."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.interop.files import write_tokenizer
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.checkpoints.start_keys import with_keys_from_folder
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy
from tests.trainer.interop.test_cross_encoder import write_folder
from tests.trainer.many_runs import train
from tests.trainer.pairs_in_order import Pairs, pairs_in_order
from tests.trainer.runs import write_run

pytestmark = pytest.mark.slow  # real processes

BATCH = 8
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture
def library() -> Any:
    return pytest.importorskip("sentence_transformers")  # an extra: pip install deepsiam[export]


def recipe_of(folder: Path, collection: Path, steps: int, **method: Any) -> Path:
    """A recipe that starts from a folder; its run is `tuned` beside it."""
    return toy.write_recipe(
        folder.parent / "recipe.yaml",
        run=str(folder.parent / "tuned"),
        steps=steps,
        log_every=1,
        deepspeed="cpu",
        init_from=str(folder),
        data={"collection": str(collection), "lanes": 4, "window": 2},
        batch={"size": BATCH, "micro": BATCH},
        method={"max_query_tokens": 32, "max_document_tokens": 32, **method},
        optimizer={"lr": 1e-3, "warmup_steps": 4},
    )


def adamw(model: torch.nn.Module, recipe: FinetuneRecipe) -> torch.optim.AdamW:
    """AdamW as Hugging Face's Trainer builds it: no decay of biases and normalisation weights."""
    keys = recipe.optimizer
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": keys.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=keys.betas, eps=keys.eps)


def losses_of_script(
    model: torch.nn.Module, recipe: FinetuneRecipe, losses_of: Callable[[int, Pairs], dict[str, Tensor]]
) -> dict[str, dict[int, float]]:
    """Train a model of the library; return each term of the loss by step. The steps are counted from 1."""
    optimizer, curves = adamw(model.train(), recipe), dict[str, dict[int, float]]()
    for step, pairs in enumerate(islice(pairs_in_order(recipe), recipe.steps), start=1):
        for group in optimizer.param_groups:
            group["lr"] = recipe.optimizer.rate(step - 1, recipe.steps)
        losses = losses_of(step, pairs)
        torch.stack(list(losses.values())).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.optimizer.clip)
        optimizer.step()
        optimizer.zero_grad()
        for term, loss in losses.items():
            curves.setdefault(term, {})[step] = loss.item()
    return curves


@pytest.mark.parametrize("dimensions", [[], [32, 12, 5]], ids=["whole", "matryoshka"])
def test_multiple_negatives_ranking_loss(
    toy_collection: Path, tmp_path: Path, library: Any, dimensions: list[int]
) -> None:
    """From a folder of the library with mean pooling and cosine similarity, which the recipe takes over."""
    from sentence_transformers.losses import MatryoshkaLoss, MultipleNegativesRankingLoss

    keys = {"name": "siamese", "pooling": "mean", "similarity": "cosine", "max_query_tokens": 32}
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", max_document_tokens=32, **keys)
    folder = tmp_path / "folder"
    export_encoder(load_trained(run), folder)
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **NO_DROPOUT}))
    path = recipe_of(folder, toy_collection, 20, name="siamese", **({"dimensions": dimensions} if dimensions else {}))
    train(1, [[path]], tmp_path)
    terms = [f"softmax_{number}" for number in dimensions] or ["softmax"]
    curves = [toy.scalars(tmp_path / "tuned", f"loss/{term}") for term in terms]
    ours = {step: sum(curve[step] for curve in curves) for step in curves[0]}

    model = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    loss: Any = MultipleNegativesRankingLoss(model)
    if dimensions:
        loss = MatryoshkaLoss(model, loss, dimensions)

    def losses_of(step: int, pairs: Pairs) -> dict[str, Tensor]:
        return {"softmax": loss([model.tokenize(list(side)) for side in zip(*pairs, strict=True)], None)}

    theirs = losses_of_script(model, with_keys_from_folder(load(FinetuneRecipe, path)), losses_of)["softmax"]
    assert ours == pytest.approx(theirs, rel=2e-3)
    assert theirs[20] < 0.8 * theirs[1]


def write_masked_lm(folder: Path, tokenizer_json: Path) -> Path:
    """A BertForMaskedLM with random weights, whose output bias gives special tokens no weight, and its tokenizer."""
    ids = tokenizers.load(tokenizer_json)
    torch.manual_seed(0)
    sizes = {key: value for key, value in toy.TRUNK.items() if key != "model_type"}
    vocabulary = {"vocab_size": ids.vocab_size, "pad_token_id": ids.pad}
    model = BertForMaskedLM(BertConfig(**sizes, **vocabulary, **NO_DROPOUT, initializer_range=0.2))
    with torch.no_grad():
        model.cls.predictions.bias[list(ids.special)] = -1e4
    model.save_pretrained(folder)
    write_tokenizer(ids, 32, folder)
    return folder


def test_splade_loss(toy_collection: Path, tmp_path: Path, library: Any) -> None:
    """SpladeLoss of SparseMultipleNegativesRankingLoss, FLOPS of queries and of documents whose weights rise.

    No factor stands between the two: ours are sums over the step, divided by its queries (softmax) or texts (FLOPS);
    theirs are means over the batch, which is the step. Their `scale` is 1 / temperature. Two differences are known:

    - Special tokens have no weight in ours, and one like any token in theirs; so the start gives them none.
    - The weights of step s are (s / T)² of the full ones in ours, s counted from 1, as in SPLADE's released code. The
      library's callback counts from 0, so that its first step has no regulariser; it is called one step ahead.

    Our second run has two micro-batches, so its negatives and its means span both (GradCache).
    """
    from sentence_transformers.sparse_encoder import losses
    from sentence_transformers.sparse_encoder.callbacks import SpladeRegularizerWeightSchedulerCallback
    from transformers import TrainerState

    steps, ramp, temperature, of_query, of_document = 6, 3, 20.0, 2e-3, 1e-3
    folder = write_masked_lm(tmp_path / "folder", toy_collection / "tokenizer.json")
    regularise = {"query": {"flops": of_query}, "document": {"flops": of_document}, "ramp": ramp}
    path = recipe_of(folder, toy_collection, steps, name="sparse", temperature=temperature, regularise=regularise)
    cached = [f"run={tmp_path / 'cached'}", f"batch.micro={BATCH // 2}", "method.negatives=step"]
    train(1, [[path, "data.lanes=1"], [path, "data.lanes=1", *cached]], tmp_path)

    model = library.SparseEncoder(str(folder), device="cpu", local_files_only=True)
    assert model[1].get_config_dict()["pooling_strategy"] == "max"  # SpladePooling, on the logits of the masked LM
    softmax = losses.SparseMultipleNegativesRankingLoss(model, scale=1 / temperature)
    loss = losses.SpladeLoss(model, softmax, of_document, of_query)
    weights, state = SpladeRegularizerWeightSchedulerCallback(loss, warmup_ratio=ramp / steps), TrainerState()
    state.max_steps = steps
    weights.on_train_begin(None, state, None)

    def losses_of(step: int, pairs: Pairs) -> dict[str, Tensor]:
        state.global_step = step
        weights.on_step_begin(None, state, None)
        terms: dict[str, Tensor] = loss([model.tokenize(list(side)) for side in zip(*pairs, strict=True)])
        return terms

    recipe = load(FinetuneRecipe, path, ["data.lanes=1"])
    theirs = losses_of_script(model, recipe, losses_of)
    names = {
        "softmax": "base_loss",
        "query_flops": "query_regularizer_loss",
        "document_flops": "document_regularizer_loss",
    }
    for run in ("tuned", "cached"):
        for ours, name in names.items():
            curve = {
                step: value * recipe.method.weights_at(step - 1)[ours]
                for step, value in toy.scalars(tmp_path / run, f"loss/{ours}").items()
            }
            assert curve == pytest.approx(theirs[name], rel=1e-4), (run, ours)
    penalty = theirs["query_regularizer_loss"]
    assert 0 < penalty[1] < penalty[2] < penalty[ramp] > penalty[steps] / 0.9  # it rises with its weight, then falls


def test_binary_cross_entropy_loss(toy_scored: Path, tmp_path: Path, library: Any) -> None:
    """A CrossEncoder learns the labels of given pairs (monoBERT's loss), each the mean over the pairs of the step.

    The library's activation, a sigmoid, is for predictions: BinaryCrossEntropyLoss takes the logits, as ours does.
    """
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    steps = 6
    tokenizer_json = toy_scored / "tokenizer.json"
    folder = write_folder(tmp_path / "folder", tokenizer_json, "bert", **NO_DROPOUT)
    path = recipe_of(folder, toy_scored, steps, name="cross_encoder", loss="binary")
    train(1, [[path]], tmp_path)
    ours = toy.scalars(tmp_path / "tuned", "loss/binary")

    collection = Collection.open(toy_scored)
    groups = collection.groups("train")
    labels = {
        (collection.queries.text(group.query), collection.corpus.text(document)): label
        for group in (groups[i] for i in range(len(groups)))
        for document, label in zip(group.candidates.tolist(), group.labels.tolist(), strict=True)
    }
    model = library.CrossEncoder(str(folder), device="cpu", local_files_only=True)
    loss, seen = BinaryCrossEntropyLoss(model), set[float]()

    def losses_of(step: int, pairs: Pairs) -> dict[str, Tensor]:
        of_step = torch.tensor([labels[pair] for pair in pairs])
        seen.update(of_step.tolist())
        return {"binary": loss([list(side) for side in zip(*pairs, strict=True)], of_step)}

    theirs = losses_of_script(model, with_keys_from_folder(load(FinetuneRecipe, path)), losses_of)["binary"]
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert seen == {0.0, 1.0}
