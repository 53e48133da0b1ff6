"""Shared by all commands of data_prep and the trainer: errors, files, progress, workers, URLs."""
