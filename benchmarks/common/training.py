"""Start training from a benchmark through the launcher, as a user does."""

import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.data.lanes import START, Lanes, examples_of
from deepsiam.trainer.training.data.open_shards import shard_data
from deepsiam.trainer.training.engine.world import World, join
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.ports import free_port

SAMPLED = 4  # lanes of each source whose first window is used to estimate the tokens of an example


def train(module: str, recipe: str, run: Path, settings: Mapping[str, object], ranks: int = 2) -> None:
    """Train `recipe` on some ranks into `run`: resume a stopped run, and do nothing for a finished one.

    Where the training fails, exit with its code, after its own message.
    """
    overrides = [f"{key}={value}" for key, value in {"run": run, **settings}.items()]
    run_or_exit([*launcher(ranks), "--module", module, recipe, "--resume", *overrides])


def launcher(ranks: int) -> list[str]:
    """Return DeepSpeed's command line for some ranks of this machine, on a port of their own: others may be running."""
    deepspeed = Path(sys.executable).with_name("deepspeed")
    return [str(deepspeed), "-q", "--num_accelerators", str(ranks), "--master_port", str(free_port())]


class Trainings:
    """The trainings of a benchmark that this process knows to be finished: asked for again, they take no time."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.finished: set[Path] = set()

    def train(self, module: str, recipe: str, run: Path, settings: Mapping[str, object]) -> Path:
        """Train a run, as `train` does, unless it is finished; return its folder."""
        if run not in self.finished:
            train(module, recipe, run, settings, self.ranks)
            self.finished.add(run)
        return run

    def pretrain(
        self, recipe: str, run: Path, settings: Mapping[str, object], tokens: int, every: int | None = None
    ) -> Path:
        """Pre-train until `tokens` tokens of text are read, with a checkpoint at the end or every so many steps."""
        overrides = [f"{key}={value}" for key, value in settings.items()]
        steps = math.ceil(tokens / tokens_a_step(load(PretrainRecipe, Path(recipe), overrides)))
        return self.train(
            "trainer.pretrain", recipe, run, {**settings, "steps": steps, "checkpoint.every": every or steps}
        )


def tokens_a_step(recipe: PretrainRecipe) -> float:
    """Estimate the tokens of source text that an optimizer step reads, in the same way for all methods.

    A token counts once each time its document is split into examples, however many examples contain it as input, target
    or neighbour; a document that yields no example does not count.
    """
    sources = shard_data(recipe).order.sources
    weights = {name: source.weight for name, source in recipe.data.sources.items()}
    an_example = sum(weights[name] * _tokens_an_example(name, lanes) for name, lanes in sources.items())
    return an_example / sum(weights.values()) * recipe.batch.size


def _tokens_an_example(name: str, lanes: Lanes) -> float:
    """Return the tokens of the documents in some windows, divided by the number of examples that they are cut into."""
    tokens = examples = 0
    for lane in range(min(SAMPLED, lanes.lanes)):
        _, _, items = next(lanes.windows(lane, START, []))
        documents = [document for _, document in items]
        examples += len(examples_of(lanes.batcher, documents))
        used = {number for numbers in lanes.batcher.origins(documents) for number in numbers}
        tokens += sum(len(segment) for number in used for segment in documents[number].segments)
    if not examples:
        raise InputError(f"data: the first documents of {name or 'the shards'} give no example; prepare more")
    return tokens / examples


def file_name(label: str) -> str:
    """Turn the label of a run in a table or figure into its folder's name."""
    return label.lower().replace(", ", "-").replace(" ", "-")


def run_or_exit(command: Sequence[str]) -> None:
    """Run a command to its end; where it fails, exit with its code, after its own message."""
    code = subprocess.run(command).returncode
    if code:
        raise SystemExit(code)


def join_alone() -> None:
    """Make this process the only rank."""
    os.environ["MASTER_PORT"] = str(free_port())  # another training may be running
    world = World.from_environment()
    if world.size > 1:
        raise InputError("start this benchmark without the deepspeed launcher: it measures one rank")
    join(world)
