"""Published causal language models rank by the logits of labels, which are transformers' and CrossEncoder's."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM, LlamaForCausalLM

from deepsiam.data_prep.collections.build import build as build_collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.arrays import on_device
from deepsiam.models.matching.label_ranker import LabelRankerConfig
from deepsiam.trainer.interop.causal_lm import by_labels, remark_on_labels
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.kinds import check_settings
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.settings import CAUSAL, MODULES, SETTINGS, TRANSFORMER
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.data_prep.tokenizers.families import FAMILIES
from tests.trainer.interop.family_folders import CAUSAL_LMS, write_causal_lm
from tests.trainer.interop.published_folders import change, each_file_once, write
from tests.trainer.runs import save_run, vouch, write_adapters

LIKE_OTHERS = ("mistral", "qwen2")  # as llama
ONES = torch.ones(1, 2, dtype=torch.long)
PASSAGES = ["the ship of bread was old", "its crew", "", "naïve café had sailed a long way, 12 loaves <s> not"]
PROMPT = """Search query: what they baked

Passages:
[A] the ship of bread was old
[B] its crew
[C] 
[D] naïve café had sailed a long way, 12 loaves < s> not

Rank the passages by their relevance to the search query, the most relevant one first. Answer with their letters \
alone, as in: A, B, C, D

Answer:
"""  # noqa: W291


def label_logits(loaded: LoadedModel, lists: list[tuple[str, list[str]]]) -> torch.Tensor:
    framing = loaded.method.prompt_framing(loaded.tokenizer)
    arrays = framing.arrays([framing.row(*queried) for queried in lists])
    with torch.no_grad():
        return loaded.model.label_logits(**on_device(arrays, torch.device("cpu")))


@pytest.mark.parametrize("kind", [kind for kind in CAUSAL_LMS if toy.FULL_TESTS or kind not in LIKE_OTHERS])
def test_the_logits_of_labels_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    folder = write_causal_lm(tmp_path / kind, kind)
    with each_file_once(folder):
        loaded = load_any(folder)
    library = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert (loaded.model.kind, loaded.method.max_prompt_tokens) == ("listwise", 512)
    passages = [text.replace("<s>", "< s>") for text in PASSAGES]
    (ids,) = loaded.tokenizer.encode([PROMPT])
    labels = [loaded.tokenizer.encode(["\n" + label])[0][-1].item() for label in "ABCD"]
    whole = torch.tensor([[*loaded.tokenizer.text_frame[0], *ids.tolist()]])
    with torch.no_grad():
        expected = library(input_ids=whole).logits[0, -1, labels]
    query = "what they baked"
    together = label_logits(loaded, [(query, passages[:2]), (query, passages), (query, passages[1:])])
    torch.testing.assert_close(together[1, :4], expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(label_logits(loaded, [(query, passages)])[0], together[1], rtol=0, atol=1e-5)
    assert expected.std() > 0.01


def recipe_of(collection: Path, run: Path, **changes: object) -> FinetuneRecipe:
    prompt = {"template": "{query}\n{passages}=\n", "labels": [*"ABC"], "max_prompt_tokens": 128}
    method = {"name": "label_ranker", "negatives_per_query": 1, **prompt}
    return build(FinetuneRecipe, toy.finetune_values(run, collection, **{"method": method, **changes}), "test")


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """A collection with the tokenizer of Qwen."""
    corpus = {f"d{i}": f"bread {i} was old" for i in range(20)}
    queries = {f"q{i}": f"sell bread {i}" for i in range(20)}
    pairs = "".join(f"q{i}\td{i}\t1\n" for i in range(20))
    folder = toy.write_beir(tmp_path / "beir", corpus, queries, train=pairs, test=pairs)
    tokenizer = tokenizers.load(FAMILIES["qwen2"].write(tmp_path / "tokenizer"))
    build_collection("beir", [folder], tmp_path / "collection", tokenizer)
    return tmp_path / "collection"


@pytest.mark.parametrize("kind", ["qwen3", "phi"])
def test_adapters_are_trained_with_the_rows_of_the_labels(kind: str, collection: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")  # an extra
    folder = write_causal_lm(tmp_path / kind, kind)
    library = AutoModelForCausalLM.from_pretrained(folder)
    method = recipe_of(collection, tmp_path / "run", init_from=str(folder)).method.model_dump()
    run = write_adapters(tmp_path / "run", collection, folder, {"rank": 2}, method=method)
    optimizer = {"lr": 1e-3, "train": {"lora": {"rank": 2}}}
    job = finetuning.build(recipe_of(collection, tmp_path / "run", init_from=str(folder), optimizer=optimizer))
    labels = [tokenizers.load(folder).vocabulary()[label] for label in "ABC"]
    rows = {f"labels.{name}": parameter[labels] for name, parameter in library.lm_head.named_parameters()}
    assert set(rows) == ({"labels.weight", "labels.bias"} if kind == "phi" else {"labels.weight"})
    trained = {name: parameter for name, parameter in job.model.named_parameters() if parameter.requires_grad}
    heads = {name: parameter for name, parameter in trained.items() if "lora_" not in name}
    torch.testing.assert_close(heads, rows, rtol=0, atol=0)
    merged = load_trained(run)
    arrays = next(iter(job.order.stream(job.order.start(), 0, 1))).micro_batch.arrays
    own = dict(job.model.named_parameters())
    weights = load_file(checkpoint.find(run) / checkpoint.WEIGHTS)
    assert weights.keys() == trained.keys()
    with torch.no_grad():
        for name, tensor in weights.items():
            own[name].copy_(tensor)
        given = {name: torch.from_numpy(array) for name, array in arrays.items()}
        (adapted,), (loaded,) = (model(**given).values() for model in (job.model.eval(), merged.model))
    torch.testing.assert_close(loaded, adapted)
    assert merged.model.label_logits(given["prompt_ids"], given["prompt_mask"]).isfinite().all()


def test_a_run_that_was_trained_without_biases_stays_without(collection: Path, tmp_path: Path) -> None:
    folder = write_causal_lm(tmp_path / "phi", "phi")
    recipe = recipe_of(collection, tmp_path / "run", init_from=str(folder))
    with each_file_once(folder):
        job = finetuning.build(recipe)
    found = checkpoint.find(save_run(tmp_path / "run", job))
    weights = load_file(found / checkpoint.WEIGHTS)
    assert weights.pop("labels.bias").abs().max() > 0
    save_file(weights, found / checkpoint.WEIGHTS)
    vouch(found)
    for model in (load_trained(tmp_path / "run").model, finetuning.build(recipe, found).model):
        assert {*model.heads} == {"labels.weight"}


def test_heads_that_are_not_understood_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_causal_lm(tmp_path / "llama", "llama")
    change(folder / "config.json", {"architectures": ["LlamaMedusaForCausalLM"]})
    with pytest.raises(InputError, match="config.json: architectures: the head of LlamaMedusaForCausalLM is not supp"):
        load_any(folder)
    change(folder / "config.json", {"architectures": ["LlamaForCausalLM"]})
    theirs = LlamaForCausalLM.forward
    monkeypatch.setattr(LlamaForCausalLM, "forward", lambda self, **inputs: theirs(self, **inputs, position_ids=ONES))
    with pytest.raises(InputError, match="LlamaForCausalLM computes its logits in a way that is not supported"):
        load_any(folder)


def test_starts_without_a_head_or_causality_or_tokens_are_refused(collection: Path, tmp_path: Path) -> None:
    folder = write_causal_lm(tmp_path / "base", "qwen2")
    AutoModel.from_pretrained(folder).save_pretrained(folder)
    words = {"name": "label_ranker", "labels": ["A", "zebra"], "negatives_per_query": 1}
    long = {**toy.TRUNK, "max_position_embeddings": 128}
    short = {**toy.TRUNK, "is_decoder": True}
    for keys, message in (
        ({"init_from": str(folder)}, "base has no head of a causal language model, .*start from a folder of one"),
        ({"trunk": long}, r"method: a label_ranker continues a prompt, .*'bert'.* is not causal"),
        ({"trunk": short}, "max_prompt_tokens: 128 tokens are more than the trunk's 64 positions"),
        ({"trunk": toy.TRUNK, "method": words}, "method.labels: 'zebra' is not a single token of the tokenizer"),
    ):
        with pytest.raises(InputError, match=message):
            finetuning.build(recipe_of(collection, tmp_path / "run", **keys))
    change(folder / "config.json", {"architectures": ["Qwen2ForCausalLM"]})
    with pytest.raises(InputError, match="base: has no head of a causal language model"):
        load_any(folder)


CHAT = "{% for message in messages %}{{ message['role'] }}={{ message['content'] }}\n{% endfor %}:"
LOGITS = "1_LogitScore/config.json"
KEYS: dict[str, Any] = {"template": "query={query}\ndocument={document}\n:", "labels": ["A", "B"], "loss": "binary"}
PAIRS = [("what they baked", "bread"), ("what they baked", "the ship was old"), ("its crew", "bread")]
IGNORED = "in place of its chat template, its activation_fn ('torch.nn.modules.activation.Sigmoid')"


Published = tuple[Path, Path, list[float]]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """A plain folder, that of CrossEncoder for the same model, and its scores of `PAIRS`, as log p."""
    cross_encoder = pytest.importorskip("sentence_transformers.cross_encoder")  # an extra
    base = pytest.importorskip("sentence_transformers.base.modules")
    plain, folder = (tmp_path_factory.mktemp("published") / name for name in ("plain", "library"))
    write_causal_lm(plain, "qwen3")
    change(plain / "tokenizer_config.json", {"chat_template": CHAT, "model_max_length": 512})
    vocabulary = tokenizers.load(plain).vocabulary()
    transformer = base.Transformer(str(plain), transformer_task="text-generation")
    library = cross_encoder.CrossEncoder(
        modules=[transformer, cross_encoder.modules.LogitScore(*map(vocabulary.get, "AB"))], device="cpu"
    )
    library.save_pretrained(str(folder))
    return plain, folder, list(library.predict(PAIRS))


@pytest.fixture
def folder(published: Published, tmp_path: Path) -> Path:
    return shutil.copytree(published[1], tmp_path / "library")


def scores(folder: Path) -> list[float]:
    loaded = load_any(folder)
    method = LabelRankerConfig(name="label_ranker", hard_negatives=1, max_prompt_tokens=256, **KEYS)
    loaded = by_labels(Folder(folder), loaded.model.trunk, loaded.tokenizer, method)
    logits = label_logits(loaded, [(query, [document]) for query, document in PAIRS])
    return loaded.model.relevance(logits).exp().tolist()


def remarks(folder: Path, labels: str = "AB") -> str:
    tokenizer = tokenizers.load(folder)
    tokens = [tokenizer.vocabulary()[label] for label in labels]
    without = check_settings(Folder(folder), CAUSAL, to_rank=True)
    return ", ".join(without) + remark_on_labels(Folder(folder), tokens, tokenizer)


def test_scores_are_those_of_the_library_and_of_the_plain_folder(
    published: Published, capfd: pytest.CaptureFixture[str]
) -> None:
    plain, folder, expected = published
    assert scores(folder) == scores(plain) == pytest.approx(expected, rel=1e-4)
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith(str(folder))]
    assert IGNORED in line


@pytest.mark.parametrize(
    ("file", "keys", "labels", "words"),
    [
        (SETTINGS, {"prompts": {"web": "Find"}, "default_prompt_name": "web"}, "AB", "its default_prompt_name ('web')"),
        (TRANSFORMER, {"processing_kwargs": {"chat_template": {"x": 1}}}, "AB", "its processing_kwargs ({'chat"),
        (TRANSFORMER, {"max_seq_length": 64}, "AB", "its max_seq_length (64)"),
        (LOGITS, {}, "CB", "published to compare 'A' with 'B'; the labels compare 'C' with 'B'"),
        (LOGITS, {"false_token_id": None}, "AB", "compare 'A' alone; the labels compare 'A' with"),
    ],
)
def test_what_a_recipe_replaces_is_told(folder: Path, file: str, keys: dict[str, Any], labels: str, words: str) -> None:
    change(folder / file, keys)
    assert words in remarks(folder, labels)


@pytest.mark.parametrize(
    ("file", "keys", "words"),
    [
        (TRANSFORMER, {"transformer_task": "fill-mask"}, "transformer_task is 'fill-mask', which is not supported"),
        (TRANSFORMER, {"module_output_name": "states"}, "module_output_name is 'states'"),
        (SETTINGS, {"rescale": 5}, "rescale is not a known key"),
        (LOGITS, {"module_input_name": "x"}, "module_input_name is 'x', which is not supported"),
        (LOGITS, {"scale": 5}, "scale is not a known key"),
        (LOGITS, {"true_token_id": None}, "true_token_id and false_token_id are .*not tokens"),
    ],
)
def test_what_would_change_scores_is_refused(folder: Path, file: str, keys: dict[str, Any], words: str) -> None:
    change(folder / file, keys)
    with pytest.raises(InputError, match=words):
        remarks(folder)


def test_more_modules_than_logit_score_are_refused(folder: Path) -> None:
    modules = json.loads((folder / MODULES).read_text())
    write(folder / MODULES, [*modules, {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])
    with pytest.raises(InputError, match="modules.json: has a Dense module, and only LogitScore is supported"):
        load_any(folder)
