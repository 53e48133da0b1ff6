"""One's own code beside deepsiam: a module for each kind of thing that a recipe or a command can name."""
