"""Read the head of a published causal language model: what a ranker by labels needs of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.build_trunk import REFUSALS
from deepsiam.models.causality import two_texts
from deepsiam.models.layers.label_head import LabelHead, language_model, name_of_output
from deepsiam.models.matching.label_ranker import LabelRankerConfig
from deepsiam.models.trunk import max_positions, require_positions, token_embedding
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.settings import CONFIG, MODULES
from deepsiam.trainer.interop.start import Opener, PretrainedEncoder

CLASSES = ("ForCausalLM", "LMHeadModel")  # how the names of Hugging Face's classes end
NAMES = ("lm_head", "embed_out")  # of the output layer in files, also of earlier releases
ROUNDING = 1e-4  # relative to the largest logit


MOST_PROMPT_TOKENS = 4096  # of a published model's prompts, unless a recipe says otherwise


def is_mine(folder: Folder) -> bool:
    """Return whether a folder has a causal language model, alone or with `LogitScore`."""
    return MODULE in folder.modules or (not folder.has_modules and folder.architecture.endswith(CLASSES))


def read_label_head(folder: Folder, trunk: PreTrainedModel, tokens: Sequence[int]) -> dict[str, Tensor]:
    """Return the parameters of a `LabelHead` for some tokens, fp32, by their names; none where a folder has no head.

    A matrix that is tied to the token embedding need not be in the file.

    Raises:
        InputError: its head is not supported, or lacks its biases.
    """
    model = language_model(trunk.config) if folder.architecture.endswith(CLASSES) else None
    if model is None:
        return {}
    names = {name_of_output(model), *NAMES}
    weight = _rows(folder, {f"{name}.weight" for name in names}, tokens)
    if weight is None and folder.config.tie_word_embeddings:
        weight = token_embedding(trunk).detach()[list(tokens)].float().cpu()
    head = {} if weight is None else {"weight": weight}
    if head and model.get_output_embeddings().bias is not None:
        bias = _rows(folder, {f"{name}.bias" for name in names}, tokens)
        if bias is None:
            raise InputError(f"{folder.encoder}: lacks {name_of_output(model)}.bias, which {folder.architecture} has")
        head["bias"] = bias
    return head


def add_head_rows(encoder: PretrainedEncoder, tokens: Sequence[int]) -> None:
    """Add to an encoder's heads the rows `labels.` of a causal language model's, where it is one.

    Raises:
        InputError: its head is not supported.
    """
    require_known_head(encoder.folder, encoder.trunk)
    head = read_label_head(encoder.folder, encoder.trunk, tokens)
    encoder.heads.update({f"labels.{name}": tensor for name, tensor in head.items()})


def require_known_head(folder: Folder, trunk: PreTrainedModel) -> None:
    """Raise InputError where a folder's language model gives other logits than a `LabelHead` on its trunk.

    Both are tried, with the same rows.
    """
    path, architecture = folder.encoder / CONFIG, folder.architecture
    if not architecture.endswith(CLASSES):
        return
    model = language_model(trunk.config)
    if model is None or type(model).__name__.casefold() != architecture.casefold():
        raise InputError(
            f"{path}: architectures: the head of {architecture} is not supported: a single output layer of "
            f"transformers' own class for model_type {trunk.config.model_type!r} is"
        )
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        head = LabelHead(trunk.config, 2)
        model.set_submodule(model.base_model_prefix, trunk)
        model.set_submodule(name_of_output(model), head)
        ids, training = torch.tensor(two_texts(trunk.config)), trunk.training
        trunk.eval()
        try:
            model_logits = model(input_ids=ids).logits[:, -1]
            logits = head.logits(trunk(input_ids=ids).last_hidden_state[:, -1])
        except REFUSALS as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{path}: the head of {architecture} is not supported ({reason})") from error
        finally:
            trunk.train(training)
    if (logits - model_logits).abs().max() > ROUNDING * model_logits.abs().max():
        raise InputError(f"{path}: {architecture} computes its logits in a way that is not supported")


def _rows(folder: Folder, names: set[str], tokens: Sequence[int]) -> Tensor | None:
    """Return some rows of the tensor that has one of the names, fp32; None if there is none."""
    name = next(iter(names & folder.weights.keys()), None)
    return None if name is None else folder.weights[name][list(tokens)].float()


MODULE = "LogitScore"
PAIR_TOKENS = ("true_token_id", "false_token_id")


def remark_on_labels(folder: Folder, labels: Sequence[int], tokenizer: Tokenizer) -> str:
    """Return a line that says so where a folder compares other tokens than these, that of relevance first; else "".

    Raises:
        InputError: what it compares is not tokens.
    """
    path = folder.modules[MODULE] / CONFIG
    keys = folder.keys(path)
    tokens = [keys[key] for key in PAIR_TOKENS if keys.get(key) is not None]
    if keys.get(PAIR_TOKENS[0]) is None or not all(type(token) is int and token >= 0 for token in tokens):
        raise InputError(f"{path}: {' and '.join(PAIR_TOKENS)} are {tokens!r:.80}, not tokens; copy the folder again")
    if tokens == [*labels]:
        return ""
    pair, label_pair = (" with ".join(repr(tokenizer.decode([token])) for token in ids) for ids in (tokens, labels))
    return (
        f"{folder.path}: was published to compare {pair}{' alone' * (len(tokens) == 1)}; the labels compare "
        f"{label_pair}"
    )


def load(folder: Folder, open_encoder: Opener) -> LoadedModel:
    """Load a folder's causal language model as a ranker by labels, of lists with the default template.

    Raises:
        InputError: a file is damaged, the model has no head that is supported, or its tokenizer lacks the labels.
    """
    if extras := folder.modules.keys() - {"Transformer", MODULE}:
        raise InputError(f"{folder.path / MODULES}: has a {min(extras)} module, and only {MODULE} is supported")
    trunk = open_encoder().trunk
    require_known_head(folder, trunk)
    max_tokens = min(MOST_PROMPT_TOKENS, max_positions(trunk))
    keys = LabelRankerConfig(name="label_ranker", loss="rank_net", max_prompt_tokens=max_tokens)
    return by_labels(folder, trunk, folder.tokenizer, keys)


def by_labels(folder: Folder, trunk: PreTrainedModel, tokenizer: Tokenizer, method: LabelRankerConfig) -> LoadedModel:
    """Make a ranker by labels of a folder's causal language model, whose trunk is loaded.

    Raises:
        InputError: the model has no head, or no positions for the longest prompt, or its tokenizer lacks the labels.
    """
    path = folder.path
    with as_input_error(f"{path}: method"):
        tokens = method.head_tokens(tokenizer)
        model = method.model(trunk)
    with as_input_error(f"{path}: method.max_prompt_tokens"):
        require_positions(trunk, method.max_prompt_tokens)
    head = read_label_head(folder, trunk, tokens)
    if not head:
        raise InputError(f"{path}: has no head of a causal language model, from which the logits of labels are")
    model.labels.load_state_dict(head)
    remark = remark_on_labels(folder, tokens, tokenizer) if MODULE in folder.modules else ""
    remarks = (remark,) if remark and not method.is_list else ()
    return LoadedModel(model.eval(), method, tokenizer, path, remarks=remarks)
