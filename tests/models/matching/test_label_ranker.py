"""The ranker by labels: its prompts, and its scores, losses and gradients against one prompt at a time in fp64."""

from functools import partial
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from deepsiam.models.matching.label_ranker import LabelRanker
from tests.models import plain
from tests.models.matching.examples import group, keys_of, micro_batch, positive
from tests.models.tiny import VOCABULARY, perturbed, tensors, trunk
from tests.models.trunks import trunk_like

LIST = {"template": "{query}:{passages}=", "passage": "{label}{passage};", "labels": [*"ABCD"]}
PAIR = {"template": "{query}:{document}=", "labels": ["y", "n"], "loss": "binary"}
GIVEN = [positive(1, given=[3, 4]), positive(2, query=(30, 31, 32), given=[6, 7, 8])]
TAUGHT = [group({3: 0.5, 4: -1.0, 5: 2.0}), group({6: 1.0, 2: 0.25}, query=(33, 32)), group({1: 1.0, 2: 1.0, 7: 0.0})]
config = partial(keys_of, "label_ranker", max_query_tokens=4, max_document_tokens=6, max_prompt_tokens=36, **LIST)


def build(name: str = "qwen3", **keys: Any) -> LabelRanker:
    return perturbed(config(**keys).model(trunk_like(name)))


def ids_of(text: str) -> list[int]:
    (ids,) = VOCABULARY.encode([text])
    return ids.tolist()


def rows_of(arrays: dict[str, Any]) -> list[list[int]]:
    return [ids[mask].tolist() for ids, mask in zip(arrays["prompt_ids"], arrays["prompt_mask"], strict=True)]


def test_a_prompt_has_the_candidates_in_a_random_order_and_the_places_of_their_labels() -> None:
    seen = set()
    for start in range(20):
        arrays = micro_batch(config(hard_negatives=2), GIVEN, start=start).arrays
        for i, row in enumerate(rows_of(arrays)):
            order = arrays["candidates"][i] - 4 * i  # the label of the relevant document and of both negatives
            assert sorted(order) == [0, 1, 2]
            seen.add(tuple(order))
            passages = bytes(row).split(bytes(ids_of(";")))
            assert passages[order[0]].endswith(bytes(ids_of("w6w6" if i == 0 else "w7w7w7")))
        assert arrays["labels"].tolist() == [[1, 0, 0]] * 2
    assert len(seen) == 6


def test_a_document_has_a_prompt_of_its_own() -> None:
    batch = micro_batch(config(**PAIR, hard_negatives=1), GIVEN[:1])
    first, second = rows_of(batch.arrays)
    assert first == [VOCABULARY.cls, *ids_of("w30w31:w6w6=")]
    assert second in [[VOCABULARY.cls, *ids_of(f"w30w31:{text}=")] for text in ("w8w8w8w8", "w9w9w9w9w9")]
    assert batch.arrays["candidates"].tolist() == [[0, 1]]
    assert batch.counts == {"binary": 2}


def test_a_group_is_ordered_by_its_teacher_and_no_longer_than_the_labels() -> None:
    batch = micro_batch(config(loss="rank_net"), [group({i: float(-i) for i in range(9)})])
    assert batch.arrays["candidates"].shape == (1, 4)
    assert batch.arrays["scores"][0, 0] == 0
    assert batch.counts == {"rank_net": 1}


@pytest.mark.parametrize(
    ("name", "keys", "examples"),
    [
        *((name, {"hard_negatives": 2}, GIVEN) for name in ("qwen3", "mistral", "gpt2", "bert, causal")),
        ("qwen3", {"loss": {"softmax": 1.0, "rank_net": 10.0}}, TAUGHT),
        ("llama", {**PAIR, "hard_negatives": 2}, GIVEN),
        ("llama", {**PAIR, "loss": {"binary": 1.0, "rank_net": 2.0}}, TAUGHT),
    ],
)
def test_losses_and_gradients_against_one_prompt_at_a_time(name: str, keys: Any, examples: Any) -> None:
    model = build(name, **keys)
    arrays = tensors(micro_batch(model.keys, examples))
    states = plain.states_alone(model.trunk, arrays, "prompt")
    logits = torch.stack([each[-1] for each in states]) @ model.labels.weight.T
    scores = logits.flatten() if model.keys.is_list else logits[:, 0] - logits[:, 1]
    expected = plain.ranking_losses(model.keys.losses, arrays, [scores] * len(arrays["candidates"]))
    losses = model(**arrays)
    torch.testing.assert_close(losses, expected, rtol=1e-9, atol=0)
    plain.same_gradients(model, sum(losses.values()), sum(expected.values()), rtol=1e-7, atol=1e-9)


def test_scores_are_those_of_the_causal_model() -> None:
    model = build(**PAIR, hard_negatives=2)
    library = AutoModelForCausalLM.from_config(model.trunk.config).double().eval()
    library.model.load_state_dict(model.trunk.state_dict())
    yes_no = model.keys.head_tokens(VOCABULARY)
    assert yes_no == [*ids_of("y"), *ids_of("n")]
    with torch.no_grad():
        model.labels.weight.copy_(library.lm_head.weight[yes_no])
        arrays = tensors(micro_batch(model.keys, GIVEN))
        ours = model.relevance(model.label_logits(arrays["prompt_ids"], arrays["prompt_mask"]))
        for row, score in zip(rows_of(arrays), ours.tolist(), strict=True):
            logits = library(input_ids=torch.tensor([row])).logits[0, -1, yes_no]
            assert score == pytest.approx(logits.log_softmax(0)[0].item(), rel=1e-6)


def test_logits_in_half_precision_are_those_of_the_states_in_fp32() -> None:
    model = build(hard_negatives=2).to(torch.bfloat16)
    arrays = tensors(micro_batch(model.keys, GIVEN))
    logits = model.label_logits(arrays["prompt_ids"], arrays["prompt_mask"])
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())  # of which many would tie


def test_a_trunk_that_is_not_causal_is_refused() -> None:
    with pytest.raises(ValueError, match="continues a prompt, and the trunk .*'bert'.* is not causal: take a decoder"):
        config(hard_negatives=1).model(trunk())
