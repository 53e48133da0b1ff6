"""The files of a published folder, key by key: what is done with what they say about how texts become vectors.

The layouts are those of sentence-transformers 1 to 6 and of transformers 4 and 5. `docs/published.md` has this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import not_
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.common.errors import InputError
from data_prep.tokenizers.tokenizer import TOKENIZER_CONFIG as CONFIG

MODULES, SETTINGS = "modules.json", "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"  # of the encoder's own module
POOLING, NORMALIZE = "Pooling/config.json", "Normalize/config.json"
TOKENIZER, SPECIAL_TOKENS, ADDED_TOKENS = "tokenizer.json", "special_tokens_map.json", "added_tokens.json"
ENCODER, ADAPTER, MARK = "config.json", "adapter_config.json", "deepsiam.json"
DECODER = "decoder.safetensors"  # in an export: the heads that a pre-training run trained with the encoder

APPLIED, HARMLESS = "applied", "harmless"
COMPARED = "compared"  # refused if transformers' own tokenizer, made with it, reads texts otherwise than tokenizer.json
REFUSED = "refused"  # unless it is empty or the value named
TO_RANK = "refused to rank"  # likewise; a fine-tuning starts from the folder without it


class Setting(NamedTuple):
    """What is done with keys of a file.

    Attributes:
        use: APPLIED, HARMLESS, COMPARED, REFUSED or TO_RANK.
        why: the reason, or how it is applied.
        neutral: of what is refused, whether a value changes nothing.
    """

    file: str
    keys: tuple[str, ...]
    use: str
    why: str
    neutral: Callable[[Any], bool] = not_


def _is(*values: Any) -> Callable[[Any], bool]:
    return lambda value: not value or value in values


def _only_trusts_code(value: Any) -> bool:
    return not value or (isinstance(value, dict) and value.keys() <= {"trust_remote_code"})


def _reads_text(value: Any) -> bool:
    return not value or value == {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}


def _cuts_the_end(value: Any) -> bool:
    return not value or not isinstance(value, dict) or value.get("direction") in (None, "Right")


TABLE = (
    Setting(MODULES, ("type",), APPLIED, "Transformer, Pooling and Normalize, in this order; Dropout does nothing"),
    Setting(MODULES, ("path",), APPLIED, "a folder inside the published one"),
    Setting(MODULES, ("idx", "name", "kwargs"), HARMLESS, "names"),
    Setting(SETTINGS, ("similarity_fn_name",), APPLIED, "`cosine` (also if absent) or `dot`; no other one ranks"),
    Setting(
        SETTINGS,
        ("prompts", "default_prompt_name"),
        APPLIED,
        "`query`; the first of `document`, `passage`, `corpus` with a text; the default where a side has none",
    ),
    Setting(SETTINGS, ("truncate_dim",), APPLIED, "the numbers of a vector that count; not beside `dot` of Normalize"),
    Setting(SETTINGS, ("model_type",), TO_RANK, "if not `SentenceTransformer`", _is("SentenceTransformer")),
    Setting(SETTINGS, ("__version__", "requirements"), HARMLESS, "of the library"),
    Setting(TRANSFORMER, ("max_seq_length",), APPLIED, "the longest text, in tokens; at most the encoder's positions"),
    Setting(TRANSFORMER, ("query_length", "document_length"), APPLIED, "likewise, of one side"),
    Setting(TRANSFORMER, ("do_lower_case",), COMPARED, "tokenizer.json must lower-case by itself"),
    Setting(TRANSFORMER, ("tokenizer_name_or_path",), REFUSED, "only the folder's own tokenizer is read"),
    Setting(
        TRANSFORMER,
        ("model_args", "model_kwargs", "config_args", "config_kwargs", "tokenizer_args", "processor_kwargs"),
        REFUSED,
        "the encoder and its tokenizer are read as their own files have them; `trust_remote_code` is passed over",
        _only_trusts_code,
    ),
    Setting(TRANSFORMER, ("processing_kwargs",), TO_RANK, "texts are tokenised as tokenizer.json has it"),
    Setting(TRANSFORMER, ("query_expansion",), TO_RANK, "one vector a text has no [MASK]s after a query"),
    Setting(TRANSFORMER, ("modality_config",), TO_RANK, "only text is read, without a chat template", _reads_text),
    Setting(TRANSFORMER, ("module_output_name",), TO_RANK, "if not `token_embeddings`", _is("token_embeddings")),
    Setting(TRANSFORMER, ("transformer_task",), TO_RANK, "if not `feature-extraction`", _is("feature-extraction")),
    Setting(TRANSFORMER, ("unpad_inputs",), HARMLESS, "speed"),
    Setting(
        POOLING,
        (
            "pooling_mode",
            "pooling_mode_cls_token",
            "pooling_mode_mean_tokens",
            "pooling_mode_max_tokens",
            "pooling_mode_mean_sqrt_len_tokens",
            "pooling_mode_weightedmean_tokens",
            "pooling_mode_lasttoken",
        ),
        APPLIED,
        "`cls`, `mean` or `lasttoken`; no other one, and not several, rank",
    ),
    Setting(POOLING, ("include_prompt",), APPLIED, "whether a prompt counts in a mean; `false` not beside `cls`"),
    Setting(POOLING, ("word_embedding_dimension", "embedding_dimension"), HARMLESS, "the encoder has it"),
    Setting(
        NORMALIZE,
        ("module_input_name", "module_output_name"),
        TO_RANK,
        "if not `sentence_embedding`",
        _is("sentence_embedding"),
    ),
    Setting(CONFIG, ("model_max_length", "max_len"), APPLIED, "the longest text, where max_seq_length is absent"),
    Setting(CONFIG, ("split_special_tokens",), APPLIED, "whether a special token spelled out in a text is text"),
    Setting(CONFIG, ("truncation_side",), TO_RANK, "if not `right`: the start of a text is kept", _is("right")),
    Setting(CONFIG, ("padding_side",), HARMLESS, "a text alone has no padding"),
    Setting(CONFIG, ("chat_template",), HARMLESS, "not used where modality_config has text alone"),
    Setting(CONFIG, ("any other key",), COMPARED, "such as do_lower_case, strip_accents, tokenizer_class, sep_token"),
    Setting(
        TOKENIZER,
        ("model", "normalizer", "pre_tokenizer", "added_tokens"),
        APPLIED,
        "without the dropout of a `BPE`: a text always has the same tokens",
    ),
    Setting(TOKENIZER, ("post_processor",), COMPARED, "what it puts around a text, at most four tokens, is put there"),
    Setting(TOKENIZER, ("truncation",), TO_RANK, "if on the left: the start of a text is kept", _cuts_the_end),
    Setting(TOKENIZER, ("padding", "decoder", "version"), HARMLESS, "a text alone has no padding"),
    Setting(SPECIAL_TOKENS, ("any key",), COMPARED, "tokens that tokenizer.json lacks or does not mark"),
    Setting(ADDED_TOKENS, ("any key",), COMPARED, "likewise"),
    Setting(ENCODER, ("any key",), APPLIED, "by transformers; no code of the folder is run"),
    Setting(ADAPTER, ("any key",), REFUSED, "merge the adapter into the encoder, and save that"),
    Setting(MARK, ("tokenizer", "added_tokens"), APPLIED, "an export's own: its vocabulary, its special tokens"),
    Setting(MARK, ("dimensions",), APPLIED, "likewise: the numbers of dimensions that it was trained for"),
    Setting(MARK, ("max_query_tokens",), APPLIED, "likewise: the longest query"),
)
_BY_KEY = {(row.file, key): row for row in TABLE for key in row.keys}


def refuse_unsupported(path: Path, file: str, keys: Mapping[str, Any], *, to_rank: bool) -> None:
    """Raise InputError where a key of a file would change vectors and is not supported.

    Args:
        path: the file.
        file: its name in TABLE.
        keys: what it has.
        to_rank: also refuse what a fine-tuning starts without, and what TABLE does not have.
    """
    for key, value in keys.items():
        row = _BY_KEY.get((file, key))
        if row is None and to_rank and (file, "any other key") not in _BY_KEY:
            raise InputError(f"{path}: {key} is not a known key, and may change vectors: remove it if it does not")
        if row and (row.use == REFUSED or (to_rank and row.use == TO_RANK)) and not row.neutral(value):
            raise InputError(f"{path}: {key} is {_short(value)}, which is not supported ({row.why})")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
