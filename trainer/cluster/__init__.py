"""Machines: the hosts of a run, and planning for others."""
