"""The share of [UNK] among the tokens of a data set: what its tokenizer cannot spell, and so no model learns."""

import sys
from collections.abc import Iterable

import numpy as np

SAMPLE = 1 << 20  # tokens that are counted
TOLERATED = 0.01  # published encoders reach 0.001 in their own languages


def describe(tokens: Iterable[np.ndarray], unk: int | None, name: object) -> str:
    """Return a line with the share of `unk` among the first SAMPLE tokens; warn on stderr where it exceeds TOLERATED.

    No more of the arrays are read than are counted. `unk` is None where the tokenizer can spell everything.
    """
    unknown = total = 0
    for ids in tokens:
        counted = ids[: SAMPLE - total]
        unknown += 0 if unk is None else int((counted == unk).sum())
        total += len(counted)
        if total == SAMPLE:
            break
    share = unknown / max(total, 1)
    if share > TOLERATED:
        print(
            f"warning: {name}: {100 * share:.2f} % of the tokens are unknown ([UNK]), text that no model can learn "
            "from: use a tokenizer for this language, a larger --vocab-size, or --tokenizer-kind bpe",
            file=sys.stderr,
        )
    return f"unknown tokens: {100 * share:.2f} % of {total:,} in a sample"
