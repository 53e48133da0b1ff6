"""Pre-train an encoder: `deepspeed --module trainer.pretrain RECIPE [--resume] [key=value ...]`."""

from collections.abc import Sequence

from deepsiam.trainer.training.run.arguments import RanksParser, training_parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = parser().parse_intermixed_args(argv)
    from deepsiam.trainer.jobs.pretraining import build
    from deepsiam.trainer.training.recipe.schema import PretrainRecipe
    from deepsiam.trainer.training.run.command import run

    run("trainer.pretrain", arguments, PretrainRecipe, build)


def parser() -> RanksParser:
    """Return the parser of the command, as each rank reads it."""
    return training_parser(
        prog="deepsiam pretrain",
        description="Pre-train an encoder on shards of text, as a recipe describes.",
        example="deepsiam pretrain recipes/seed_small.yaml run=runs/seed data.shards=data/mine/shards",
        page="docs/recipes.md",
    )


if __name__ == "__main__":
    main()
