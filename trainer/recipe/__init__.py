"""Recipes: their keys, the YAML they are read from, the learning-rate schedule."""
