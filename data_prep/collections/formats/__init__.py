"""One file for every published format of labelled texts."""
