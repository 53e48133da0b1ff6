"""English from the docstrings of installed Python packages."""
