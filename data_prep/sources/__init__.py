"""Raw dumps -> documents: one file or folder for each kind of text."""
