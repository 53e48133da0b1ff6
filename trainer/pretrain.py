"""Pre-train an encoder: `deepspeed --module trainer.pretrain RECIPE [--resume] [key=value ...]`."""

from collections.abc import Sequence

from deepsiam.trainer.training.run.arguments import training_arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = training_arguments(
        argv,
        prog="trainer.pretrain",
        description="Pre-train an encoder on shards of text, as a recipe describes.",
        example="deepspeed --module trainer.pretrain recipes/seed_small.yaml run=runs/seed "
        "data.shards=data/mine/shards",
        page="docs/recipes.md",
    )
    from deepsiam.trainer.jobs.pretraining import build
    from deepsiam.trainer.training.recipe.schema import PretrainRecipe
    from deepsiam.trainer.training.run.command import run

    run("trainer.pretrain", arguments, PretrainRecipe, build)


if __name__ == "__main__":
    main()
