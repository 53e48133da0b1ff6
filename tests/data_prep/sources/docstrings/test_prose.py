import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.sources.docstrings.prose import paragraphs


def rest(docstring: str) -> list[str]:
    return paragraphs("Does the thing.\n\n" + textwrap.dedent(docstring))[1]


def test_the_opening_paragraph_and_the_rest() -> None:
    docstring = """Reads a file that
        is long.

        It is read in pieces, and
        nothing is kept.
        """
    assert paragraphs(docstring) == ("Reads a file that is long.", ["It is read in pieces, and nothing is kept."])


def test_a_docstring_that_does_not_open_with_prose_has_no_opening() -> None:
    assert paragraphs("f(x) -> y\n\nReturns the y of an x.") == ("", ["Returns the y of an x."])
    assert paragraphs("Args:\n    x: The number of foxes to see.")[0] == ""
    assert paragraphs("x (`int`):\n    The number of foxes to see.") == ("", ["The number of foxes to see."])
    assert paragraphs("") == ("", [])


def test_google_style_keeps_descriptions_without_names_and_types() -> None:
    assert rest(
        """
        Args:
            x (int, optional): The number of foxes that
                are to be counted.
            y: Whether to count them at all.
            z (`torch.Tensor` of shape `(a, b)`, *optional*):
                The tensor that holds the foxes.
            n - how many of them there are
        Returns:
            float: The mean of the counts, or nan where
            there are none.
        Raises:
            ValueError: If there is no fox in x.

        Note:
            This is slow, but it is right.
        Returns: the count of the foxes
        """
    ) == [
        "The number of foxes that are to be counted.",
        "Whether to count them at all.",
        "The tensor that holds the foxes.",
        "how many of them there are.",
        "The mean of the counts, or nan where there are none.",
        "If there is no fox in x.",
        "This is slow, but it is right.",
        "the count of the foxes.",
    ]


def test_numpy_style_keeps_descriptions_and_notes() -> None:
    assert rest(
        """
        Parameters
        ----------
        x : (M, N) array_like
            The matrix that holds the foxes.
        axis : int, optional
            The axis along which they are counted.

            The last one is the default.

        Returns
        -------
        ndarray or scalar
            The number of foxes in x.

        See Also
        --------
        foxes : The function that makes the foxes.

        Notes
        -----
        The algorithm is as simple
        as it could be.

        References
        ----------
        .. [1] A. Fox, "The count of the foxes", in the Journal of Foxes.
        """
    ) == [
        "The matrix that holds the foxes.",
        "The axis along which they are counted.",
        "The last one is the default.",
        "The number of foxes in x.",
        "The algorithm is as simple as it could be.",
    ]


def test_sphinx_fields_lose_their_names_and_types() -> None:
    assert rest(
        """
        :param int x: the number of foxes
            that are to be counted
        :type x: int or what the user has
        :returns: the count of all of them
        :rtype: int
        @param y: whether it is to be done
        """
    ) == ["the number of foxes that are to be counted.", "the count of all of them.", "whether it is to be done."]


@pytest.mark.parametrize(
    "code",
    [">>> the = fox(of=the, dog=in_it)\n1 is the fox of it\n"]
    + ["```python\nthis is the code\n\nof the fox\n```\n"]
    + ["For example::\n\n    this is the code\n\n    of the fox\n"]
    + [".. code-block:: python\n\n    this is the code\n\n    of the fox\n"]
    + [".. math::\n    the sum of x over the y\n"]
    + ["====  =====\nthis  is the\n====  =====\nrow   of the\n====  =====\n"]
    + ["+----+----+\n| of | the|\n+----+----+\n", "$ run the command of the fox\n"]
    + ["# this is a comment in the code\n", ".. versionadded:: 3.1\n    This is for all of the foxes.\n"]
    + ["https://example.com/the/fox/of/the/dog\n"],
)
def test_code_tables_and_formulas_are_dropped(code: str) -> None:
    assert rest(f"The first of the foxes.\n\n{code}\nThe last of the foxes.") == [
        "The first of the foxes.",
        "The last of the foxes.",
    ]


def test_the_announcement_of_dropped_code_is_dropped_too() -> None:
    assert rest("It is a fox. For example:\n\n>>> fox\n1\n") == ["It is a fox."]
    assert rest("Use it as this one::\n\n    fox()\n\nThat is all of it.") == ["That is all of it."]
    assert rest("These are the foxes:\n\n- the red one of them\n") == ["These are the foxes:", "the red one of them."]


def test_markdown_quotations_and_fields_in_a_list() -> None:
    assert rest(
        """
        > [!WARNING]
        > This is something to be
        > warned of.

        Args:
            - x: the number of foxes to see
            - y (int): the number of dogs to see
        """
    ) == ["This is something to be warned of.", "the number of foxes to see.", "the number of dogs to see."]


def test_lists_notes_and_titles() -> None:
    assert rest(
        """
        A title
        =======

        - the first item which
          is long
        - the second item is short
        1. the third item is numbered

        .. note:: This is something
            to be noted.

        .. warning::

            This is something to be warned of.
        """
    ) == [
        "the first item which is long.",
        "the second item is short.",
        "the third item is numbered.",
        "This is something to be noted.",
        "This is something to be warned of.",
    ]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("See the :class:`~package.module.Fox` of it.", "See the Fox of it."),
        ("See the :ref:`guide <fox-guide>` of it.", "See the guide of it."),
        ("See the :py:func:`fox` of it.", "See the fox of it."),
        ("See the `guide <https://fox.org>`_ of it.", "See the guide of it."),
        ("See the [guide](https://fox.org) of it.", "See the guide of it."),
        ("See the [`Fox`] of it.", "See the Fox of it."),
        ("See the ``fox`` and `dog` of it [1]_.", "See the fox and dog of it."),
        ("See **all** of *the foxes* in it.", "See all of the foxes in it."),
        ("Pass it as \\*args to the <b>fox</b> and <EOS> tokens.", "Pass it as *args to the fox and <EOS> tokens."),
        ("It is 2*x of the y*z that is given.", "It is 2*x of the y*z that is given."),
        ("See https://fox.org/a_b for all of it.", "See for all of it."),
    ],
)
def test_inline_markup_is_removed_and_its_text_kept(marked: str, plain: str) -> None:
    assert rest(marked) == [plain]


@given(st.text(st.sampled_from("ab .:-=`*>\n#()[]|@$\\_<1"), max_size=200))
def test_any_text_can_be_read(docstring: str) -> None:
    opening, others = paragraphs(docstring)
    assert all(text == " ".join(text.split()) and text for text in [*others, opening or "x"])
