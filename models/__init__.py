"""Methods and matching architectures: numpy and PyTorch only; no files, no processes, no DeepSpeed."""
