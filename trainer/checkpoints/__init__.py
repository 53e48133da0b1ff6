"""Checkpoints: save, verify, resume, load, export."""
