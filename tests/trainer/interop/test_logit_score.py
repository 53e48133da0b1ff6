"""Language models that score pairs as CrossEncoder writes them: ranked by a recipe's prompt, as the plain folder."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.arrays import on_device
from deepsiam.models.matching.label_ranker import LabelRankerConfig
from deepsiam.trainer.interop.causal_lm import by_labels, remark_on_labels
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.kinds import check_settings
from deepsiam.trainer.interop.settings import CAUSAL, MODULES, SETTINGS, TRANSFORMER
from deepsiam.trainer.ranking.published import load_any
from tests.trainer.interop.family_folders import write_causal_lm
from tests.trainer.interop.published_folders import change, write

CHAT = "{% for message in messages %}{{ message['role'] }}={{ message['content'] }}\n{% endfor %}:"
KEYS: dict[str, Any] = {"template": "query={query}\ndocument={document}\n:", "labels": ["A", "B"], "loss": "binary"}
PAIRS = [("what they baked", "bread"), ("what they baked", "the ship was old"), ("its crew", "bread")]
IGNORED = "in place of its chat template, its activation_fn ('torch.nn.modules.activation.Sigmoid')"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[float]]:
    """A plain folder, the library's of the same model, and its scores of `PAIRS`, as log p."""
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
def folder(published: tuple[Path, Path, list[float]], tmp_path: Path) -> Path:
    return shutil.copytree(published[1], tmp_path / "library")


def scores(folder: Path, **keys: Any) -> list[float]:
    loaded = load_any(folder)
    method = LabelRankerConfig(name="label_ranker", hard_negatives=1, max_prompt_tokens=256, **{**KEYS, **keys})
    loaded = by_labels(Folder(folder), loaded.model.trunk, loaded.tokenizer, method)
    framing = loaded.method.prompt_framing(loaded.tokenizer)
    arrays = framing.arrays([framing.row(query, [document]) for query, document in PAIRS])
    logits = loaded.model.label_logits(**on_device(arrays, loaded.model.labels.weight.device))
    return loaded.model.relevance(logits).exp().tolist()


def remarks(folder: Path, labels: str = "AB") -> str:
    tokenizer = tokenizers.load(folder)
    tokens = [tokenizer.vocabulary()[label] for label in labels]
    return ", ".join(check_settings(Folder(folder), CAUSAL, to_rank=True)) + remark_on_labels(
        Folder(folder), tokens, tokenizer
    )


def test_scores_are_those_of_the_library_and_of_the_plain_folder(
    published: tuple[Path, Path, list[float]], capfd: pytest.CaptureFixture[str]
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
        ("1_LogitScore/config.json", {}, "CB", "published to compare 'A' with 'B'; the labels compare 'C' with 'B'"),
        ("1_LogitScore/config.json", {"false_token_id": None}, "AB", "compare 'A' alone; the labels compare 'A' with"),
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
        ("1_LogitScore/config.json", {"module_input_name": "x"}, "module_input_name is 'x', which is not supported"),
        ("1_LogitScore/config.json", {"scale": 5}, "scale is not a known key"),
        ("1_LogitScore/config.json", {"true_token_id": None}, "true_token_id and false_token_id are .*not tokens"),
    ],
)
def test_what_would_change_scores_is_refused(folder: Path, file: str, keys: dict[str, Any], words: str) -> None:
    change(folder / file, keys)
    with pytest.raises(InputError, match=words):
        remarks(folder)


def test_more_modules_are_refused(folder: Path) -> None:
    modules = json.loads((folder / MODULES).read_text())
    write(folder / MODULES, [*modules, {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])
    with pytest.raises(InputError, match="modules.json: has a Dense module, and only LogitScore is supported"):
        load_any(folder)
