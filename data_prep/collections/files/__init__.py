"""Read the files of published data sets: found by name, tables, tab-separated lines, JSON arrays."""
