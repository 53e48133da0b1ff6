"""Labelled texts for fine-tuning and evaluation."""
