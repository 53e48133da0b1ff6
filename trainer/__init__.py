"""The trainer: recipes, deterministic lanes of data, the DeepSpeed engine, the loop, checkpoints, evaluation."""

from deepsiam.trainer.training.run import parents as parents  # notes the launcher, before a command's slow imports
