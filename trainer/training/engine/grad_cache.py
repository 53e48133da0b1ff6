"""GradCache (Gao et al., 2021): losses of the vectors of the whole optimizer step, in the memory of one micro-batch.

The engine calls it within a step, in place of the plain forward pass of each micro-batch.

Negatives of the step make a query's loss depend on the documents of every micro-batch of every rank, and a regulariser
such as FLOPS depends on the sum of all vectors; but on the weights they depend only through the vectors of texts. So
the texts are encoded without a graph, what the losses need of other micro-batches is gathered from all ranks, and the
loss is differentiated with respect to the vectors. Then every micro-batch is re-encoded, with the same dropout and a
graph: the sum of its vectors times these gradients has the same gradient as the step's loss.

The first micro-batch has its graph from the start and is encoded once: a rank with one micro-batch does no extra work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from deepsiam.models.arrays import to_device
from deepsiam.models.vectors import Vectors

if TYPE_CHECKING:
    from deepsiam.models.matching.dual_encoder import DualEncoder

Tensors = Mapping[str, Tensor]


class Documents(NamedTuple):
    """The documents of all micro-batches of all ranks, in the order of the global micro-batches."""

    vectors: Tensor  # fp32 [D, m, H]
    mask: Tensor  # bool [D, m]
    keys: Tensor  # int64 [D, k], equal for equal texts; 0 where a text has fewer
    places: list[slice]  # of the documents of each micro-batch of this rank


def objectives(
    model: DualEncoder,
    batches: Sequence[Tensors],
    encode: Sequence[Callable[[], Tensors]],
    objective: Callable[[Tensors], Tensor],
) -> Iterator[tuple[Tensors, Tensor]]:
    """Yield for each of this rank's micro-batches its summed losses and a scalar to differentiate; all ranks call.

    The gradients of all ranks' scalars add up to the gradient of the step's objective. Call backward on each scalar
    before taking the next, so that the graph of only one micro-batch exists at a time.

    `batches` are the arrays of `DualEncoderBatcher` as tensors, as many on every rank; `encode` encodes each, like
    `DualEncoder.forward` with `represent`, to the same vectors at each call. The step's objective is the sum over all
    micro-batches of what `objective` makes of their summed losses.
    """
    with torch.no_grad():  # the first pass: vectors alone, so that all micro-batches of the step fit
        later = [encode_batch() for encode_batch in encode[1:]]
    first_texts = encode[0]()
    losses, gradients = differentiate(model, batches, [first_texts, *later], objective)
    del later  # before the second pass: one micro-batch's memory at a time
    for i, (query_gradients, document_gradients) in enumerate(gradients):
        # the second pass: same seed, so the same vectors, now with a graph. Their gradients are constants here, so the
        # scalar's gradient is the chain rule's product, though the scalar itself means nothing
        texts = encode[i]() if i else first_texts
        scalar = (texts["query_vectors"] * query_gradients).sum()
        yield losses[i], scalar + (texts["document_vectors"] * document_gradients).sum()


def differentiate(
    model: DualEncoder, batches: Sequence[Tensors], encoded: Sequence[Tensors], objective: Callable[[Tensors], Tensor]
) -> tuple[list[Tensors], list[tuple[Tensor, Tensor]]]:
    """Return each micro-batch's summed losses, and the gradients of the step's objective for its vectors.

    `encoded` has the vectors of each micro-batch. The gradients are with respect to the queries' and the documents'
    vectors. Only the scores of one micro-batch's queries exist at a time.
    """
    # leaves of a new graph, which ends at the vectors: what made them is the second pass's
    leaves = [_leaves(texts) for texts in encoded]
    sums = _step_sums(model, leaves)
    step = gather(encoded, [batch["document_keys"] for batch in batches]) if model.keys.compares_step else None
    losses: list[Tensors] = []
    query_gradients: list[Tensor] = []
    document_gradients: list[Tensor] = []  # of the documents that each micro-batch's queries are compared with
    for i, (batch, (queries, documents)) in enumerate(zip(batches, leaves, strict=True)):
        compared, arrays = documents, batch
        if step is not None:
            compared, documents, arrays = _among(step, i, batch)
        terms = {**model.losses(queries, compared, arrays), **model.regularisers(queries, documents, sums)}
        gradients = torch.autograd.grad(objective(terms), [queries.vectors, compared.vectors])
        query_gradients.append(gradients[0])
        if step is None or not document_gradients:
            document_gradients.append(gradients[1])
        else:
            document_gradients[0] += gradients[1]  # every micro-batch is compared with the same documents
        losses.append({term: loss.detach() for term, loss in terms.items()})
    if step is not None:
        (all_documents,) = document_gradients
        dist.all_reduce(all_documents)  # the queries of every rank pull at a document
        # copies, so that the gradients of the other ranks' documents can be freed
        widths = [documents.vectors.shape[1] for _, documents in leaves]
        places = zip(step.places, widths, strict=True)  # each without the padding to the widest of the step
        document_gradients = [all_documents[place, :width].clone() for place, width in places]
    return losses, list(zip(query_gradients, document_gradients, strict=True))


def _leaves(texts: Tensors) -> tuple[Vectors, Vectors]:
    queries, documents = (
        Vectors(texts[f"{side}_vectors"].detach().requires_grad_(), texts[f"{side}_real"])
        for side in ("query", "document")
    )
    return queries, documents


def _step_sums(model: DualEncoder, encoded: Sequence[tuple[Vectors, Vectors]]) -> dict[str, Tensor]:
    """Sum what the model's regularisers need of all texts over micro-batches and ranks; all ranks call."""
    with torch.no_grad():
        parts = [model.step_sums(queries, documents) for queries, documents in encoded]
        sums = {name: torch.stack([part[name] for part in parts]).sum(dim=0) for name in parts[0]}
    for total in sums.values():
        dist.all_reduce(total)
    return sums


def _among(step: Documents, number: int, batch: Tensors) -> tuple[Vectors, Vectors, Tensors]:
    """Return the step's documents, micro-batch `number`'s part of them, and its arrays with columns of the step."""
    place, candidates = step.places[number], batch["candidates"]
    columns = torch.where(candidates >= 0, candidates + place.start, candidates)  # -1 stays: no candidate
    documents = Vectors(step.vectors.requires_grad_(), step.mask)
    # a part of the same leaf, so that the regularisers' gradients join those of the losses
    part = Vectors(documents.vectors[place], documents.mask[place])
    return documents, part, {**batch, "candidates": columns, "document_keys": step.keys}


def gather(encoded: Sequence[Tensors], keys: Sequence[Tensor]) -> Documents:
    """Gather the documents of every micro-batch of every rank; all ranks call.

    Micro-batch j of rank r has the number j * ranks + r, so the documents have the same order for any number of ranks.
    Micro-batches may differ in the number of documents and in the numbers of vectors and keys per document.
    """
    device, keys = keys[0].device, [of_batch.view(len(of_batch), -1) for of_batch in keys]
    sizes = [[*texts["document_vectors"].shape[:2], k.shape[1]] for texts, k in zip(encoded, keys, strict=True)]
    by_batch = np.array(_all_gather(to_device(torch.tensor(sizes), device)).tolist())  # those of all ranks
    numbers, (height, width, key_width) = by_batch[:, 0], by_batch.max(axis=0).tolist()
    # where the documents are among the padded ones, found on the host: a boolean mask would wait for the device
    indices = to_device(torch.from_numpy(np.flatnonzero(np.arange(height) < numbers[:, None])), device)

    def gathered(rows: Sequence[Tensor], *shape: int) -> Tensor:
        """[D_j, ...] of each micro-batch -> [D, *shape]."""
        padded = rows[0].new_zeros(len(rows), height, *shape)  # all_gather wants one shape on all ranks
        for place, row in zip(padded, rows, strict=True):
            place[tuple(map(slice, row.shape))] = row
        return _all_gather(padded).flatten(0, 1)[indices]

    ends = numbers.cumsum().tolist()
    starts = [0, *ends]
    places = [slice(starts[i], ends[i]) for i in range(dist.get_rank(), len(ends), dist.get_world_size())]
    vectors = [texts["document_vectors"].detach() for texts in encoded]
    return Documents(
        gathered(vectors, width, *vectors[0].shape[2:]),
        gathered([texts["document_real"] for texts in encoded], width),
        gathered(keys, key_width),
        places,
    )


def _all_gather(rows: Tensor) -> Tensor:
    parts = rows.new_empty(dist.get_world_size(), *rows.shape)
    dist.all_gather(list(parts), rows)
    return parts.transpose(0, 1).flatten(0, 1)  # [rank, number] -> the order of the global micro-batches
