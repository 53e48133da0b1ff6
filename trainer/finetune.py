"""Fine-tune a matching model: `deepspeed --module trainer.finetune RECIPE [--resume] [key=value ...]`."""

from collections.abc import Sequence

from deepsiam.trainer.training.run.arguments import RanksParser, training_parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = parser().parse_intermixed_args(argv)
    from deepsiam.trainer.jobs.finetuning import build
    from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
    from deepsiam.trainer.training.run.command import run

    run("trainer.finetune", arguments, FinetuneRecipe, build)


def parser() -> RanksParser:
    """Return the parser of the command, as each rank reads it."""
    return training_parser(
        prog="deepsiam finetune",
        description="Fine-tune a model that matches queries and documents on a collection, as a recipe describes.",
        example="deepsiam finetune recipes/siamese_small.yaml run=runs/mine init_from=runs/seed "
        "data.collection=data/mine",
        page="docs/finetuning.md",
    )


if __name__ == "__main__":
    main()
