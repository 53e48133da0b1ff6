"""A file for each kind of ranker."""
