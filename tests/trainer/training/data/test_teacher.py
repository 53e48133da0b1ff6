"""A run's micro-batches have its teacher's vectors; what of a teacher is refused before the first step."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import deepsiam
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.batching.candidates import text_key
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.data.teacher import TeacherVectors
from deepsiam.trainer.training.run.job import Job, check_job
from tests import toy
from tests.trainer.many_runs import job_of
from tests.trainer.runs import write_run

LENGTHS = {"passage_tokens": 32, "max_query_tokens": 16, "max_document_tokens": 32}
DISTIL: dict[str, Any] = {"name": "distil", "teacher_width": 32, **LENGTHS}
SIAMESE: dict[str, Any] = {"loss": {"vectors": 1.0, "softmax": 1.0}, "teacher_width": 32}


def arrays_of(job: Job) -> dict[str, np.ndarray]:
    return next(iter(job.order.stream(job.order.start(), 0, 1))).micro_batch.arrays


def finetune(tmp_path: Path, collection: Path, teacher: Path | None, **method: Any) -> Job:
    data = {"collection": str(collection), "lanes": 4, "window": 2, "teacher": teacher and str(teacher)}
    path = toy.finetune_recipe(tmp_path / "r.yaml", collection, data=data, trunk=toy.TRUNK, method=SIAMESE | method)
    job = job_of(path, [])
    check_job(job)
    return job


def pretrain(tmp_path: Path, shards: Path, *changes: str) -> Job:
    job = job_of(toy.seed_recipe(tmp_path / "r.yaml", shards, method=DISTIL), [*changes])
    check_job(job)
    return job


def test_a_fine_tuning_reads_the_vectors_of_its_texts(taught_collection: Path, tmp_path: Path) -> None:
    vectors = toy.vectors_beside(taught_collection)
    job = finetune(tmp_path, taught_collection, vectors, max_query_tokens=64, max_document_tokens=64)
    arrays, opened, collection = arrays_of(job), TeacherVectors.open(vectors), Collection.open(taught_collection)
    for side, texts, name in (("query", collection.queries, "queries"), ("document", collection.corpus, "documents")):
        numbers = {tuple(texts.tokens(i)[:62].tolist()): i for i in range(len(texts))}  # as many as are read
        rows = zip(arrays[f"{side}_ids"], arrays[f"{side}_mask"], strict=True)
        read = [numbers[tuple(ids[mask][1:-1].tolist())] for ids, mask in rows]
        expected = opened.vectors(side, np.array([text_key(texts.tokens(i)) for i in read]))
        np.testing.assert_array_equal(arrays[f"teacher_{name}"], expected)
        assert len({row.tobytes() for row in expected}) == len({*read}) > 2
    assert job.resume_invariants["data.teacher sha256"] == opened.sha256


def test_validation_learns_the_same_teacher(taught_shards: Path, tmp_path: Path) -> None:
    job = pretrain(tmp_path, taught_shards, f"validation.shards={taught_shards}", "validation.every=4")
    assert job.data.held_out[0].first().arrays["teacher_documents"].shape[1] == 32


def test_a_copy_of_the_texts_is_known_and_others_are_counted(
    taught_collection: Path, taught_shards: Path, toy_scored: Path, shards: Path, tmp_path: Path
) -> None:
    vectors = toy.vectors_beside(taught_collection)
    arrays_of(finetune(tmp_path, toy_scored, vectors))  # a derived collection: the same texts, another manifest
    other = toy.write_collection(tmp_path / "other", taught_collection / "tokenizer.json", seed=77)
    first = re.escape(Collection.open(other).corpus.called(0))
    with pytest.raises(InputError, match=rf"lacks .* of 2\d\d of 240 texts of .*, the first of document {first}: "):
        finetune(tmp_path, other, vectors)
    held_out = toy.write_shards_with(tmp_path, shards, 50)
    words = r"lacks the vectors of [\d,]+ of [\d,]+ texts of .*held_out, the first of query h"
    with pytest.raises(InputError, match=words):
        pretrain(tmp_path, taught_shards, f"validation.shards={held_out}", "validation.every=4")


def test_a_teacher_that_does_not_suit_the_recipe_is_refused(
    taught_collection: Path, taught_shards: Path, tmp_path: Path
) -> None:
    vectors = toy.vectors_beside(taught_collection)
    for method, teacher, message in (
        ({}, None, "data.teacher: a loss learns a teacher's vectors: name their folder"),
        ({"loss": "softmax"}, vectors, "data.teacher: no loss learns a teacher's vectors"),
        ({"teacher_width": 16}, vectors, r"learns vectors of 16 numbers, but those of .* have 32: set"),
        ({"teacher_width": None, "projection": 24}, vectors, "learns vectors of 24 numbers"),
        ({}, tmp_path / "none", "none: no finished folder of a teacher's vectors"),
    ):
        with pytest.raises(InputError, match=message):
            finetune(tmp_path, taught_collection, teacher, **method)
    finetune(tmp_path, taught_collection, vectors, teacher_width=None)  # the student is as wide as its teacher
    with pytest.raises(InputError, match=r"method.passage_tokens: 64, but .* of passages of 32 tokens: set 32"):
        pretrain(tmp_path, taught_shards, "method.passage_tokens=64")
    toy.write_shards(tmp_path / "foreign", count=30, seed=4)
    (tmp_path / "foreign" / "shards-vectors").symlink_to(toy.vectors_beside(taught_shards))
    with pytest.raises(InputError, match="knows its texts by another tokenizer"):
        pretrain(tmp_path, tmp_path / "foreign" / "shards")


@pytest.mark.parametrize("file", ["keys.npy", "blocks/000000.npy", "manifest.json"])
def test_a_damaged_folder_is_refused(taught_collection: Path, tmp_path: Path, file: str) -> None:
    shutil.copytree(toy.vectors_beside(taught_collection), tmp_path / "vectors")
    path = tmp_path / "vectors" / file
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=re.escape(f"{path}: ")):
        finetune(tmp_path, taught_collection, tmp_path / "vectors")


@pytest.mark.parametrize("projection", [None, 24])
def test_a_fine_tuning_starts_from_a_distilled_run_with_nothing_redrawn(
    taught_collection: Path, tmp_path: Path, projection: int | None
) -> None:
    tokenizer, shape = taught_collection / "tokenizer.json", {"pooling": "mean", "projection": projection}
    compared = {"similarity": "cosine", "temperature": 0.3}
    run = write_run(tmp_path / "run", tokenizer, **DISTIL, **shape, **compared, query_prompt="ab ")
    changes = {"init_from": str(run), "method": {"projection": projection}}
    job = job_of(toy.finetune_recipe(tmp_path / "r.yaml", taught_collection, **changes), [])
    method = job.recipe.method
    keys = ("pooling", "similarity", "temperature", "query_prompt")
    assert [getattr(method, key) for key in keys] == ["mean", "cosine", 0.3, "ab "]
    weights, given = (dict(model.named_parameters()) for model in (job.model, load_trained(run).model))
    assert given.keys() - weights.keys() == {"teacher_head.weight", "teacher_head.bias"}
    assert all(torch.equal(weights[name], given[name]) for name in weights)


def test_an_export_of_a_distilled_run_is_a_sentence_transformer_of_its_vectors(
    taught_collection: Path, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", taught_collection / "tokenizer.json", **DISTIL, pooling="mean")
    export_encoder(load_trained(run), tmp_path / "export")
    texts = ["ab cd", "fe ab gh ij"]
    exported, trained = deepsiam.load(tmp_path / "export"), deepsiam.load(run)
    np.testing.assert_allclose(exported.encode_document(texts), trained.encode_document(texts), atol=1e-5)
    assert not exported.ranker.model.heads
