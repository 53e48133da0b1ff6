"""What launchers tell the ranks that they start; read without torch, as also the arguments of commands are."""

# the variables for rank, number of ranks, local rank and local number of ranks; the first complete line is used
LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE"),  # deepspeed
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),  # torchrun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # Hydra: MPICH, Intel MPI, MVAPICH
    # srun, last because launchers above may run under it; a batch script has no SLURM_STEP_NUM_TASKS
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)
RANK_0_FIRST_SECONDS = 10  # for which other ranks let rank 0 print an error that all find
