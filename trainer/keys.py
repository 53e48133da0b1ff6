"""Print the keys of a recipe, with types, defaults and meaning: `deepsiam keys METHOD`, `deepsiam keys SECTION`."""

from collections.abc import Sequence

from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.parser import Parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    name = parser().parse_args(argv).name
    with exit_on_input_error("trainer.keys"):
        from deepsiam.trainer.training.recipe.keys import describe

        print(describe(name))


def parser() -> Parser:
    """Return the parser of the command."""
    parser = Parser(
        prog="deepsiam keys",
        description="Print the keys of a method or of a section of recipes: types, defaults, meaning.",
        example="deepsiam keys optimizer",
        page="docs/recipes.md",
    )
    parser.add_argument("name", metavar="NAME", help="a method such as seed, a section such as data, or a key")
    return parser


if __name__ == "__main__":
    main()
