"""What options of the commands may be: a table without torch, which the commands read before they import it."""

from __future__ import annotations

PRECISIONS = ("fp32", "bf16")
PRECISION_HELP = "what models compute in (bf16 on a GPU that has it, else fp32)"
DIMENSIONS_HELP = "rank by the first N numbers of the vectors of models of one vector per text"
# of all kinds of index; each kind says which it has
DTYPES = ("float32", "float16", "int8", "binary", "residual1", "residual2", "residual4")
APPROXIMATIONS = ("ivf", "pq", "hnsw", "centroids")
