"""The seed of dropout."""

from deepsiam.data_prep.common.rng import keyed_rng


def dropout_seed(seed: int, micro_batch: int) -> int:
    """Return torch's seed for a global micro-batch, so that dropout, too, is the same on any cluster."""
    return int(keyed_rng("dropout", seed, micro_batch).integers(2**63))
