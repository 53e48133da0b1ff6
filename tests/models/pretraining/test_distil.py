"""Learning a teacher's vectors: what is read as what, and the losses against a plain reference in fp64."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deepsiam.models.batching.candidates import text_key
from deepsiam.models.batching.taught import TaughtBatcher
from deepsiam.models.pretraining.distil import DistilConfig, taught_pairs
from tests.models.plain import same_losses_and_gradients, states_alone
from tests.models.tiny import MAX_TOKENS, VOCABULARY, HashedTeacher, Text, documents, rngs, tensors, trunk

EVERY_LOSS = {"vectors": 2.0, "vectors_mse": 1.0, "batch_kl": 0.5}
TEXTS = documents([4, 3, 5], [2, 6], [3, 3, 3, 3], rng=4)


def config(**keys: Any) -> DistilConfig:
    lengths = {"passage_tokens": 12, "max_query_tokens": 8, "max_document_tokens": MAX_TOKENS}
    return DistilConfig.model_validate({"name": "distil", "pooling": "mean", **lengths, **keys})


def prefix(vector: Tensor, number: int, *, unit: bool) -> Tensor:
    return vector[:number] / vector[:number].norm() * vector.norm() if unit else vector[:number]


@pytest.mark.parametrize("negatives", ["micro_batch", "step"])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("shape", [{}, {"dimensions": [16, 5]}, {"dimensions": [10, 5], "projection": 12}], ids=str)
@pytest.mark.parametrize("teacher_width", [12, None], ids=["layer", "no layer"])
def test_losses_and_every_gradient_equal_a_plain_reference(
    teacher_width: int | None, shape: dict[str, Any], similarity: str, negatives: str
) -> None:
    scores = {"negatives": negatives, "similarity": similarity, "temperature": 0.3}
    keys = config(loss=EVERY_LOSS, teacher_width=teacher_width, **scores, **shape)
    model = keys.model(trunk()).double()
    teacher, numbers = HashedTeacher(teacher_width or model.width), keys.dimensions or (model.width,)
    batcher = TaughtBatcher(keys.batcher(VOCABULARY), teacher)
    examples = batcher.examples(TEXTS)
    batch = batcher.micro_batch(examples, rngs(len(examples)))

    def vector(states: Tensor) -> Tensor:
        pooled = model.projection(states.mean(dim=0)) if keys.projection else states.mean(dim=0)
        pooled = pooled[: numbers[0]]
        return pooled / pooled.norm() if similarity == "cosine" else pooled

    student, taught = {}, {}
    for side, texts in (("query", [e.query for e in examples]), ("document", [e.document for e in examples])):
        student[side] = [vector(states) for states in states_alone(model.trunk, tensors(batch), side)]
        given = teacher.vectors(side, np.array([text_key(text) for text in texts]))
        taught[side] = list(torch.from_numpy(given).double())
    expected, unit = {}, similarity == "cosine"
    for i, number in enumerate(numbers):
        name = (lambda loss, number=number: f"{loss}_{number}") if keys.dimensions else str
        cosine = mse = kl = torch.zeros((), dtype=torch.float64)
        for side in ("query", "document"):
            for own, theirs in zip(student[side], taught[side], strict=True):
                learned = own[:number]
                if teacher_width:
                    learned = model.teacher_head.weight[:, :number] @ learned + model.teacher_head.bias
                learned, target = (learned[:number], theirs[:number]) if i else (learned, theirs)
                cosine = cosine + 1 - learned @ target / learned.norm() / target.norm()
                mse = mse + ((learned - target) ** 2).sum() / len(target)
        cut = [[prefix(v, number, unit=unit) for v in student[side]] for side in ("query", "document")]
        full = [[prefix(v, number, unit=unit) if i else v for v in taught[side]] for side in ("query", "document")]
        for q in range(len(examples)):
            ours, theirs = (
                torch.stack([texts[0][q] @ document for document in texts[1]]) / 0.3 for texts in (cut, full)
            )
            p = theirs.softmax(0)
            kl = kl + (p * (p.log() - ours.log_softmax(0))).sum()
        expected |= {name("vectors"): cosine, name("vectors_mse"): mse, name("batch_kl"): kl}
    both, queries = 2 * len(examples), len(examples)
    assert batch.counts == {name: queries if name.startswith("batch_kl") else both for name in expected}
    same_losses_and_gradients(model, batch, expected)


def test_a_first_sentence_is_a_query_and_what_follows_it_in_the_passage_a_document() -> None:
    (text,) = documents([3, 4, 5, 6, 5, 1, 30], rng=1)
    pairs = taught_pairs(text, 12)
    joined = [np.concatenate(text[start:stop]).tolist() for start, stop in ((1, 3), (4, 6))]
    assert [pair.query.tolist() for pair in pairs] == [text[0].tolist(), text[3].tolist()]  # [6, 5, 1] tokens
    assert [pair.document.tolist() for pair in pairs] == joined  # of the last sentence no part has another beside it


def test_two_segments_are_a_query_and_its_document_of_any_length() -> None:
    (pair,) = documents([20, 30], rng=1)
    assert [[text.tolist() for text in both] for both in taught_pairs(pair, 12)] == [[text.tolist() for text in pair]]
    assert taught_pairs(Text([pair[0], pair[0][:0]]), 12) == []


def test_prompts_are_put_before_each_side_and_are_no_part_of_the_key() -> None:
    batcher = config(query_prompt="ab", document_prompt="c", teacher_width=4).batcher(VOCABULARY)
    arrays = batcher.micro_batch(batcher.examples(TEXTS[1:2]), rngs(1)).arrays
    assert arrays["query_ids"][0, 1:3].tolist() == [7, 8]
    assert arrays["document_ids"][0, 1].tolist() == 9
    assert arrays["teacher_queries"].tolist() == [text_key(TEXTS[1][0])]
    assert arrays["teacher_documents"].tolist() == [text_key(TEXTS[1][1])]


def test_the_network_is_that_of_fine_tuning() -> None:
    keys = config(loss=EVERY_LOSS, negatives="step", dimensions=[8, 4], projection=8, query_prompt="q: ")
    siamese = keys.ranking_config
    assert (siamese.name, siamese.projection, siamese.dimensions) == ("siamese", 8, (8, 4))
    assert (siamese.negatives, siamese.similarity, siamese.temperature) == ("step", "cosine", 0.05)
    assert keys.compares_step
    alone = config(loss="vectors")
    assert not alone.compares_step
    assert not alone.compares_micro_batch
    assert "pooling" not in DistilConfig(name="distil").ranking_config.model_fields_set
