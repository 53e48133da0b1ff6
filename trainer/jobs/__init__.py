"""What a recipe becomes: the job of a training, which the training commands and the doctor build, and its trace."""
