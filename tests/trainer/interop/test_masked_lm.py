"""The heads of published masked LMs (what sparse models make of them: test_round_trip.py)."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, PreTrainedModel

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.interop.folder import WEIGHTS, Folder
from deepsiam.trainer.interop.masked_lm import read_masked_lm_head
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
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


def weights_of(path: Path) -> dict[str, torch.Tensor]:
    folder = Folder(path)
    return read_masked_lm_head(folder, folder.trunk())


def test_names_of_the_first_bert_files_are_known(tmp_path: Path) -> None:
    publish(tmp_path, "bert")
    expected, weights = weights_of(tmp_path), load_file(tmp_path / WEIGHTS)
    for name in [name for name in weights if "LayerNorm" in name]:
        old_name = name.replace("weight", "gamma").replace("bias", "beta")
        weights[old_name] = weights.pop(name)
    save_file(weights, tmp_path / WEIGHTS, metadata={"format": "pt"})
    torch.testing.assert_close(weights_of(tmp_path), expected)


def test_an_encoder_without_the_head_or_with_another_output_has_none(tmp_path: Path) -> None:
    model = publish(tmp_path / "untied", "bert", tie_word_embeddings=False)
    assert weights_of(tmp_path / "untied") == {}
    AutoModel.from_config(model.config).save_pretrained(tmp_path / "encoder")
    assert weights_of(tmp_path / "encoder") == {}
    publish(tmp_path / "act", "roberta", hidden_act="relu")
    assert weights_of(tmp_path / "act") == {}


def test_a_fine_tuning_starts_with_the_head_or_says_what_is_missing(
    toy_collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, folder = tokenizers.load(toy_collection / "tokenizer.json"), tmp_path / "start"
    model = publish(folder, "bert", vocab_size=made.vocab_size, pad_token_id=made.pad)
    shutil.copy(made.path, folder)

    def start(**keys: str) -> None:
        method = {"name": "sparse", **keys}
        values = toy.finetune_values(tmp_path / "run", toy_collection, init_from=str(folder), method=method)
        finetuning.build(build(FinetuneRecipe, values, "test"))

    start()
    assert "the encoder, and 5 of the 5 head weights" in capsys.readouterr().out
    model.bert.save_pretrained(folder)
    with pytest.raises(InputError, match="start has no masked LM's head .* set method.head=new_mlm"):
        start()
    start(head="new_mlm")
