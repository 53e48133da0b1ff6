"""Bounds of what a configuration may ask for: building a larger model would fill the memory, or never end."""

from collections.abc import Iterable, Mapping
from typing import Any

from transformers import PreTrainedConfig

MOST_LAYERS, MOST_LABELS, LARGEST = 1000, 100_000, 1 << 24  # LARGEST: of any other whole number
MOST_NUMBERS = 1 << 36  # in the weights of a trunk, about: 256 GiB in fp32
UNBOUNDED = ("theta",)  # ends the keys of whole numbers that are no sizes: rope_theta
WIDTHS = ("vocab_size", "max_position_embeddings", "type_vocab_size")  # of tables, each with a row of hidden_size


def check_sizes(settings: Iterable[tuple[str, Any]], where: str) -> None:
    """Raise ValueError, beginning with `where`, for a whole number that is out of bounds; look into dictionaries."""
    for name, value in settings:
        if isinstance(value, Mapping):
            check_sizes(((f"{name}.{key}", inner) for key, inner in value.items()), where)
        elif isinstance(value, int) and not str(name).endswith(UNBOUNDED):
            largest = MOST_LAYERS if "layers" in str(name) else MOST_LABELS if name == "num_labels" else LARGEST
            if abs(value) > largest:
                # Python refuses to print a number of thousands of digits
                number = f"{value:,}" if abs(value) < 1 << 64 else "a number of more than 64 bits"
                raise ValueError(f"{where}{name} is {number}, and at most {largest:,} is possible")


def check_weights(config: PreTrainedConfig) -> None:
    """Raise ValueError for a trunk whose weights, by BERT's count, would be more than `MOST_NUMBERS`."""

    def size(name: str, default: int = 0) -> int:
        value = getattr(config, name, None)
        return value if isinstance(value, int) else default

    width, inner = size("hidden_size"), size("intermediate_size", 4 * size("hidden_size"))
    layers = size("num_hidden_layers") * width * (4 * width + 2 * inner)  # four products of attention, two of the block
    numbers = layers + width * sum(size(name) for name in WIDTHS)
    if numbers > MOST_NUMBERS:
        raise ValueError(f"its weights would be {numbers:,} numbers, and at most {MOST_NUMBERS:,} are possible")
