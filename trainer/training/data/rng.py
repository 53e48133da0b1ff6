"""The seed of dropout: a function of the run's seed and the micro-batch's number, not of the rank.

The loop draws one for each micro-batch of a step; GradCache uses it twice, to repeat the dropout.
"""

from deepsiam.data_prep.common.rng import keyed_rng


def dropout_seed(seed: int, micro_batch: int) -> int:
    """Return torch's seed for a global micro-batch, so that dropout, too, is the same on any cluster."""
    return int(keyed_rng("dropout", seed, micro_batch).integers(2**63))
