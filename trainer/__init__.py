"""The trainer: recipes, deterministic lanes of data, the DeepSpeed engine, the loop, checkpoints, evaluation."""
