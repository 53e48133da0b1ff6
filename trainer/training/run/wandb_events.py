"""A run's events in Weights & Biases, beside TensorBoard: a run folder is one run there, also if resumed.

The monitor writes its events here, too, where the recipe names a project.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import whole_file
from deepsiam.trainer.training.recipe.schema import Recipe

ID = "wandb_id"  # in the run's folder


class WandbEvents:
    """Logs scalars to the project that a recipe names.

    WANDB_MODE=offline keeps them in RUN/wandb, from where `wandb sync` sends them.

    Raises:
        InputError: wandb cannot start, as without a login or the network.
    """

    def __init__(self, recipe: Recipe) -> None:
        import wandb

        file = recipe.run / ID
        if not file.exists():
            with whole_file(file) as opened:
                opened.write(secrets.token_hex(4).encode())
        try:
            self.run = wandb.init(
                project=recipe.wandb,
                id=file.read_text(),
                resume="allow",
                name=str(recipe.run),
                dir=recipe.run,
                config=recipe.model_dump(mode="json"),
                settings=wandb.Settings(silent=True, console="off"),
            )
        except wandb.errors.Error as error:
            raise InputError(
                f"wandb: {error}; with WANDB_MODE=offline, events are kept in {recipe.run}/wandb"
            ) from None
        self.run.define_metric("*", step_metric="step")  # a resumed run may repeat steps

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """Log the scalars of a step."""
        self.run.log({"step": step, **scalars})

    def close(self) -> None:
        """Write or send what is pending."""
        import wandb

        self.run.finish()
        wandb.teardown()  # waits for its process, which writes the events
