"""Checkpoints: save, verify, resume, load, start from."""
