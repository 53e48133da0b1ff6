"""Queries that a language model writes for documents: prompts, writers, checks and the collection."""
