"""Read the head of a published causal language model: the rows of the tokens that a ranker by labels needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel

from models.trunk import token_embedding
from trainer.training.published.hugging_face import CONFIG, WEIGHTS, architecture_of, read_config, weight_files

CLASSES = ("ForCausalLM", "LMHeadModel")  # how the names of Hugging Face's classes end
NAMES = ("lm_head.weight", "embed_out.weight")  # of the output matrix


def is_causal_lm(path: Path) -> bool:
    """Return whether a folder's weights are of a causal language model."""
    return (path / CONFIG).is_file() and architecture_of(path).endswith(CLASSES)


def read_head_rows(folder: Path, trunk: PreTrainedModel, tokens: Sequence[int]) -> Tensor | None:
    """Return the rows of some tokens of a folder's output matrix, fp32 [n, H]; None where it has no such head.

    A matrix that is tied to the token embedding need not be in the file.
    """
    if not is_causal_lm(folder):
        return None
    for path in weight_files(folder):
        if path.suffix == Path(WEIGHTS).suffix:
            with safe_open(path, "pt") as file:
                for name in set(NAMES) & {*file.keys()}:
                    head: Tensor = file.get_tensor(name)[list(tokens)]
                    return head.float()
    if not read_config(folder).tie_word_embeddings:
        return None
    return token_embedding(trunk).detach()[list(tokens)].float().cpu()
