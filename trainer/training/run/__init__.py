"""A run: its command, job, loop, faults and monitor."""
