"""Figures: learning curves and what the papers show of their methods."""
