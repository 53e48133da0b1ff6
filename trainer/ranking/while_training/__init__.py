"""Ranking during training: refreshed negatives, the probe."""
