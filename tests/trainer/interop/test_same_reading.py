"""Tokenizers as the families of published encoders have them, in the layouts that transformers 4 and 5 wrote."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.same_reading import require_same_reading

TEXTS = ["The quick fox jumps over the dog, doesn't it? naïve café 漢字", "Every WORD of it, Straße"] * 20
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
OLD: dict[str, Any] = {"model_max_length": 512}  # all that the first releases wrote


def roberta() -> Tokenizer:
    """A byte-level BPE, framed as RoBERTa's."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    pieces: dict[str, Any] = {"vocab_size": 400, "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    made.train_from_iterator(TEXTS, trainers.BpeTrainer(special_tokens=SPECIAL, **pieces))
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return made


def xlm_roberta() -> Tokenizer:
    """A Unigram model with SentencePiece's marks of blanks."""
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    made.decoder = decoders.Metaspace()
    made.train_from_iterator(TEXTS, trainers.UnigramTrainer(vocab_size=150, special_tokens=SPECIAL, unk_token="<unk>"))
    made.post_processor = framed("<s> $A </s>")
    return made


def framed(single: str) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(single=single, special_tokens=[("<s>", 0), ("</s>", 2)])


MADE = {"roberta": roberta, "xlm-roberta": xlm_roberta}


def write(folder: Path, kind: str, config: dict[str, Any] | None) -> None:
    """Write a folder of a kind whose <mask> takes the blank before it, as the published ones do."""
    made = MADE[kind]()
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    made.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("config", [None, OLD, {**OLD, **NAMES}], ids=["none", "old", "names"])
@pytest.mark.parametrize("kind", MADE)
def test_published_layouts_are_read_as_transformers_reads_them(
    tmp_path: Path, kind: str, config: dict[str, Any] | None
) -> None:
    write(tmp_path, kind, config)
    require_same_reading(Folder(tmp_path))


def test_without_tokenizer_config_the_frame_still_counts(tmp_path: Path) -> None:
    write(tmp_path, "roberta", None)
    record = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**record, "post_processor": None}))
    with pytest.raises(InputError, match="tokenizer.json: post_processor makes"):
        require_same_reading(Folder(tmp_path))


@pytest.mark.parametrize(
    ("config", "single", "message"),
    [
        ({"add_bos_token": True}, "<s> $A", ""),
        ({"add_eos_token": False, "add_bos_token": None}, "<s> $A", ""),
        ({"add_bos_token": True, "bos_token": None}, "$A </s>", ""),  # there is none to add
        ({"add_eos_token": True}, "<s> $A </s>", ""),
        ({"add_eos_token": True}, "<s> $A", "add_eos_token is True, .* puts no </s> after a text; .* set .* to false"),
        ({"add_eos_token": False}, "$A </s>", "add_eos_token is False, .* puts </s> after a text; .* set .* to true"),
        ({"add_bos_token": True}, "$A </s>", "add_bos_token is True, .* puts no <s> before a text"),
    ],
)
def test_tokens_that_only_older_releases_put_around_a_text_are_refused(
    tmp_path: Path, config: dict[str, Any], single: str, message: str
) -> None:
    write(tmp_path, "xlm-roberta", {"tokenizer_class": "PreTrainedTokenizerFast", **NAMES, **config})
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    backend.post_processor = framed(single)
    backend.save(str(tmp_path / "tokenizer.json"))
    refused = pytest.raises(InputError, match=f"tokenizer_config.json: {message}") if message else nullcontext()
    with refused:
        require_same_reading(Folder(tmp_path))
