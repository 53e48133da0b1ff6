"""Checkpoints: saved, verified, resumed, loaded, exported."""
