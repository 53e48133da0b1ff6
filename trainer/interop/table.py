"""The settings of published folders, key by key: what is done with each, in every kind of folder.

The layouts are those of sentence-transformers 1 to 6, PyLate, Stanford's ColBERT, and transformers 4 and 5.
`docs/published.md` has this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.other_formats import ADAPTER
from deepsiam.data_prep.tokenizers.tokenizer import TOKENIZER_CONFIG as TOKENS
from deepsiam.trainer.interop.settings import (
    ADDED_TOKENS,
    APPLIED,
    CAUSAL,
    COLBERT,
    COMPARED,
    CONFIG,
    CUT,
    DENSE,
    DENSE_LAYER,
    ENCODER,
    HARMLESS,
    LOGIT_SCORE,
    MARK,
    METADATA,
    MODEL_TYPES,
    MODULES,
    NORMALIZE,
    NORMALIZED,
    OUTPUTS,
    PAIRS,
    POOLING,
    RANKING,
    REFUSED,
    SCORED,
    SETTINGS,
    SIDED,
    SIMILARITIES,
    SPARSE,
    SPECIAL_TOKENS,
    SPLADE,
    TASKS,
    TO_RANK,
    TOKENIZER,
    TOLD,
    TRANSFORMER,
    VECTOR_MASK,
    Kind,
    Setting,
    cuts_the_end,
    fills_up_queries,
    of_kind,
    one_of,
    only_sets_length,
    only_trusts_code,
    reads_text,
)

ANY_KEY = ("any other key", "any key")  # in place of a name

TABLE = (
    Setting(
        MODULES,
        ("type",),
        APPLIED,
        "Transformer, Pooling and Normalize, in this order; Dropout does nothing",
        kinds=(DENSE,),
    ),
    Setting(
        MODULES,
        ("type",),
        APPLIED,
        "Transformer, Dense, MultiVectorMask, Normalize; PyLate's folders name the first two",
        kinds=(COLBERT,),
    ),
    Setting(MODULES, ("type",), APPLIED, "Transformer alone", kinds=(PAIRS, ENCODER)),
    Setting(MODULES, ("type",), APPLIED, "Transformer and LogitScore", kinds=(CAUSAL,)),
    Setting(MODULES, ("type",), APPLIED, "Transformer, or MLMTransformer, and SpladePooling", kinds=(SPARSE,)),
    Setting(MODULES, ("path",), APPLIED, "a folder inside the published one"),
    Setting(MODULES, ("idx", "name", "kwargs"), HARMLESS, "names"),
    Setting(
        SETTINGS,
        ("similarity_fn_name",),
        APPLIED,
        "`cosine` (also if absent) or `dot`; no other one ranks",
        kinds=(DENSE,),
    ),
    Setting(
        SETTINGS,
        ("similarity_fn_name",),
        TO_RANK,
        "if not `MaxSim`, which `cosine` and `dot` stand for; of a SparseEncoder `dot`",
        of_kind(SIMILARITIES),
        (COLBERT, SPARSE),
    ),
    Setting(SETTINGS, ("similarity_fn_name",), HARMLESS, "a pair has a score", kinds=SCORED),
    Setting(
        SETTINGS,
        ("prompts", "default_prompt_name"),
        APPLIED,
        "`query`; the first of `document`, `passage`, `corpus` with a text; the default where a side has none",
        kinds=(DENSE, SPARSE),
    ),
    Setting(
        SETTINGS,
        ("prompts", "query_prefix", "document_prefix"),
        APPLIED,
        "a token at the beginning marks the texts of a side; what follows it is a prompt",
        kinds=(COLBERT,),
    ),
    Setting(SETTINGS, ("default_prompt_name",), HARMLESS, "each side has its own prompt", kinds=(COLBERT,)),
    Setting(
        SETTINGS,
        ("prompts", "default_prompt_name"),
        APPLIED,
        "a default prompt that has a text is refused",
        kinds=(PAIRS,),
    ),
    Setting(
        SETTINGS,
        ("prompts", "default_prompt_name", "activation_fn"),
        TOLD,
        "a recipe has the prompt, and a score is the log p of its label",
        kinds=(CAUSAL,),
    ),
    Setting(
        SETTINGS,
        ("query_length", "document_length"),
        APPLIED,
        "the longest text of a side; with [MASK]s, the length of every query",
        kinds=(COLBERT,),
    ),
    Setting(
        SETTINGS,
        ("do_query_expansion", "attend_to_expansion_tokens", "attend_to_mask_tokens"),
        APPLIED,
        "whether queries are filled up with [MASK]s, and whether other tokens attend to these",
        kinds=(COLBERT,),
    ),
    Setting(
        SETTINGS,
        ("query_expansion",),
        TO_RANK,
        "if not `null`, or `fixed` with the [MASK] token: that is applied",
        fills_up_queries,
        (COLBERT,),
    ),
    Setting(SETTINGS, ("skiplist_words",), APPLIED, "the tokens of documents without a vector", kinds=(COLBERT,)),
    Setting(
        SETTINGS,
        ("truncate_dim",),
        RANKING,
        "the numbers of a vector that count; not beside `dot` of Normalize",
        kinds=(DENSE,),
    ),
    Setting(SETTINGS, ("max_active_dims",), TO_RANK, "all weights of a text count", kinds=(SPARSE,)),
    Setting(SETTINGS, ("activation_fn",), APPLIED, "a sigmoid or nothing, of a score", kinds=(PAIRS,)),
    Setting(SETTINGS, ("keep_in_fp32_modules",), HARMLESS, "all are computed in fp32", kinds=SCORED),
    Setting(
        SETTINGS,
        ("model_type",),
        TO_RANK,
        "if not that of the folder's kind, such as `SentenceTransformer`",
        of_kind(MODEL_TYPES),
    ),
    Setting(SETTINGS, ("__version__", "requirements"), HARMLESS, "of the library"),
    Setting(
        TRANSFORMER,
        ("max_seq_length",),
        APPLIED,
        "the longest text, or pair, in tokens; at most the encoder's positions",
        kinds=CUT,
    ),
    Setting(
        TRANSFORMER,
        ("max_seq_length", "processing_kwargs"),
        TOLD,
        "a recipe has the prompt and its lengths",
        kinds=(CAUSAL,),
    ),
    Setting(TRANSFORMER, ("query_length", "document_length"), APPLIED, "likewise, of one side", kinds=SIDED),
    Setting(TRANSFORMER, ("query_length", "document_length"), HARMLESS, "a pair has no side", kinds=SCORED),
    Setting(TRANSFORMER, ("do_lower_case",), COMPARED, "tokenizer.json must lower-case by itself"),
    Setting(TRANSFORMER, ("tokenizer_name_or_path",), REFUSED, "only the folder's own tokenizer is read"),
    Setting(
        TRANSFORMER,
        ("model_args", "model_kwargs", "config_args", "config_kwargs", "tokenizer_args", "processor_kwargs"),
        REFUSED,
        "the encoder and its tokenizer are read as their own files have them; `trust_remote_code` is passed over",
        only_trusts_code,
    ),
    Setting(
        TRANSFORMER,
        ("processing_kwargs",),
        TO_RANK,
        "if it has more than `max_length`, which is applied as the longest text or pair",
        only_sets_length,
        CUT,
    ),
    Setting(
        TRANSFORMER,
        ("query_expansion",),
        TO_RANK,
        "one vector a text has no [MASK]s after a query",
        kinds=(DENSE, SPARSE),
    ),
    Setting(
        TRANSFORMER,
        ("query_expansion",),
        TO_RANK,
        "if not `null`, or `fixed` with the [MASK] token: that is applied",
        fills_up_queries,
        (COLBERT,),
    ),
    Setting(TRANSFORMER, ("query_expansion",), HARMLESS, "a pair has no side", kinds=SCORED),
    Setting(TRANSFORMER, ("modality_config",), TO_RANK, "only text is read, without a chat template", reads_text, CUT),
    Setting(TRANSFORMER, ("modality_config",), HARMLESS, "a recipe has the prompt", kinds=(CAUSAL,)),
    Setting(
        TRANSFORMER,
        ("module_output_name",),
        TO_RANK,
        "if not that of the kind, such as `token_embeddings`",
        of_kind(OUTPUTS),
    ),
    Setting(
        TRANSFORMER,
        ("transformer_task",),
        TO_RANK,
        "if not that of the kind, such as `feature-extraction`",
        of_kind(TASKS),
    ),
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
        "`cls`, `mean` (also if none is named) or `lasttoken`; no other one, and not several, rank",
        kinds=(DENSE,),
    ),
    Setting(
        POOLING,
        ("include_prompt",),
        APPLIED,
        "whether a prompt counts in a mean; `false` not beside `cls`",
        kinds=(DENSE,),
    ),
    Setting(
        POOLING, ("word_embedding_dimension", "embedding_dimension"), HARMLESS, "the encoder has it", kinds=(DENSE,)
    ),
    Setting(
        NORMALIZE,
        ("module_input_name", "module_output_name"),
        TO_RANK,
        "if not `sentence_embedding`; of a ColBERT `token_embeddings`",
        of_kind(NORMALIZED),
    ),
    Setting(DENSE_LAYER, ("in_features", "out_features"), HARMLESS, "the weights have them", kinds=(COLBERT,)),
    Setting(
        DENSE_LAYER,
        ("bias", "activation_function", "use_residual"),
        APPLIED,
        "`false`, `Identity`, `false`; others are refused",
        kinds=(COLBERT,),
    ),
    Setting(
        DENSE_LAYER,
        ("module_input_name", "module_output_name"),
        TO_RANK,
        "if not `token_embeddings`",
        one_of("token_embeddings"),
        (COLBERT,),
    ),
    Setting(VECTOR_MASK, ("skiplist_words",), APPLIED, "the tokens of documents without a vector", kinds=(COLBERT,)),
    Setting(
        VECTOR_MASK, ("skiplist_tasks",), TO_RANK, "if not `document`", one_of("document", ["document"]), (COLBERT,)
    ),
    Setting(VECTOR_MASK, ("keep_only_token_ids",), TO_RANK, "all other tokens have a vector", kinds=(COLBERT,)),
    Setting(SPLADE, ("pooling_strategy",), APPLIED, "`max` (also if absent) or `sum`", kinds=(SPARSE,)),
    Setting(SPLADE, ("activation_function",), TO_RANK, "if not `relu`", one_of("relu"), (SPARSE,)),
    Setting(
        SPLADE, ("word_embedding_dimension", "embedding_dimension"), HARMLESS, "the vocabulary has it", kinds=(SPARSE,)
    ),
    Setting(
        LOGIT_SCORE,
        ("true_token_id", "false_token_id"),
        APPLIED,
        "a line says so where the labels of a recipe are other tokens",
        kinds=(CAUSAL,),
    ),
    Setting(LOGIT_SCORE, ("module_input_name",), TO_RANK, "if not `causal_logits`", one_of("causal_logits"), (CAUSAL,)),
    Setting(
        METADATA,
        ("query_token_id", "doc_token_id", "query_maxlen", "doc_maxlen", "attend_to_mask_tokens", "mask_punctuation"),
        APPLIED,
        "markers, lengths, attention to [MASK]s, and whether punctuation has no vector",
        kinds=(COLBERT,),
    ),
    Setting(METADATA, ("similarity",), TO_RANK, "if not `cosine`", one_of("cosine"), (COLBERT,)),
    Setting(METADATA, ("interaction",), TO_RANK, "if not `colbert`", one_of("colbert"), (COLBERT,)),
    Setting(METADATA, ("any other key",), HARMLESS, "of its training and its index", kinds=(COLBERT,)),
    Setting(
        TOKENS,
        ("model_max_length", "max_len"),
        APPLIED,
        "the longest text, or pair, where max_seq_length is absent",
        kinds=CUT,
    ),
    Setting(
        TOKENS,
        ("model_max_length", "max_len", "truncation_side"),
        HARMLESS,
        "a prompt has limits of its own",
        kinds=(CAUSAL,),
    ),
    Setting(TOKENS, ("split_special_tokens",), APPLIED, "whether a special token spelled out in a text is text"),
    Setting(TOKENS, ("truncation_side",), TO_RANK, "if not `right`: the start of a text is kept", one_of("right"), CUT),
    Setting(TOKENS, ("padding_side",), HARMLESS, "a text alone has no padding"),
    Setting(TOKENS, ("chat_template",), HARMLESS, "not used where modality_config has text alone", kinds=CUT),
    Setting(TOKENS, ("chat_template",), HARMLESS, "a recipe has the prompt", kinds=(CAUSAL,)),
    Setting(
        TOKENS,
        ("add_bos_token", "add_eos_token"),
        COMPARED,
        "transformers 4 put these tokens around a text, and 5 no longer does: tokenizer.json must say so itself",
    ),
    Setting(TOKENS, ("any other key",), COMPARED, "such as do_lower_case, strip_accents, tokenizer_class, sep_token"),
    Setting(
        TOKENIZER,
        ("model", "normalizer", "pre_tokenizer", "added_tokens"),
        APPLIED,
        "without the dropout of a `BPE`: a text always has the same tokens",
    ),
    Setting(TOKENIZER, ("post_processor",), COMPARED, "what it puts around a text, at most four tokens, is put there"),
    Setting(TOKENIZER, ("truncation",), TO_RANK, "if on the left: the start of a text is kept", cuts_the_end, CUT),
    Setting(TOKENIZER, ("truncation",), HARMLESS, "a prompt has limits of its own", kinds=(CAUSAL,)),
    Setting(TOKENIZER, ("padding", "decoder", "version"), HARMLESS, "a text alone has no padding"),
    Setting(SPECIAL_TOKENS, ("any key",), COMPARED, "tokens that tokenizer.json lacks or does not mark"),
    Setting(ADDED_TOKENS, ("any key",), COMPARED, "likewise"),
    Setting(CONFIG, ("any key",), APPLIED, "by transformers; no code of the folder is run"),
    Setting(ADAPTER, ("any key",), REFUSED, "merge the adapter into the encoder, and save that"),
    Setting(MARK, ("tokenizer", "added_tokens"), APPLIED, "an export's own: its vocabulary, its special tokens"),
    Setting(MARK, ("dimensions",), APPLIED, "likewise: the numbers of dimensions that it was trained for"),
    Setting(MARK, ("max_query_tokens",), APPLIED, "likewise: the longest query"),
)
_BY_KEY = {(kind, row.file, key): row for row in TABLE for key in row.keys for kind in row.kinds}


def unused(path: Path, file: str, keys: Mapping[str, Any], kind: Kind, *, to_rank: bool) -> list[str]:
    """Look up every key of a file of settings; return what training, or a ranker by labels, does without.

    An example is `truncate_dim (8)`.

    Args:
        path: the file.
        file: its name in TABLE.
        keys: what it has.
        kind: of its folder.
        to_rank: also refuse what a fine-tuning starts without, and what TABLE does not have.

    Raises:
        InputError: a key is refused.
    """
    without = []
    for key, value in keys.items():
        row = next((_BY_KEY[kind, file, name] for name in (key, *ANY_KEY) if (kind, file, name) in _BY_KEY), None)
        if row and (row.use not in (REFUSED, TO_RANK, RANKING, TOLD) or row.neutral(value, kind)):
            continue
        if row and (row.use == REFUSED or (to_rank and row.use == TO_RANK)):
            raise InputError(f"{path}: {key} is {_short(value)}, which is not supported ({row.why})")
        if row is None and to_rank:
            raise InputError(f"{path}: {key} is not a known key, and may change vectors: remove it if it does not")
        if not to_rank or (row and row.use == TOLD):
            without.append(f"{key} ({_short(value)})")
    return without


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
