"""The heads of published masked LMs: the logits are those of transformers' own model."""

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, PreTrainedModel

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.layers.lm_head import LmHead
from deepsiam.models.layers.shape import shape_of
from deepsiam.trainer.interop import folder as interop_folder
from deepsiam.trainer.interop.folder import WEIGHTS, Folder
from deepsiam.trainer.interop.masked_lm import read_masked_lm_head
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
DISTILBERT = {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 64}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {"hidden_act": "relu"},
    "roberta": {},
    "xlm-roberta": {},
    "camembert": {},
    "mpnet": {},
    "distilbert": DISTILBERT,
    "modernbert": {"pad_token_id": 0, "global_attn_every_n_layers": 1},
    "electra": {"embedding_size": 32},
}


def publish(folder: Path, kind: str, **options: Any) -> PreTrainedModel:
    """A masked LM with random weights, biases included, as transformers saves it."""
    torch.manual_seed(0)
    sizes = {} if kind == "distilbert" else SIZES
    config = AutoConfig.for_model(kind, **{"vocab_size": 90, **sizes, **FAMILIES.get(kind, {}), **options})
    model = AutoModelForMaskedLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, 0.1, 0.3)
    model.save_pretrained(folder)
    return model


def weights_of(path: Path) -> tuple[PreTrainedModel, dict[str, torch.Tensor]]:
    folder = Folder(path)
    trunk = folder.trunk().eval()
    return trunk, read_masked_lm_head(folder, trunk)


def head_of(folder: Path) -> tuple[PreTrainedModel, LmHead]:
    trunk, weights = weights_of(folder)
    head = LmHead(shape_of(trunk))
    head.load_state_dict({name.removeprefix("lm_head."): weight for name, weight in weights.items()})
    return trunk, head


def test_names_of_the_first_bert_files_are_known(tmp_path: Path) -> None:
    publish(tmp_path, "bert")
    weights = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): weight
        for name, weight in load_file(tmp_path / WEIGHTS).items()
    }
    expected = head_of(tmp_path)[1].state_dict()
    save_file(weights, tmp_path / WEIGHTS, metadata={"format": "pt"})
    torch.testing.assert_close(head_of(tmp_path)[1].state_dict(), expected)


def test_an_encoder_without_the_head_or_with_another_output_has_none(tmp_path: Path) -> None:
    model = publish(tmp_path / "untied", "bert", tie_word_embeddings=False)
    assert weights_of(tmp_path / "untied")[1] == {}
    AutoModel.from_config(model.config).save_pretrained(tmp_path / "encoder")
    assert weights_of(tmp_path / "encoder")[1] == {}
    publish(tmp_path / "act", "roberta", hidden_act="relu")
    assert weights_of(tmp_path / "act")[1] == {}


def test_a_fine_tuning_starts_with_the_head_or_says_what_is_missing(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tokenizers.load(toy_collection / "tokenizer.json")
    model = publish(tmp_path / "start", "bert", vocab_size=made.vocab_size, pad_token_id=made.pad)
    shutil.copy(made.path, tmp_path / "start" / "tokenizer.json")

    def start(*changes: str) -> None:
        path = toy.finetune_recipe(
            tmp_path / "run.yaml",
            toy_collection,
            init_from=str(tmp_path / "start"),
            trunk=None,
            method={"name": "sparse"},
        )
        finetuning.build(load(FinetuneRecipe, path, changes))

    weights_file = Mock(wraps=load_file)
    monkeypatch.setattr(interop_folder, "load_file", weights_file)
    start()
    weights_file.assert_called_once_with(tmp_path / "start" / WEIGHTS)  # for the encoder and its head
    assert "the encoder, and 5 of the 5 head weights" in capsys.readouterr().out
    model.bert.save_pretrained(tmp_path / "start")
    with pytest.raises(InputError, match="start has no masked LM's head .* set method.head=new_mlm"):
        start()
    start("method.head=new_mlm")
