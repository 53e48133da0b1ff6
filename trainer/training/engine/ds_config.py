"""DeepSpeed's JSON files: find them by name, check them, complete them with the recipe's own settings.

Read before the first step alone: by the command, the job and the engine.

DeepSpeed silently misinterprets some settings; they are refused here, with the reason, as is what it refuses itself.
"""

import json
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from deepsiam.data_prep.common.errors import InputError, did_you_mean
from deepsiam.data_prep.common.files import os_errors_as_input_errors, read_bytes
from deepsiam.trainer.training.engine.device import accelerator, has_bf16
from deepsiam.trainer.training.recipe.schema import Recipe

FOLDER = Path(__file__).resolve().parents[3] / "ds_configs"

# set by the trainer from the recipe, so that each value has one owner
RECIPE_OWNS = {
    "train_batch_size": "batch.size",
    "train_micro_batch_size_per_gpu": "batch.micro",
    "gradient_accumulation_steps": "batch.size and batch.micro",
    "gradient_clipping": "optimizer.clip",
    "optimizer": "optimizer",
    "scheduler": "optimizer.warmup_steps and steps",
    "tensorboard": "run",
}
# DeepSpeed ignores unknown top-level keys; a misspelt one would silently do nothing
KNOWN_KEYS = {
    "aio",
    "bf16",
    "comms_logger",
    "communication_data_type",
    "data_types",
    "flops_profiler",
    "fp16",
    "gradient_predivide_factor",
    "memory_breakdown",
    "prescale_gradients",
    "steps_per_print",
    "timers",
    "wall_clock_breakdown",
    "zero_optimization",
}
# the keys of its section data_types, where it ignores unknown ones, too
DATA_TYPES = {"buffer_dtype", "grad_accum_dtype", "keep_in_fp32_modules", "param_dtype"}
# the other keys that DeepSpeed knows (a test asks it), by the reason why a file must not have them
REFUSED = {
    "would do nothing: DeepSpeed reads it only where a program calls its checkpointing; set the recipe's "
    "activation_checkpointing": "activation_checkpointing",
    "would do nothing: DeepSpeed compiles only where a program calls engine.compile(); set the recipe's compile": (
        "compile"
    ),
    "would do nothing: the trainer does not use that part of DeepSpeed": (
        "autotuning checkpoint data_efficiency dataloader_drop_last datastates_ckpt disable_allgather hybrid_engine "
        "pipeline vocabulary_size weight_quantization zero_allow_untested_optimizer"
    ),
    "the trainer sets this": "gradient_allreduce_op log_level zero_force_ds_cpu_optimizer",
    "the trainer decides when a step ends and when garbage is collected": (
        "disable_python_gc managed_gradient_accumulation"
    ),
    "the trainer writes the events: see the recipe's wandb": "comet csv_monitor wandb",
    "is for DeepSpeed's developers": "dump_state",
    "the ranks here divide the data, and DeepSpeed would divide the model": (
        "expert_parallel seq_parallel_communication_data_type sequence_parallel_size tensor_parallel "
        "use_data_before_expert_parallelism"
    ),
    "the trainer computes in the precision of bf16 or fp16: set one of them": "torch_autocast",
    "is the old name of bf16: write bf16": "bfloat16",
    "DeepSpeed no longer has it": (
        "amp compression_training curriculum_learning eigenvalue elasticity graph_harvesting nebula "
        "progressive_layer_drop quantize_training sparse_attention sparse_gradients"
    ),
}
REASONS = {key: reason for reason, keys in REFUSED.items() for key in keys.split()}
SECTIONS = {  # the sections that this module reads, with an example
    "bf16": '{"enabled": true}',
    "data_types": '{"grad_accum_dtype": "fp32"}',
    "fp16": '{"enabled": true}',
    "zero_optimization": '{"stage": 1}',
}

STATE_LAYOUT = (  # sections and keys, false where a file lacks them
    ("bf16", "bf16_master_weights_and_grads"),
    ("bf16", "bf16_optimizer_states"),
    ("fp16", "fp16_master_weights_and_grads"),
    ("zero_optimization", "round_robin_gradients"),
)
DTYPES = {
    **dict.fromkeys(("fp32", "float32", "float"), torch.float32),
    **dict.fromkeys(("bf16", "bfloat16"), torch.bfloat16),
    **dict.fromkeys(("fp16", "float16", "half"), torch.float16),
}


def load(name: str, *, for_here: bool = True) -> tuple[Path, dict[str, Any]]:
    """Return the path of the file that a recipe's `deepspeed` key names, and its checked content.

    Raise InputError for a missing or damaged file, an unknown key, a key the recipe owns, an `auto` value, fp16
    without ZeRO, and, if it is for this machine, what DeepSpeed refuses, and fp16 on a processor without it.
    """
    path = _path(fastest() if name == "auto" else name)
    try:
        config = json.loads(read_bytes(path))
        if not isinstance(config, dict):
            raise InputError(f"{path}: a DeepSpeed configuration must be a JSON object")
        for problem in _problems(config, for_here):  # the first one
            raise InputError(f"{path}: {problem}")
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deeply for a DeepSpeed configuration") from None
    return path, config


def complete(config: dict[str, Any], recipe: Recipe, world_size: int) -> dict[str, Any]:
    """Complete a file's configuration with the recipe's batch and clipping, for DeepSpeed."""
    return {
        **config,
        "train_batch_size": recipe.batch.size,
        "train_micro_batch_size_per_gpu": recipe.batch.micro,
        "gradient_accumulation_steps": recipe.batch.micro_batches // world_size,
        "gradient_clipping": recipe.optimizer.clip,
        "steps_per_print": config.get("steps_per_print", 2**31),  # the trainer prints its own progress line
        # the throughput timer would synchronise the device at every step
        "timers": config.get("timers", {"throughput": {"enabled": False}}),
        # torch's AdamW updates offloaded states too: DeepSpeed's own needs a C++ compiler at the first start
        "zero_force_ds_cpu_optimizer": False,
    }


def fastest() -> str:
    """Name the file for the fastest precision of the device: bf16 where it has it, else fp16 on a GPU, else fp32."""
    if has_bf16():
        return "zero1_bf16"
    return "zero1_fp16" if accelerator().device_name() != "cpu" and accelerator().is_fp16_supported() else "cpu"


def precision(config: Mapping[str, Any]) -> torch.dtype:
    """Return the precision that a configuration trains in."""
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        if config.get(name, {}).get("enabled"):
            return dtype
    return torch.float32


def sums_in_fp32(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration of bf16 sums gradients in fp32."""
    dtype = config.get("data_types", {}).get("grad_accum_dtype")
    return precision(config) == torch.bfloat16 and DTYPES.get(dtype) == torch.float32


def resume_invariants(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kind, order and precision in which DeepSpeed saves master weights and optimizer states.

    It loads only the same kind, such as "bfloat16, ZeRO-1 or 2". States of another order or precision it loads without
    a word, and each weight then gets the states of another.
    """
    stage = config.get("zero_optimization", {}).get("stage", 0)
    kind = f"{str(precision(config)).removeprefix('torch.')}, ZeRO-{'1 or 2' if stage in (1, 2) else stage}"
    layout = {f"{section}.{key}": bool(config.get(section, {}).get(key)) for section, key in STATE_LAYOUT}
    return {"deepspeed": kind, "deepspeed file": layout}


def _path(name: str) -> Path:
    path = Path(name) if name.endswith(".json") else FOLDER / f"{name}.json"
    with os_errors_as_input_errors(path, "read"):
        exists = path.is_file()
    if not exists:
        names = ", ".join(sorted(file.stem for file in FOLDER.glob("*.json")))
        raise InputError(f"deepspeed: no file {path}: name one of {names}, auto, or the path of a .json file")
    return path


def _problems(config: dict[str, Any], for_here: bool) -> Iterator[str]:
    for key in config:
        if key in RECIPE_OWNS:
            yield f"{key}: the recipe sets this ({RECIPE_OWNS[key]}); remove it here"
        elif key in REASONS:
            yield f"{key}: {REASONS[key]}; remove it"
        elif key not in KNOWN_KEYS:
            yield _unknown(key, KNOWN_KEYS)
        elif key in SECTIONS and not isinstance(config[key], dict):
            yield f"{key}: must be an object such as {SECTIONS[key]}, not {json.dumps(config[key])}"
    for key in sorted(config.get("data_types", {}).keys() - DATA_TYPES):
        yield _unknown(f"data_types.{key}", {f"data_types.{name}" for name in DATA_TYPES})
    for path in _paths_of_auto(config):
        yield f'{path}: "auto" works with the Hugging Face Trainer only; DeepSpeed misreads it: write the value'
    yield from _bad_values(config)
    if for_here and (refusal := _refusal(config)):
        # some of its messages name no key: find the one that gets the same refusal by itself
        key = next((key for key, value in config.items() if _refusal({key: value}) == refusal), "")
        yield "{}{}: DeepSpeed refuses it: {}".format(key or ", ".join(config), *refusal)
    without_zero = config.get("zero_optimization", {}).get("stage", 0) == 0
    dtype = config.get("data_types", {}).get("grad_accum_dtype")
    if without_zero and dtype and DTYPES[dtype] != precision(config):
        yield f"data_types.grad_accum_dtype: DeepSpeed sums in {dtype} only with ZeRO: use stage 1, or remove it"
    if precision(config) != torch.float16:
        return
    if for_here and not accelerator().is_fp16_supported():
        yield f"asks for fp16, which this {accelerator().device_name()} device does not support: use bf16 or cpu"
    if without_zero:
        yield "fp16 with ZeRO stage 0: DeepSpeed divides gradients by a scale the loss never got; use stage 1 or more"


def _unknown(key: str, known_keys: Set[str]) -> str:
    hint = did_you_mean(key, known_keys) or f"; known keys: {', '.join(sorted(known_keys))}"
    return f"{key}: unknown key, which DeepSpeed would silently ignore{hint}"


def _bad_values(config: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with values that this project reads too, also where it plans for other machines."""
    for key, value in config.get("zero_optimization", {}).items():
        if key == "stage" and (type(value) is not int or value not in range(4)):
            yield f"zero_optimization.stage: must be 0, 1, 2 or 3, not {json.dumps(value)}"
        elif key.endswith(("_size", "_threshold", "_distance")) and not isinstance(value, int | float):
            yield f"zero_optimization.{key}: must be a number, not {json.dumps(value)}"
    zero = config.get("zero_optimization", {})
    if zero.get("compute_grad_norm") is False:
        yield "zero_optimization.compute_grad_norm: false: without the norm a bad step is not found: leave this out"
    for part in ("optimizer", "param"):
        offload = zero.get(f"offload_{part}")
        if isinstance(offload, dict) and offload.get("device") == "nvme" and not offload.get("nvme_path"):
            yield f"zero_optimization.offload_{part}: the device nvme needs nvme_path, a folder on that disk"
    dtypes = {f"data_types.{key}": value for key, value in config.get("data_types", {}).items() if "dtype" in key}
    for key, dtype in {**dtypes, "communication_data_type": config.get("communication_data_type")}.items():
        if dtype is not None and str(dtype) not in DTYPES:
            yield f"{key}: must be one of fp32, fp16 and bf16, not {json.dumps(dtype)}"
        elif key == "data_types.param_dtype" and dtype and DTYPES[dtype] != precision(config):
            yield f"{key}: {dtype} contradicts the precision that bf16 and fp16 set: remove it"


def _refusal(config: dict[str, Any]) -> tuple[str, str] | None:
    """Return the rest of the key's name and the reason where DeepSpeed refuses a configuration."""
    from deepspeed.runtime.config import DeepSpeedConfig  # imported here: trainer.plan does without DeepSpeed

    try:
        DeepSpeedConfig({**config, "train_micro_batch_size_per_gpu": 1})
    except ValidationError as error:
        problem = error.errors()[0]
        reason = f"{problem['msg']}, not {json.dumps(problem['input'])}"
        reason = "unknown key" if problem["type"] == "extra_forbidden" else reason
        return ".".join(["", *map(str, problem["loc"])]), reason
    except Exception as error:  # of any class: what a wrong type makes it raise
        return "", " ".join(str(error).split())
    return None


def _paths_of_auto(value: Any, path: str = "") -> Iterator[str]:
    if value == "auto":
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths_of_auto(inner, f"{path}.{key}" if path else key)
