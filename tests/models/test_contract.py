"""What every method must do, with all keys that change what it computes: tests through its configuration."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from deepsiam.models.interface import MicroBatch
from deepsiam.models.registry import METHODS
from deepsiam.models.trunk import TrunkModel
from tests.models.tiny import documents, perturbed, rekeyed, tensors
from tests.models.trunks import attend_text_by_text
from tests.models.variants import COMPARING, METHOD_OF, PRETRAININGS, SHORT, VARIANTS, Variant

ALL = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.title)
HALF = [*((variant, torch.float16) for variant in VARIANTS), *((v, torch.bfloat16) for v in METHOD_OF.values())]
TRAINED = [*PRETRAININGS, *(variant for variant in METHOD_OF.values() if not variant.pretrains)]
NO_ENCODER = "seed, without mlm or cls"
SAME_LENGTHS = documents(*[[4, 5, 6]] * 8, rng=8)


def equal(first: MicroBatch, second: MicroBatch) -> bool:
    names = first.arrays.keys() == second.arrays.keys()
    return names and all(np.array_equal(array, second.arrays[name]) for name, array in first.arrays.items())


def run(model: TrunkModel, arrays: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The losses, and the gradients of their sum."""
    model.zero_grad()
    losses = model(**arrays)
    sum(losses.values()).backward()
    return losses, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_every_method_is_here() -> None:
    assert METHOD_OF.keys() == METHODS.keys()


@ALL
def test_micro_batches_are_a_function_of_examples_and_rngs(variant: Variant) -> None:
    batcher, examples = variant.batcher(), variant.examples()
    assert batcher.examples([]) == []
    first = variant.micro_batch(examples)
    assert equal(first, variant.micro_batch(examples))  # the examples are as they were
    assert equal(first, variant.micro_batch(variant.examples()))
    assert equal(first, batcher.micro_batch(examples, rekeyed(len(examples))))
    assert 0 < first.filled <= first.slots
    assert first.tokens
    assert all(first.counts.values())
    losses = perturbed(variant.model())(**tensors(first))
    assert losses.keys() == first.counts.keys() == variant.keys.weights.keys()
    assert all(loss > 0 for loss in losses.values())


@ALL
def test_losses_are_the_finite_sums_of_the_examples_losses_in_any_order(variant: Variant) -> None:
    model, examples = perturbed(variant.model()), variant.examples()
    order = np.random.default_rng(0).permutation(len(examples))
    with torch.no_grad():
        together = model(**tensors(variant.micro_batch(examples)))
        mixed = model(**tensors(variant.micro_batch([examples[i] for i in order], numbers=order)))
        single = [model(**tensors(variant.micro_batch([example], i))) for i, example in enumerate(examples)]
    assert all(loss.isfinite() for losses in (together, *single) for loss in losses.values())
    torch.testing.assert_close(mixed, together, rtol=1e-10, atol=1e-10)
    if not variant.keys.compares_micro_batch:
        sums = {name: sum(losses[name] for losses in single) for name in together}
        torch.testing.assert_close(sums, together, rtol=1e-10, atol=1e-10)


@ALL
def test_padding_changes_no_loss_and_no_gradient_also_where_none_is_computed(
    variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = [example for texts in (SHORT[:2], SHORT[2:]) for example in variant.examples(texts)]
    model, arrays = perturbed(variant.model()), tensors(variant.micro_batch(examples))
    if "offsets" in arrays:
        arrays["offsets"] %= 4  # so that they also fit the wider sequences of Cross-Thought
    padded, expected = variant.pad_more(arrays), run(model, arrays)
    assert any(array.shape != padded[name].shape for name, array in arrays.items())
    torch.testing.assert_close(run(model, padded), expected, rtol=1e-12, atol=1e-10)
    monkeypatch.setattr("deepsiam.models.encode.kernel_for", lambda *_: attend_text_by_text)
    shapes: list[torch.Size] = []
    model.trunk.register_forward_pre_hook(lambda *call: shapes.append(call[2]["input_ids"].shape), with_kwargs=True)
    found = run(model, padded)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
    assert all(gradient.isfinite().all() for gradient in found[1].values())
    assert len(shapes) == (variant.title != NO_ENCODER)  # one run for all texts, and of a tower of its own
    assert all(len(shape) == 2 and shape[0] == 1 for shape in shapes)


@pytest.mark.parametrize(("variant", "dtype"), HALF, ids=lambda of: getattr(of, "title", str(of)))
def test_half_precision_losses_are_fp32_and_near_the_exact_ones(variant: Variant, dtype: torch.dtype) -> None:
    model, arrays = variant.model(initializer_range=0.02), tensors(variant.micro_batch())
    rel = 0.02 if variant.pretrains and variant.name not in COMPARING else 0.05
    exact, losses = model(**arrays), model.to(dtype)(**arrays)
    for name, loss in losses.items():
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(exact[name].item(), rel=rel), name
    sum(losses.values()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("variant", TRAINED, ids=lambda variant: variant.title)
def test_training_steps_lower_every_loss(variant: Variant) -> None:
    model = variant.model(initializer_range=0.02 if variant.pretrains else 0.1)
    arrays = tensors(variant.micro_batch(variant.examples(SAME_LENGTHS)))
    torch.manual_seed(0)
    optimizer, history = torch.optim.Adam(model.parameters(), 5e-3), []
    for _ in range(15):
        losses = model(**arrays)
        history.append({name: loss.item() for name, loss in losses.items()})
        optimizer.zero_grad()
        sum(variant.keys.weights[name] * loss for name, loss in losses.items()).backward()
        optimizer.step()
    assert all(last < 0.95 * history[0][name] for name, last in history[-1].items()), history
