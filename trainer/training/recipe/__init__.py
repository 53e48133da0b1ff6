"""Recipes: their keys, their YAML files, the learning-rate schedule."""
