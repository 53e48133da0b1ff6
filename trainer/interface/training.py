"""`deepsiam.pretrain` and `deepsiam.finetune`: train a recipe from Python."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from deepsiam.data_prep.common.errors import InputError, StoppedError
from deepsiam.trainer.interface import launch

if TYPE_CHECKING:
    from deepsiam.trainer.training.recipe.schema import AnyRecipe
    from deepsiam.trainer.training.run.job import Job


def pretrain(
    recipe: str | os.PathLike[str] | Mapping[str, Any],
    /,
    *,
    gpus: int | None = None,
    resume: bool = False,
    **keys: Any,
) -> Path:
    """Pre-train an encoder, as the command `deepsiam pretrain` does.

    Args:
        recipe: a YAML file, the name of a packaged recipe such as `seed_small`, or the keys of a recipe.
        gpus: None: train in this process, as one rank. Otherwise train so many ranks, one on each GPU, or all on the
            CPU where there is none, as processes of DeepSpeed's launcher.
        resume: continue the run from its newest whole checkpoint, if it has one.
        keys: keys that replace those of the recipe: a section is a dict and changes the keys that it has, as under
            `extends`, so `optimizer={"lr": 1e-4}` changes one key.

    Returns:
        The folder of the run, trained to its last step.

    Raises:
        InputError: bad input, in the words of the command; a rank that failed, in its last line. Where a stop was
            requested, by Ctrl-C or the file RUN/stop, it is a StoppedError, and the run is saved.
    """
    _before_deepspeed()
    from deepsiam.trainer.jobs.pretraining import build
    from deepsiam.trainer.training.recipe.schema import PretrainRecipe

    return _train("pretrain", PretrainRecipe, build, recipe, gpus, resume, keys)


def finetune(
    recipe: str | os.PathLike[str] | Mapping[str, Any],
    /,
    *,
    gpus: int | None = None,
    resume: bool = False,
    **keys: Any,
) -> Path:
    """Fine-tune a matching model, as the command `deepsiam finetune` does; the rest is as in `pretrain`."""
    _before_deepspeed()
    from deepsiam.trainer.jobs.finetuning import build
    from deepsiam.trainer.training.recipe.schema import FinetuneRecipe

    return _train("finetune", FinetuneRecipe, build, recipe, gpus, resume, keys)


def _before_deepspeed() -> None:
    from deepsiam.trainer.training.engine.device import settle_on_cpu

    settle_on_cpu()


def _train(
    verb: str,
    kind: type[AnyRecipe],
    build: Callable[[AnyRecipe, Path | None], Job],
    recipe: str | os.PathLike[str] | Mapping[str, Any],
    gpus: int | None,
    resume: bool,
    keys: Mapping[str, Any],
) -> Path:
    from deepsiam.trainer.training.recipe import yaml_file
    from deepsiam.trainer.training.run.command import train_here

    if gpus is not None and (type(gpus) is not int or gpus < 1):
        raise InputError(f"gpus: give a number of ranks, or None to train in this process, not {gpus!r}")
    if isinstance(recipe, Mapping):
        values, where = _plain(recipe), "the recipe"
    elif isinstance(recipe, str | os.PathLike):
        values, where = yaml_file.read(Path(recipe)), os.fspath(recipe)
    else:
        raise InputError(f"{recipe!r} is no recipe: give a file, the name of a packaged one, or a dict of keys")
    values = yaml_file.extended(values, _plain(keys))
    yaml_file.import_named_in(values, where)
    checked = yaml_file.build(kind, values, where)
    if gpus is None:
        train_here(checked, build, resume=resume)
    else:
        _launch(verb, values, gpus, resume)
    return checked.run


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as a YAML file has them: paths are texts, tuples are lists."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(values), default=str))
    return plain


def _launch(verb: str, values: Mapping[str, Any], gpus: int, resume: bool) -> None:
    """Train by DeepSpeed's launcher in a child process, and print what it prints; raise InputError if it fails."""
    from deepsiam.trainer.training.engine.rendezvous import free_port
    from deepsiam.trainer.training.run.stop import RESUME

    with TemporaryDirectory() as folder:
        recipe = Path(folder, "recipe.yaml")
        recipe.write_text(json.dumps(values))  # JSON is YAML
        words = [str(recipe), f"--gpus={gpus}", *["--resume"] * resume, "--", f"--master_port={free_port()}"]
        command = launch.command(verb, words)
        with Popen(command, stdout=PIPE, stderr=STDOUT, text=True, errors="replace") as child:
            assert child.stdout
            is_interrupted, said = False, ""
            try:
                said = _pass_on(child.stdout, verb)
            except KeyboardInterrupt:  # reaches the ranks, too: they save, and then end
                is_interrupted = True
                _pass_on(child.stdout, verb)
    if is_interrupted or child.returncode == RESUME:
        raise StoppedError(f"{values['run']}: stopped on request, saved: train it again with resume to continue")
    if child.returncode:
        raise InputError(said or f"the ranks have ended with code {child.returncode}; what they printed says why")


def _pass_on(lines: Iterable[str], verb: str) -> str:
    """Print lines; return the last that is an error of a rank, without the name of the command."""
    said = ""
    for line in lines:
        print(line, end="", flush=True)
        name, _, message = line.partition(": ")
        said = message if name == f"trainer.{verb}" else said
    return said
