"""Encode texts and search among them: what a model finds."""
