"""The kinds of published folders, their files of settings, and what can be done with a key of one (`table.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args

Kind = Literal["SentenceTransformer", "SparseEncoder", "ColBERT", "CrossEncoder", "causal LM", "encoder"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DENSE, SPARSE, COLBERT, PAIRS, CAUSAL, ENCODER = KINDS
SIDED: tuple[Kind, ...] = (DENSE, SPARSE, COLBERT)  # a text is a query or a document
SCORED: tuple[Kind, ...] = (PAIRS, CAUSAL)  # both are read together
CUT: tuple[Kind, ...] = (*SIDED, PAIRS, ENCODER)  # texts and pairs are cut as their tokenizer cuts them

MODULES, SETTINGS = "modules.json", "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"  # of the encoder's own module
POOLING, NORMALIZE, DENSE_LAYER = "Pooling/config.json", "Normalize/config.json", "Dense/config.json"
VECTOR_MASK, SPLADE = "MultiVectorMask/config.json", "SpladePooling/config.json"
LOGIT_SCORE = "LogitScore/config.json"
TOKENIZER, SPECIAL_TOKENS, ADDED_TOKENS = "tokenizer.json", "special_tokens_map.json", "added_tokens.json"
CONFIG, MARK = "config.json", "deepsiam.json"
METADATA = "artifact.metadata"  # of Stanford's ColBERT
DECODER = "decoder.safetensors"  # in an export: the heads that a pre-training run trained with the encoder
# the modules that a model of the folder's own kind computes; training by another method takes the encoder alone
COMPUTED: Mapping[Kind, tuple[str, ...]] = {
    DENSE: ("Pooling", "Normalize"),
    SPARSE: ("SpladePooling",),
    COLBERT: ("Dense", "MultiVectorMask", "Normalize"),
    CAUSAL: ("LogitScore",),
}

MODEL_TYPES: Mapping[Kind, tuple[str, ...]] = {
    DENSE: ("SentenceTransformer",),
    SPARSE: ("SparseEncoder",),
    COLBERT: ("ColBERT", "MultiVectorEncoder"),
    PAIRS: ("CrossEncoder",),
    CAUSAL: ("CrossEncoder",),
}
TASKS: Mapping[Kind, tuple[str, ...]] = {
    DENSE: ("feature-extraction",),
    SPARSE: ("fill-mask",),
    COLBERT: ("feature-extraction",),
    PAIRS: ("sequence-classification",),
    CAUSAL: ("text-generation",),
}
OUTPUTS: Mapping[Kind, tuple[str, ...]] = {
    **dict.fromkeys(SIDED, ("token_embeddings",)),
    PAIRS: ("scores",),
    CAUSAL: ("causal_logits",),
}
NORMALIZED: Mapping[Kind, tuple[str, ...]] = {DENSE: ("sentence_embedding",), COLBERT: ("token_embeddings",)}
SIMILARITIES: Mapping[Kind, tuple[str, ...]] = {SPARSE: ("dot",), COLBERT: ("MaxSim", "maxsim", "cosine", "dot")}

APPLIED, HARMLESS = "applied", "harmless"
RANKING = "applied to rank"  # a fine-tuning starts without it, and says so
COMPARED = "compared"  # refused if transformers' own tokenizer, made with it, reads texts otherwise than tokenizer.json
REFUSED = "refused"  # unless it is empty or the value named
TOLD = "told"  # a ranker by labels does without, and says so
TO_RANK = "refused to rank"  # likewise; a fine-tuning starts from the folder without it, and says so


def empty(value: Any, _: Kind) -> bool:
    """Whether a value says nothing."""
    return not value


class Setting(NamedTuple):
    """What is done with keys of a file.

    Attributes:
        use: APPLIED, RANKING, HARMLESS, COMPARED, REFUSED, TOLD or TO_RANK.
        why: the reason, or how it is applied.
        neutral: of what is refused, whether a value changes nothing in a kind of folder, or is applied.
        kinds: the folders that the row is for; all by default.
    """

    file: str
    keys: tuple[str, ...]
    use: str
    why: str
    neutral: Callable[[Any, Kind], bool] = empty
    kinds: tuple[Kind, ...] = KINDS


def one_of(*values: Any) -> Callable[[Any, Kind], bool]:
    """Return a test whether a value is empty or one of these."""
    return lambda value, _: not value or value in values


def of_kind(names: Mapping[Kind, tuple[str, ...]]) -> Callable[[Any, Kind], bool]:
    """Return a test whether a value is empty or a name of the folder's kind."""
    return lambda value, kind: not value or value in names.get(kind, ())


def only_trusts_code(value: Any, _: Kind) -> bool:
    """Whether keys of the library say no more than that code of the folder may run, which is never done."""
    return not value or (isinstance(value, dict) and value.keys() <= {"trust_remote_code"})


def reads_text(value: Any, kind: Kind) -> bool:
    """Whether only text is read, and the output of the encoder is the kind's."""
    output = "logits" if kind in (SPARSE, PAIRS) else "last_hidden_state"
    return not value or value == {"text": {"method": "forward", "method_output_name": output}}


def cuts_the_end(value: Any, _: Kind) -> bool:
    """Whether a text that is too long loses its end."""
    return not value or not isinstance(value, dict) or value.get("direction") in (None, "Right")


def only_sets_length(value: Any, _: Kind) -> bool:
    """Whether `processing_kwargs` says no more of texts than how long they may be and how they are padded."""
    if not isinstance(value, dict) or not value.keys() <= {"text", "common", "audio", "image", "video"}:
        return not value
    return all(
        isinstance(keys, dict)
        and keys.keys() <= {"max_length", "padding", "pad_to_multiple_of", "truncation", "return_tensors"}
        and keys.get("truncation", True) in (True, "longest_first")
        for keys in (value.get("text") or {}, value.get("common") or {})
    )


def fills_up_queries(value: Any, _: Kind) -> bool:
    """Whether `query_expansion` is what our ColBERT computes: [MASK]s up to one length."""
    return not value or (isinstance(value, dict) and value.get("strategy") == "fixed" and not value.get("token"))
