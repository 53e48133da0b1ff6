"""Folders that others published: read, compared with what training reads, refused."""
