"""What an optimizer step differentiates, by the source of its micro-batches."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from deepsiam.models.config import MethodConfig


class Objective(NamedTuple):
    """How the summed losses of a micro-batch become a scalar to differentiate."""

    method: MethodConfig  # its keys tell the model which losses to compute
    weights: Mapping[str, float]
    targets: Mapping[str, int]  # of every loss term, in all micro-batches of the step with the same losses

    def scalar(self, sums: Mapping[str, Tensor]) -> Any:
        """Return the weighted sum of the losses, each divided by its targets."""
        # max: a step may have no targets for a term
        return sum(weight * (sums[term] / max(1, self.targets[term])) for term, weight in self.weights.items())


def objectives(
    methods: Sequence[MethodConfig], step: int, micro_batches: Sequence[int], targets: Sequence[Mapping[str, int]]
) -> list[Objective]:
    """Return the objective of every source in the step after `step` finished ones.

    `methods`, `micro_batches` and `targets` are those of each source; the counts are those of all ranks in this step.
    Sources with the same losses are pooled: each loss is the mean over all their targets. Sources with other losses
    are weighted by their share of the micro-batches, because targets of different losses cannot be compared.
    """
    weights_by_source = [method.weights_at(step) for method in methods]
    step_objectives = []
    for method, weights in zip(methods, weights_by_source, strict=True):
        alike = [i for i, other_weights in enumerate(weights_by_source) if other_weights == weights]
        share = sum(micro_batches[i] for i in alike) / sum(micro_batches)
        counts = {term: sum(targets[i][term] for i in alike) for term in weights}
        step_objectives.append(Objective(method, {term: share * weight for term, weight in weights.items()}, counts))
    return step_objectives
