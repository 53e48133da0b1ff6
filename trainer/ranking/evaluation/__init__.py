"""Rank a split, measure, compare systems."""
