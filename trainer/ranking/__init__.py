"""Rank with a trained model: search, evaluate, index, export, mine."""
