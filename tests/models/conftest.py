"""Hypothesis without its deadline, which a busy machine misses."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
