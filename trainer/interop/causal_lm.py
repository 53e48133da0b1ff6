"""Read the head of a published causal language model: what a ranker by labels needs of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.build_trunk import REFUSALS
from deepsiam.models.causality import two_texts
from deepsiam.models.layers.label_head import LabelHead, language_model, name_of_output
from deepsiam.models.matching.label_ranker import LabelRankerConfig
from deepsiam.models.trunk import max_positions, require_positions, token_embedding
from deepsiam.trainer.interop.hugging_face import WEIGHTS, architecture_of, read_config, read_keys, weight_files
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.modules import encoder_of, is_sentence_transformer, modules_of
from deepsiam.trainer.interop.settings import CONFIG, MODULES, TOKENIZER
from deepsiam.trainer.interop.start import Opener, PretrainedEncoder

CLASSES = ("ForCausalLM", "LMHeadModel")  # how the names of Hugging Face's classes end
NAMES = ("lm_head", "embed_out")  # of the output layer in files, also of earlier releases
ROUNDING = 1e-4  # relative to the largest logit


MOST_PROMPT_TOKENS = 4096  # of a published model's prompts, unless a recipe says otherwise


def is_causal_lm(path: Path) -> bool:
    """Return whether a folder's weights are of a causal language model."""
    return (path / CONFIG).is_file() and architecture_of(path).endswith(CLASSES)


def is_mine(folder: Path) -> bool:
    """Return whether a folder has a causal language model, alone or with `LogitScore`."""
    return is_logit_score(folder) or (not is_sentence_transformer(folder) and is_causal_lm(folder))


def read_label_head(folder: Path, trunk: PreTrainedModel, tokens: Sequence[int]) -> dict[str, Tensor]:
    """Return the parameters of a `LabelHead` for some tokens, fp32, by their names; none where a folder has no head.

    A matrix that is tied to the token embedding need not be in the file.

    Raises:
        InputError: its head is not supported, or lacks its biases.
    """
    model = language_model(trunk.config) if is_causal_lm(folder) else None
    if model is None:
        return {}
    names = {name_of_output(model), *NAMES}
    weight = _rows(folder, {f"{name}.weight" for name in names}, tokens)
    if weight is None and read_config(folder).tie_word_embeddings:
        weight = token_embedding(trunk).detach()[list(tokens)].float().cpu()
    head = {} if weight is None else {"weight": weight}
    if head and model.get_output_embeddings().bias is not None:
        bias = _rows(folder, {f"{name}.bias" for name in names}, tokens)
        if bias is None:
            raise InputError(f"{folder}: lacks {name_of_output(model)}.bias, which {architecture_of(folder)} has")
        head["bias"] = bias
    return head


def add_head_rows(encoder: PretrainedEncoder, tokens: Sequence[int]) -> None:
    """Add to an encoder's heads the rows `labels.` of a causal language model's, where it is one.

    Raises:
        InputError: its head is not supported.
    """
    folder = encoder_of(encoder.path)
    require_known_head(folder, encoder.trunk)
    head = read_label_head(folder, encoder.trunk, tokens)
    encoder.heads.update({f"labels.{name}": tensor for name, tensor in head.items()})


def require_known_head(folder: Path, trunk: PreTrainedModel) -> None:
    """Raise InputError where a folder's language model gives other logits than a `LabelHead` on its trunk.

    Both are tried, with the same rows.
    """
    if not is_causal_lm(folder):
        return
    model, architecture = language_model(trunk.config), architecture_of(folder)
    if model is None or type(model).__name__.casefold() != architecture.casefold():
        raise InputError(
            f"{folder / CONFIG}: architectures: the head of {architecture} is not supported: a single output layer of "
            f"transformers' own class for model_type {trunk.config.model_type!r} is"
        )
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        head = LabelHead(trunk.config, 2)
        model.set_submodule(model.base_model_prefix, trunk)
        model.set_submodule(name_of_output(model), head)
        ids, training = torch.tensor(two_texts(trunk.config)), trunk.training
        trunk.eval()
        try:
            expected = model(input_ids=ids).logits[:, -1]
            logits = head.logits(trunk(input_ids=ids).last_hidden_state[:, -1])
        except REFUSALS as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{folder / CONFIG}: the head of {architecture} is not supported ({reason})") from error
        finally:
            trunk.train(training)
    if (logits - expected).abs().max() > ROUNDING * expected.abs().max():
        raise InputError(f"{folder / CONFIG}: {architecture} computes its logits in a way that is not supported")


def _rows(folder: Path, names: set[str], tokens: Sequence[int]) -> Tensor | None:
    """Return some rows of the tensor that has one of the names, fp32; None if there is none."""
    for path in weight_files(folder):
        if path.suffix == Path(WEIGHTS).suffix:
            with safe_open(path, "pt") as file:
                for name in names & {*file.keys()}:
                    tensor: Tensor = file.get_tensor(name)[list(tokens)]
                    return tensor.float()
    return None


MODULE = "LogitScore"
PAIR_TOKENS = ("true_token_id", "false_token_id")


def is_logit_score(folder: Path) -> bool:
    """Return whether a sentence-transformers folder scores pairs by the logits of one or two tokens."""
    return is_sentence_transformer(folder) and MODULE in modules_of(folder)


def refuse_other_modules(folder: Path) -> None:
    """Raise InputError where a folder that has `LogitScore` has more than that after its language model."""
    if extras := modules_of(folder).keys() - {"Transformer", MODULE}:
        raise InputError(f"{folder / MODULES}: has a {min(extras)} module, and only {MODULE} is supported")


def remark_on_labels(folder: Path, labels: Sequence[int], tokenizer: Tokenizer) -> str:
    """Return a line that says so where a folder compares other tokens than these, that of relevance first; else "".

    Raises:
        InputError: what it compares is not tokens.
    """
    path = modules_of(folder)[MODULE] / CONFIG
    keys = read_keys(path)
    tokens = [keys[key] for key in PAIR_TOKENS if keys.get(key) is not None]
    if keys.get(PAIR_TOKENS[0]) is None or not all(type(token) is int and token >= 0 for token in tokens):
        raise InputError(f"{path}: {' and '.join(PAIR_TOKENS)} are {tokens!r:.80}, not tokens; copy the folder again")
    if tokens == [*labels]:
        return ""
    theirs, ours = (" with ".join(repr(tokenizer.decode([token])) for token in ids) for ids in (tokens, labels))
    return f"{folder}: was published to compare {theirs}{' alone' * (len(tokens) == 1)}; the labels compare {ours}"


def load(path: Path, open_encoder: Opener) -> LoadedModel:
    """Load a folder's causal language model as a ranker by labels, of lists with the default template.

    Raises:
        InputError: a file is damaged, the model has no head that is supported, or its tokenizer lacks the labels.
    """
    if is_logit_score(path):
        refuse_other_modules(path)
    folder = encoder_of(path)
    tokenizer = tokenizers.load(folder / TOKENIZER)
    trunk = open_encoder(path, tokenizer).trunk
    require_known_head(folder, trunk)
    most = min(MOST_PROMPT_TOKENS, max_positions(trunk))
    keys = LabelRankerConfig(name="label_ranker", loss="rank_net", max_prompt_tokens=most)
    return by_labels(path, trunk, tokenizer, keys)


def by_labels(path: Path, trunk: PreTrainedModel, tokenizer: Tokenizer, method: LabelRankerConfig) -> LoadedModel:
    """Make a ranker by labels of a folder's causal language model, whose trunk is loaded.

    Raises:
        InputError: the model has no head, or no positions for the longest prompt, or its tokenizer lacks the labels.
    """
    with as_input_error(f"{path}: method"):
        tokens = method.head_tokens(tokenizer)
        model = method.model(trunk)
    with as_input_error(f"{path}: method.max_prompt_tokens"):
        require_positions(trunk, method.max_prompt_tokens)
    head = read_label_head(encoder_of(path), trunk, tokens)
    if not head:
        raise InputError(f"{path}: has no head of a causal language model, from which the logits of labels are")
    model.labels.load_state_dict(head)
    remark = remark_on_labels(path, tokens, tokenizer) if is_logit_score(path) else ""
    remarks = (remark,) if remark and not method.is_list else ()
    return LoadedModel(model.eval(), method, tokenizer, path, remarks=remarks)
