"""Export a trained encoder: a folder that transformers' AutoModel and SentenceTransformer load as their own.

python -m trainer.export RUN OUT [--with-decoder]

A fine-tuned run becomes a SentenceTransformer whose embeddings are the trainer's; a pre-training run becomes a stock
Hugging Face model. The sentence-transformers files are those that its versions from 3 on read.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save
from tokenizers.processors import BertProcessing
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

from data_prep.errors import InputError, exit_on_input_error
from data_prep.files import PARTIAL, make_directory, os_errors_as_input_errors, sync_directory
from data_prep.tokenizer import Tokenizer
from trainer import method_keys, model_card
from trainer.methods import PRETRAINING
from trainer.trained import Trained, load

DECODER = "decoder.safetensors"  # what a pre-training trained beside the encoder
MARK = "deepsiam.json"  # says that a folder is an export of ours, and of what
SENTENCE_TRANSFORMERS = {  # names that every version resolves
    "": "sentence_transformers.models.Transformer",
    "1_Pooling": "sentence_transformers.models.Pooling",
    "2_Normalize": "sentence_transformers.models.Normalize",
}


def export(trained: Trained, out: Path, with_decoder: bool = False) -> None:
    """Write a trained encoder to the folder `out`, whole or not at all; an earlier export there is replaced.

    Args:
        trained: fine-tuned or only pre-trained.
        out: a new or empty folder, or an earlier export.
        with_decoder: write what a pre-training run trained beside the encoder too: decoder.safetensors, decoder.json.

    Raises:
        InputError: `out` holds something else or cannot be written, or there is no decoder to export.
    """
    method = trained.recipe.method
    if with_decoder and isinstance(method, method_keys.Siamese):
        raise InputError(f"{trained.checkpoint}: a fine-tuned run has no decoder: export its pre-training run")
    if isinstance(method, method_keys.Siamese) and method.special_tokens > 1:
        raise InputError(f"{trained.checkpoint}: no SentenceTransformer pools several special tokens; use the run")
    if with_decoder and not trained.model.heads:
        raise InputError(
            f"{trained.checkpoint}: {method.name} trains nothing beside the encoder: leave out the decoder"
        )
    trunk = trained.model.trunk
    with _replaced_folder(out) as folder:
        _write_encoder(trunk, folder)
        _write_tokenizer(trained.tokenizer, trained.text_tokens, folder)
        if isinstance(method, method_keys.Siamese):
            _write_sentence_transformer(method, trunk.config.hidden_size, folder)
        if with_decoder:
            _write_decoder(trained, folder)
        (folder / "README.md").write_text(model_card.text(trained, out, with_decoder), encoding="utf-8")
        about = {"kind": trained.kind, "checkpoint": str(trained.checkpoint), "step": trained.step}
        _write_json(folder / MARK, {**about, "tokenizer": trained.tokenizer.fingerprint})


def _write_encoder(trunk: PreTrainedModel, folder: Path) -> None:
    """The weights and configuration of the plain Hugging Face class, and no key more or less than it expects."""
    stock = AutoModel.from_config(copy.deepcopy(trunk.config))
    state = {name: tensor.detach() for name, tensor in trunk.state_dict().items()}
    for name in stock.state_dict().keys() - state.keys():
        if not name.startswith("pooler."):
            raise InputError(f"{type(stock).__name__}: this encoder lacks {name} and cannot be exported")
        # AutoModel adds BERT's pooler, which nothing here trains, and would draw it anew at every loading.
        # The identity makes it tanh of the first state: the same each time, and of use to who takes it by mistake.
        like = stock.state_dict()[name]
        state[name] = torch.eye(len(like)) if like.ndim == 2 else torch.zeros_like(like)
    _save_tensors(state, folder / "model.safetensors")
    stock.config.architectures = [type(stock).__name__]
    stock.config.save_pretrained(folder)


def _write_tokenizer(tokenizer: Tokenizer, max_tokens: int, folder: Path) -> None:
    """The same tokens for every text as in training, framed by [CLS] and [SEP], cut to `max_tokens` where asked."""
    backend = tokenizers.Tokenizer.from_file(str(tokenizer.path))
    backend.no_truncation()
    backend.no_padding()
    names = tokenizer.special_tokens
    backend.post_processor = BertProcessing((names["sep"], tokenizer.sep), (names["cls"], tokenizer.cls))
    backend.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_tokens,
        "model_input_names": ["input_ids", "attention_mask"],
        "split_special_tokens": True,  # "[MASK]" written in a text is text, as in training
        "clean_up_tokenization_spaces": False,
    }
    special = {f"{name}_token": token for name, token in names.items()}
    _write_json(folder / "tokenizer_config.json", settings | special)


def _write_sentence_transformer(method: method_keys.Siamese, hidden_size: int, folder: Path) -> None:
    """What makes a Hugging Face folder a SentenceTransformer: its modules and the similarity it was trained for."""
    paths = ["", "1_Pooling"] + (["2_Normalize"] if method.similarity == "cosine" else [])
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": SENTENCE_TRANSFORMERS[path]} for i, path in enumerate(paths)
    ]
    _write_json(folder / "modules.json", modules)
    for path in paths[1:]:
        (folder / path).mkdir()
    pooling = {
        "word_embedding_dimension": hidden_size,
        "pooling_mode_cls_token": method.pooling == "cls",
        "pooling_mode_mean_tokens": method.pooling == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_lasttoken": method.pooling == "last",
    }
    _write_json(folder / "1_Pooling" / "config.json", pooling)
    transformer = {"max_seq_length": method.max_document_tokens, "do_lower_case": False}  # the tokenizer lower-cases
    _write_json(folder / "sentence_bert_config.json", transformer)
    similarity: dict[str, Any] = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": method.similarity}
    _write_json(folder / "config_sentence_transformers.json", similarity)


def _write_decoder(trained: Trained, folder: Path) -> None:
    """All parameters beside the encoder's, and how to put a model together from both."""
    _save_tensors({name: head.detach() for name, head in trained.model.heads.items()}, folder / DECODER)
    kind = type(trained.model)
    method = trained.recipe.method
    arguments = PRETRAINING[type(method)].arguments(method)  # a Siamese network is refused before
    rebuild = [
        f"from {kind.__module__} import {kind.__name__}",
        "trunk = transformers.AutoModel.from_pretrained(FOLDER)",
        f"model = {kind.__name__}(trunk, **arguments)",
        "model.load_state_dict(safetensors.torch.load_file(FOLDER + '/decoder.safetensors'), strict=False)",
    ]
    about = {"class": f"{kind.__module__}.{kind.__name__}", "arguments": arguments, "rebuild": rebuild}
    _write_json(folder / "decoder.json", about)


def _save_tensors(state: Mapping[str, Tensor], path: Path) -> None:
    # save_file would make a file that its owner alone may read
    path.write_bytes(save({name: tensor.contiguous() for name, tensor in state.items()}, {"format": "pt"}))


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@contextmanager
def _replaced_folder(out: Path) -> Iterator[Path]:
    """A new folder that takes the name `out` once it is complete and on disk; on an error `out` stays as it was."""
    if out.exists() and not (out / MARK).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: is there already and is not an earlier export: name a new folder, or remove it")
    make_directory(out.parent)
    partial, old = (out.with_name(f"{out.name}{end}{PARTIAL}") for end in ("", ".old"))
    with os_errors_as_input_errors(out, "export"):
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            yield partial
            for file in partial.rglob("*"):
                if file.is_file():
                    with open(file, "rb") as written:
                        os.fsync(written.fileno())
            shutil.rmtree(old, ignore_errors=True)
            if out.exists():
                os.replace(out, old)
            os.replace(partial, out)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        sync_directory(out.parent)
        shutil.rmtree(old, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="trainer.export", description="Export a trained encoder.")
    parser.add_argument("run", type=Path, help="a run folder (its newest checkpoint) or a checkpoint folder")
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("--with-decoder", action="store_true", help="also what was pre-trained beside the encoder")
    arguments = parser.parse_args(argv)
    with exit_on_input_error("trainer.export"):
        trained = load(arguments.run)
        export(trained, arguments.out, arguments.with_decoder)
        print(f"exported {trained.checkpoint} to {arguments.out}")


if __name__ == "__main__":
    main()
