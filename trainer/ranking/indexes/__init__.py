"""Indexes: what is prepared of a collection's documents, in a folder, to find them again; a file for each kind."""
