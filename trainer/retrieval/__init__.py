"""Embed, search, rank, measure."""
