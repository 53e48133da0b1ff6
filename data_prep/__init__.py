"""Turns raw text into shards and collections of tokens. Knows no torch; usable alone on a CPU fleet."""
