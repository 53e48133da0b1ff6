"""What a micro-batch computes, against the real model and a plain formula; its kernels and their time on a device."""

import json
import resource
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.registry import PRETRAINING
from deepsiam.trainer.cluster.planning.compute import (
    SPECIAL,
    MeasuredSpeed,
    Work,
    count,
    made_up_batch,
    measured_speed,
    vocabulary_of,
)
from deepsiam.trainer.cluster.planning.kernels import Kernel, Kernels, attention_as_on_cuda
from deepsiam.trainer.cluster.planning.roofline import ATTENTION, BANDWIDTH, GRADIENT_BYTES, STATE_BYTES, Roofline
from deepsiam.trainer.training.engine.hardware import DEVICES
from deepsiam.trainer.training.recipe.build import build_model, trunk_of
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.flops import CPU_ATTENTION
from tests.toy import ROOT

WITHOUT_DROPOUT = ["trunk.hidden_dropout_prob=0.0", "trunk.attention_probs_dropout_prob=0.0"]


def recipe(name: str = "seed_small", *changes: str) -> PretrainRecipe:
    return load(PretrainRecipe, ROOT / "recipes" / f"{name}.yaml", changes)


def test_the_products_are_those_of_the_real_model() -> None:
    keys = recipe("seed_small", *WITHOUT_DROPOUT)
    work = count(keys, 500, torch.float32)  # as on the CPU: with padding
    assert keys.trunk is not None
    torch.manual_seed(0)
    model = build_model(keys.method, trunk_of({**keys.trunk, "vocab_size": 500, "pad_token_id": 0}, "trunk"))
    batch, _ = made_up_batch(keys.method, Vocabulary(500, **SPECIAL), keys.batch.micro)
    with FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION) as counter:
        sum(model(**{name: torch.from_numpy(array) for name, array in batch.arrays.items()}).values()).backward()
    assert work.flops * keys.batch.micro == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert work.trained == tuple(parameter.numel() for parameter in model.parameters())
    assert work.parameters == sum(work.trained)


def test_a_trunk_costs_six_operations_a_parameter_and_token() -> None:
    """Kaplan et al., 2020: 2 forward and 4 backward for each weight; attention adds 12 x layers x length x width."""
    shallow, deep = (count(recipe("mlm_base", f"trunk.num_hidden_layers={layers}"), 32768) for layers in (1, 3))
    weights = deep.parameters - shallow.parameters
    length, width = 504, 768  # sentences of 24 tokens fill 502 of 512; two special tokens
    expected = (6 * weights + 12 * 2 * length * width) * length
    assert deep.flops - shallow.flops == pytest.approx(expected, rel=0.03)


# of the demo, a ModernBERT, which asks whether there is padding
@pytest.mark.parametrize("name", [*(f"{method}_small" for method in sorted(PRETRAINING)), "demo_seed"])
def test_every_method_can_be_counted(name: str) -> None:
    work = count(recipe(name), 4096)
    assert work.flops > 6 * work.tokens * 1e5
    assert sum(work.kernels.values()) > 50


def test_a_billion_parameters_take_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    large = ["trunk.hidden_size=2048", "trunk.num_attention_heads=32", "trunk.num_hidden_layers=16"]
    work = count(recipe("seed_base", *large, "trunk.intermediate_size=8192", "batch.micro=1"), 32768)
    assert work.parameters > 1e9
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


def test_frozen_parameters_are_not_trained() -> None:
    work = count(recipe("mlm_small", "optimizer.train=1"), 4096)
    assert sum(work.trained) < work.parameters


def test_the_vocabulary_is_the_trunk_s_or_given() -> None:
    assert (vocabulary_of(recipe("seed_base"), None), vocabulary_of(recipe("seed_small"), 500)) == (32768, 500)


@pytest.mark.parametrize("length", [8, 24, 40, 48, 50])
def test_short_inputs_have_made_up_text(length: int) -> None:
    keys = recipe("ict_small", f"method.max_tokens={length}")
    batch, _ = made_up_batch(keys.method, Vocabulary(64, **SPECIAL), 4)
    assert batch.arrays["passage_ids"].shape[0] == 4


RESULTS = json.loads((ROOT / "benchmarks" / "results" / "pretrain_step_cpu.json").read_text())


def speed(content: Any = RESULTS, case: str | None = None) -> MeasuredSpeed:
    return measured_speed(content, recipe(), case, "x.json")


def test_a_measured_speed_is_products_a_token_times_tokens_a_second() -> None:
    cases = RESULTS["cases"]
    last = [name for name, one in cases.items() if one["recipe"].startswith("seed")][-1]
    for name, case in ((last, None), ("seed-demo", "seed-demo")):
        rate = cases[name]["rivals"]["deepsiam"]["tokens_per_second"]["median"]
        assert speed(case=case).flops == cases[name]["flops_per_token"] * rate
    assert speed().optimizer(10**9, 1) == 0


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda: vocabulary_of(recipe("seed_small", "trunk={model_type: bert}"), None), "trunk.vocab_size"),
        (lambda: vocabulary_of(recipe(), 10), "a vocabulary of 10 pieces has no words: give more than 10"),
        (lambda: count(recipe("seed_small", "trunk=null", "init_from=runs/x"), 500), "^trunk: .*init_from"),
        (lambda: speed(case="nothing"), "^x.json: no case 'nothing'; choose with --case: seed-demo, "),
        (lambda: speed({"cases": {}}), "^x.json: no case of method seed"),
        (lambda: speed({"cases": {"a": {"recipe": "seed_base.yaml"}}}), "^x.json: not a result of benchmarks.step"),
        (lambda: speed([]), "^x.json: not a result of benchmarks.step"),
    ],
)
def test_what_cannot_be_counted_is_refused(compute: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compute()


def of(*shape: int, dtype: torch.dtype = torch.bfloat16, grad: bool = False) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta", requires_grad=grad)


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda: of(8, 16) @ of(16, 4), Kernel("mm", 2 * (8 * 16 + 16 * 4 + 8 * 4), 2 * 8 * 16 * 4)),
        (lambda: of(8, 16) + of(16), Kernel("add", 2 * (2 * 8 * 16 + 16), 0)),
        (lambda: of(8, 16).add_(of(8, 16)), Kernel("add_", 2 * 3 * 8 * 16, 0)),
        (lambda: of(8, 1).expand(8, 16) * 2, Kernel("mul", 2 * (8 + 8 * 16), 0)),  # the expanded column is read once
        (lambda: of(8, 16).copy_(of(8, 16)), Kernel("copy_", 2 * 2 * 8 * 16, 0)),
        (lambda: of(8, 16).zero_(), Kernel("zero_", 2 * 8 * 16, 0)),
        # the rows that are chosen, not the table
        (lambda: F.embedding(of(5, dtype=torch.int64), of(1000, 16)), Kernel("embedding", 2 * 2 * 5 * 16 + 8 * 5, 0)),
    ],
)
def test_a_kernel_reads_its_inputs_and_writes_its_outputs(compute: Callable[[], Tensor], expected: Kernel) -> None:
    with Kernels() as kernels:
        compute()
    assert kernels.started == [expected]


def test_a_kernel_without_result_writes_arguments() -> None:
    weight = of(8, 16, dtype=torch.float32, grad=True)
    optimizer, weight.grad = torch.optim.AdamW([weight], fused=True), torch.zeros_like(weight)
    moments = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
    optimizer.state[weight] = {**moments, "step": torch.zeros((), device="meta")}
    with Kernels() as kernels:
        optimizer.step()
    fused = kernels.started[-1]
    assert fused.name == "_fused_adamw_"
    # it reads weight, gradient and both moments, and writes all but the gradient, which its schema lets it write
    assert fused.bytes == pytest.approx(4 * 8 * 16 * 8, abs=16)


def test_views_and_new_memory_start_no_kernel() -> None:
    with Kernels() as kernels:
        of(8, 16).t().reshape(4, 4, 8)[1:].detach()
    assert kernels.started == []


@pytest.mark.parametrize(("masked", "kind"), [(False, "flash"), (True, "efficient")])
def test_attention_is_one_kernel_each_way(masked: bool, kind: str) -> None:
    query, key, value = (of(2, 3, 64, 16, grad=True) for _ in range(3))
    mask = of(2, 1, 1, 64, dtype=torch.bool) if masked else None
    with attention_as_on_cuda(), Kernels() as kernels:
        F.scaled_dot_product_attention(query, key, value, attn_mask=mask).sum().backward()
    forward, backward = (one for one in kernels.started if "attention" in one.name)
    product = 2 * 2 * 3 * 64 * 64 * 16
    assert forward.name == f"_scaled_dot_product_{kind}_attention"
    assert (forward.flops, backward.flops) == (2 * product, 5 * product)  # the backward pass computes the scores again


def test_on_a_cpu_attention_is_torch_s_own() -> None:
    own = [torch.randn(1, 2, 8, 4) for _ in range(3)]
    expected = F.scaled_dot_product_attention(*own)
    with attention_as_on_cuda():
        assert torch.equal(F.scaled_dot_product_attention(*own), expected)


H100 = DEVICES["h100"]
ROOFLINE = Roofline(H100, products=0.5, launch=1e-6, start=2e-6)
PRODUCT = Kernel("mm", 1, 10**12)
SUM = Kernel("add", 10**9, 0)


EFFICIENT, FLASH = "_scaled_dot_product_efficient_attention_backward", "_flash_attention_forward"


@pytest.mark.parametrize(
    ("kernel", "seconds"),
    [
        (PRODUCT, 1e12 / (0.5 * H100.peak)),
        (SUM, 1e9 / (BANDWIDTH * H100.memory_bandwidth)),
        (replace(SUM, flops=10), 1e9 / (BANDWIDTH * H100.memory_bandwidth)),
        # attention attains less than products
        (replace(PRODUCT, name=EFFICIENT), 1e12 / (min(ATTENTION["efficient"], 0.49) * H100.peak)),
        (replace(PRODUCT, name=FLASH), 1e12 / (min(ATTENTION["flash"], 0.49) * H100.peak)),
    ],
)
def test_a_kernel_takes_the_longer_of_bytes_and_products_and_its_launch(kernel: Kernel, seconds: float) -> None:
    assert ROOFLINE.seconds(kernel) == pytest.approx(seconds + 1e-6)


def test_kernels_run_one_after_another_unless_python_is_slower() -> None:
    assert ROOFLINE.total({PRODUCT: 2, SUM: 1}) == 2 * ROOFLINE.seconds(PRODUCT) + ROOFLINE.seconds(SUM)
    assert ROOFLINE.total([Kernel("add", 0, 0)] * 7) == pytest.approx(7 * 2e-6)


def test_a_micro_batch_of_twice_the_examples_has_twice_the_work_and_as_many_kernels() -> None:
    work = Work(1000, (1000,), {PRODUCT: 3}, 4, 100.0, 1.0, 1.0)
    assert work.flops == 3e12 / 4
    once, twice = ROOFLINE.micro_batch(work, 4), ROOFLINE.micro_batch(work, 8)
    assert once == ROOFLINE.total({PRODUCT: 3})
    assert twice - 3e-6 == pytest.approx(2 * (once - 3e-6))


def test_deepspeed_moves_all_gradients_and_a_part_of_the_states() -> None:
    expected = (1000 * GRADIENT_BYTES + 250 * STATE_BYTES) / (BANDWIDTH * H100.memory_bandwidth)
    assert ROOFLINE.optimizer(1000, 4) == pytest.approx(expected)
