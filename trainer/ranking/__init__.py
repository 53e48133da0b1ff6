"""Rank with a trained model: search, evaluate, index, export, mine."""

import os

# Threads that wait by spinning take the processor from each other wherever another program wants it too: beside one
# busy process, encoding on two cores falls to a tenth. OpenMP reads this when torch is loaded. The ranks of a launcher
# keep its default: they have the machine to themselves.
if not any(name in os.environ for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_NUM_TASKS")):
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
