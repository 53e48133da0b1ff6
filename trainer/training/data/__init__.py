"""The order of data: lanes, mixing, cursor, and the sources of examples."""
