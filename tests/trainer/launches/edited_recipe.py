"""Pre-train with a recipe that another rank than 0 reads after an edit: KEY=VALUE, then what the command is given."""

import os
import sys

from deepsiam.trainer import pretrain
from deepsiam.trainer.training.run import command

if __name__ == "__main__":
    read, (edit, *given) = command.load_recipe, [word for word in sys.argv[1:] if "--local_rank" not in word]
    if os.environ["RANK"] != "0":
        command.load_recipe = lambda kind, path, overrides: read(kind, path, [*overrides, edit])
    pretrain.main(given)
