"""Train: recipes, the order of data, the DeepSpeed engine, checkpoints, the loop."""
