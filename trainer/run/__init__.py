"""A run of the trainer: its command, job and loop, and its supervision."""
