"""The types of the results of trainer.evaluate over a pool of documents, as the report reads them from a file."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from data_prep.common.json_file import Count, Record

Two = Annotated[list[str], Field(min_length=2, max_length=2)]


class Pair(Record):
    """How two systems differ."""

    systems: Two
    metric: str
    difference: float
    interval: Annotated[list[float], Field(min_length=2, max_length=2)]
    p_value: float
    p_value_holm: float


class Limits(Record):
    """How many tokens of a text a system reads."""

    query: Count
    document: Count
    kept_of_query: str | None = None


class Fusion(Record):
    """How the row `fused` was made."""

    systems: Two
    weight: float | None = None
    split: str | None = None


class Reranked(Record):
    """What a model ranked again."""

    system: str
    documents: Count


class Pipeline(Record):
    """The stages of a pipeline."""

    stages: Annotated[list[str], Field(min_length=1)]
    seconds: list[float]
    weights: list[float | None] = []
    split: str | None = None
    p_value_bm25: float | None = None


class Results(Record):
    """Everything but the rows of the systems, which have the systems' own names."""

    queries: Count
    corpus: Count
    collection: str
    split: str
    checkpoints: dict[str, str]
    max_tokens: dict[str, Limits]
    p_value: float | None
    p_value_bm25: float | None = None
    pairs_of_systems: list[Pair] | None = None
    fusion: Fusion | None = None
    rerank: dict[str, Reranked] = {}
    pipelines: dict[str, Pipeline] = {}
    run_files: dict[str, Any] = {}
    metrics: list[str] = []
    remarks: list[str] = []
