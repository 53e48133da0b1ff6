"""The weights and keys that a fine-tuning starts from."""

import json
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.causality import is_causal
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.evaluation.task import evaluate_split
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.init_from import load_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from deepsiam.trainer.training.run.job import Job
from tests import toy
from tests.trainer.interop.test_cross_encoder import write_folder as write_cross_encoder
from tests.trainer.runs import save_run, write_run

Jobs = Callable[..., Job]
Starts = Callable[..., Path]

SEED = {"name": "seed", "max_tokens": 32}
CROSS_THOUGHT = {"name": "cross_thought", "sequences": 4, "sequence_tokens": 8, "special_tokens": 3}
COLBERT = {"name": "colbert", "max_query_tokens": 8, "max_document_tokens": 16}
CROSS = {"name": "cross_encoder", "max_query_tokens": 8, "max_document_tokens": 16, "negatives_per_query": 1}


@pytest.fixture
def job_of(toy_collection: Path, tmp_path: Path) -> Jobs:
    """Build the job of a recipe with changes, of which one or more name what it starts from."""

    def job_of(collection: Path = toy_collection, **start: Any) -> Job:
        values = toy.finetune_values(tmp_path / "tuned", collection, **start)
        return finetuning.build(build(FinetuneRecipe, values, "test"))

    return job_of


@pytest.fixture
def start_of(toy_collection: Path, tmp_path: Path) -> Starts:
    """Write a run of a method, and its export beside it as `export`."""

    def start_of(**method: Any) -> Path:
        run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **method)
        export_encoder(load_trained(run), tmp_path / "export")
        return run

    return start_of


def write_folder(folder: Path, collection: Path, settings: dict[str, Any]) -> Path:
    """Write a plain Hugging Face encoder with the collection's tokenizer."""
    tokenizer = tokenizers.load(collection / "tokenizer.json")
    build_trunk({**settings, "vocab_size": tokenizer.vocab_size}).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(tokenizer.path.read_bytes())
    return folder


def same_weights(one: Job, other: Job) -> bool:
    first, second = one.model.state_dict(), other.model.state_dict()
    assert first.keys() == second.keys()
    return all(torch.equal(weight, second[name]) for name, weight in first.items())


@pytest.mark.parametrize("method", [SEED, CROSS_THOUGHT])
def test_special_tokens_are_those_of_the_pre_training(job_of: Jobs, start_of: Starts, method: dict[str, Any]) -> None:
    """With another number, embedding rows and positions would differ from the trained ones."""
    run, learned = start_of(**method), method.get("special_tokens", 1)
    for wanted, start in product((1, 2, 3), (run, run.with_name("export"))):
        if wanted == learned:
            job = job_of(init_from=str(start), method={"special_tokens": wanted})
            assert job.model.keys.special_tokens == learned  # type: ignore[union-attr]
        else:
            with pytest.raises(InputError, match=f"{wanted}, but {start} was trained with {learned}; set"):
                job_of(init_from=str(start), method={"special_tokens": wanted})


@pytest.mark.parametrize("random_weights", [False, True])
def test_new_weights_are_those_of_the_seed(job_of: Jobs, start_of: Starts, random_weights: bool) -> None:
    start: dict[str, Any] = {"trunk": toy.TRUNK}
    if random_weights:
        start = {"init_from": str(start_of(**SEED)), "random_weights": True}
    first = job_of(seed=1, **start)
    assert same_weights(first, job_of(seed=1, **start))
    name = "encoder.layer.0.output.dense.weight"
    other = job_of(seed=2, **start).model.trunk.get_parameter(name)
    assert not torch.equal(first.model.trunk.get_parameter(name), other)


DECODER = {**toy.TRUNK, "hidden_size": 16, "num_hidden_layers": 1}
GROUPED = {**DECODER, "num_key_value_heads": 1, "bos_token_id": 2, "eos_token_id": 3}
DECODERS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64},
    "llama": GROUPED,
    "mistral": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 8},
    "gemma3_text": {**GROUPED, "head_dim": 8},
}


@pytest.mark.parametrize(("kind", "published"), [*((kind, True) for kind in DECODERS), ("gpt2", False)])
def test_a_decoder_is_pooled_at_its_last_state_and_refused_with_the_first(
    job_of: Jobs, toy_collection: Path, tmp_path: Path, kind: str, published: bool
) -> None:
    """Whether the recipe describes it or names a folder; the first state is the same for every text."""
    settings = {**DECODERS[kind], "model_type": kind}
    start: dict[str, Any] = {"trunk": settings}
    if published:
        start = {"init_from": str(write_folder(tmp_path / kind, toy_collection, settings))}
    with pytest.raises(InputError, match=rf"^method: the trunk \(model_type '{kind}'\) is causal.*method.pooling=last"):
        job_of(**start, method={"pooling": "cls"})
    job = job_of(**start)
    assert job.recipe.method.pooling == job.model.keys.pooling == "last"  # type: ignore[union-attr]
    assert yaml.safe_load(job.sidecar_files[checkpoint.RECIPE])["method"]["pooling"] == "last"


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_decoder_is_made_bidirectional_and_stays_so(
    job_of: Jobs, toy_collection: Path, tmp_path: Path, kind: str
) -> None:
    folder = write_folder(tmp_path / kind, toy_collection, {**DECODERS[kind], "model_type": kind})
    start = {"init_from": str(folder), "bidirectional": True}
    job = job_of(**start, method={"pooling": "cls"})
    written = build_trunk(json.loads(job.sidecar_files[checkpoint.TRUNK]))
    random = job_of(**start, random_weights=True)
    assert not any(is_causal(trunk) for trunk in (job.model.trunk, written, random.model.trunk))


def test_an_encoder_is_bidirectional_already(job_of: Jobs, start_of: Starts) -> None:
    with pytest.raises(InputError, match=r"^bidirectional: the trunk \(model_type 'bert'\) is bidirectional already"):
        job_of(init_from=str(start_of(**SEED)), bidirectional=True)


@pytest.mark.parametrize(("own", "head"), [(SEED, ""), (COLBERT, "projection.weight"), (CROSS, "head.3.weight")])
def test_an_export_is_fine_tuned_like_its_run(
    job_of: Jobs, start_of: Starts, own: dict[str, object], head: str
) -> None:
    """With the head of the run's model, where the fine-tuned one has it too."""
    run = start_of(**own)
    for method in [own, {}] if head else [{}]:
        one, other = (job_of(init_from=str(start), method=method) for start in (run, run.with_name("export")))
        assert same_weights(one, other)
        assert (head in one.model.state_dict()) == bool(method)


@pytest.mark.parametrize(
    ("method", "start"), [(SEED, "run"), (SEED, "export"), (SEED, "folder"), (COLBERT, "run")], ids=str
)
def test_markers_are_drawn_where_an_encoder_has_none(
    job_of: Jobs, start_of: Starts, toy_collection: Path, method: dict[str, Any], start: str
) -> None:
    folder, tokenizer = start_of(**method).with_name(start), tokenizers.load(toy_collection / "tokenizer.json")
    if start == "folder":
        write_folder(folder, toy_collection, toy.TRUNK)
    rows, again = (table_of(job_of(init_from=str(folder), method=COLBERT).model.trunk) for _ in range(2))
    known = table_of(load_encoder(Folder(folder), tokenizer).trunk)
    assert len(rows) == tokenizer.vocab_size + 2
    assert len(known) == (len(rows) if method is COLBERT else tokenizer.vocab_size)  # a ColBERT has the markers
    assert torch.equal(rows[: len(known)], known)
    assert not torch.equal(rows[-2], rows[-1])
    assert torch.equal(rows, again)


def table_of(trunk: Any) -> Tensor:
    table: Tensor = trunk.get_input_embeddings().weight
    assert trunk.config.vocab_size == len(table)
    return table


@pytest.mark.parametrize("method", [COLBERT, {**COLBERT, "name": "poly_encoder", "m": 4}])
def test_an_encoder_of_several_special_tokens_is_refused_where_they_are_not_read(
    job_of: Jobs, start_of: Starts, method: dict[str, Any]
) -> None:
    run = start_of(**CROSS_THOUGHT)  # as many rows as ColBERT adds
    with pytest.raises(
        InputError, match=f"^init_from: .*run was trained with 3 special tokens, and .*{method['name']}"
    ):
        job_of(init_from=str(run), method=method)


def test_the_marker_is_one_of_the_tokens_of_a_text(job_of: Jobs, toy_collection: Path) -> None:
    """The trunk has 64 positions."""
    job: Any = job_of(trunk=toy.TRUNK, method={**COLBERT, "max_query_tokens": 64})
    framing = job.recipe.method.query_framing(tokenizers.load(toy_collection / "tokenizer.json"))
    arrays = framing.arrays([np.arange(5, 205)])
    assert arrays["ids"].shape == (1, 64)
    assert job.model.embed_queries(*map(torch.from_numpy, arrays.values())).vectors.shape == (1, 64, 128)
    with pytest.raises(InputError, match="method.max_query_tokens: 65 tokens are more than the trunk's 64"):
        job_of(trunk=toy.TRUNK, method={**COLBERT, "max_query_tokens": 65})


PAIRS: dict[str, Any] = {  # keys of a pre-training on pairs
    "similarity": "cosine",
    "temperature": 0.02,
    "pooling": "mean",
    "query_prompt": "ab ",
    "document_prompt": "abc ",
    "prompt_in_pooling": False,
}
LENGTHS = {"max_query_tokens": 32, "max_document_tokens": 32}  # an export has one length


def test_a_run_of_pairs_ranks_as_its_export_does(start_of: Starts, toy_collection: Path) -> None:
    run, collection = start_of(name="pairs", **LENGTHS, **PAIRS), Collection.open(toy_collection)
    of_run, of_export = load_any(run), load_any(run.with_name("export"))
    assert of_run.kind == "siamese"
    own, exported = (evaluate_split(ranker_of(loaded, collection), "test") for loaded in (of_run, of_export))
    assert own.means == exported.means
    kept = {key: value for key, value in PAIRS.items() if key != "temperature"}
    assert {key: getattr(of_export.method, key) for key in kept} == kept


SHORT = {"max_query_tokens": 16, "max_document_tokens": 24}
ANSWERS = {"name": "cross_thought_answers", "special_tokens": 3, "negatives_per_query": 3, **SHORT}
CLASSES = {"name": "cross_thought_pairs", "special_tokens": 3, "classes": 3, **SHORT}


def test_the_cross_layer_of_a_run_or_of_its_export_is_taken_over(
    job_of: Jobs, start_of: Starts, toy_collection: Path, toy_classes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrained = start_of(**CROSS_THOUGHT)
    trained = load_trained(pretrained)
    weights, decoded = dict(trained.model.named_parameters()), pretrained.with_name("decoded")
    export_encoder(trained, decoded, with_decoder=True)
    for words, collection, method in ("4 of the 4", toy_collection, ANSWERS), ("14 of the 16", toy_classes, CLASSES):
        for start in (pretrained, decoded):
            model = job_of(collection=collection, method=method, init_from=str(start)).model
            own = {key: weight for key, weight in model.named_parameters() if not key.startswith("head.")}
            assert any(key.startswith("cross.") for key in own)
            for key, weight in own.items():
                torch.testing.assert_close(weight, weights[key], rtol=0, atol=0)
            assert f"the encoder, and {words} head weights" in capsys.readouterr().out
        model = job_of(collection=collection, method=method, init_from=str(pretrained), random_weights=True).model
        key = "cross.attention.query.weight"
        assert not torch.equal(model.get_parameter(key), weights[key])


def test_a_run_continues_from_the_heads_of_another(job_of: Jobs, toy_collection: Path, tmp_path: Path) -> None:
    method = {"name": "siamese", "projection": 8, "towers": 2, "learn_temperature": True, **SHORT}
    first = write_run(tmp_path / "first", toy_collection / "tokenizer.json", **method)
    weights = dict(load_trained(first).model.named_parameters())
    model = job_of(method={**method, "temperature": 0.5}, init_from=str(first)).model
    for name, weight in model.named_parameters():
        expected = torch.full_like(weight, math.log(0.5)) if name == "log_temperature" else weights[name]
        torch.testing.assert_close(weight, expected, rtol=0, atol=0)


def test_a_pair_longer_than_the_encoder_reads_is_refused(job_of: Jobs) -> None:
    method = {"name": "cross_encoder", "negatives_per_query": 1, "max_query_tokens": 25, "max_document_tokens": 41}
    words = r"method.max_query_tokens \+ method.max_document_tokens - 1: 65 tokens are more than the trunk's 64"
    with pytest.raises(InputError, match=words):
        job_of(method=method, trunk=toy.TRUNK)
    job_of(method={**method, "max_document_tokens": 40}, trunk=toy.TRUNK)


@pytest.mark.parametrize("method", [CLASSES, {"name": "cross_encoder", "loss": "classes", "classes": 3, **SHORT}])
def test_another_number_of_classes_than_the_datas_is_refused(
    job_of: Jobs, toy_classes: Path, method: dict[str, Any]
) -> None:
    job_of(collection=toy_classes, method=method, trunk=toy.TRUNK)
    for classes in (2, 4):
        words = f"method.classes: {classes}, but .* has 3: entailment, neutral, contradiction: set method.classes=3"
        with pytest.raises(InputError, match=words):
            job_of(collection=toy_classes, method={**method, "classes": classes}, trunk=toy.TRUNK)


@pytest.mark.parametrize(
    ("theirs", "line"),
    [
        ((), None),
        (("Entailment", "neutral", "contradiction"), None),
        (("contradiction", "entailment", "neutral"), "the last layer is brought into their order"),
        (("negative", "neutral", "positive"), "the last layer is new"),
    ],
)
def test_the_classes_of_a_start_are_brought_into_the_order_of_the_datas(
    job_of: Jobs,
    toy_classes: Path,
    tmp_path: Path,
    theirs: tuple[str, ...],
    line: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = {"id2label": dict(enumerate(theirs))} if theirs else {}
    start = write_cross_encoder(tmp_path / "start", toy_classes / "tokenizer.json", "bert", num_labels=3, **names)
    method = {"name": "cross_encoder", "loss": "classes", "classes": 3, "max_query_tokens": 10}
    job = job_of(collection=toy_classes, method=method, init_from=str(start))
    said = [one for one in capsys.readouterr().out.splitlines() if "has the classes" in one]
    assert [one.rpartition(", ")[2] for one in said] == ([line] if line else [])
    published = load_file(start / "model.safetensors")["classifier.weight"]
    head = dict(job.model.named_parameters())["head.3.weight"].detach()
    if line and "new" in line:
        assert not torch.isin(head, published).any()
    else:
        assert head.equal(published[[1, 2, 0]] if line else published)
    run = save_run(tmp_path / "run", job)
    export_encoder(load_trained(run), tmp_path / "out")
    exported = json.loads((tmp_path / "out" / "config.json").read_text())
    assert exported["id2label"] == {"0": "entailment", "1": "neutral", "2": "contradiction"}
    assert exported["label2id"] == {"entailment": 0, "neutral": 1, "contradiction": 2}
