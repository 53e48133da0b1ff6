"""Encode, index, search, mine: what a fine-tuned model finds."""
