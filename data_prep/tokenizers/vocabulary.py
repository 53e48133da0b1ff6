"""What a model needs to know about a tokenizer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Vocabulary:
    """How many token ids there are, and which of them are the special tokens.

    Raises:
        ValueError: a special id lies outside the vocabulary, or two special tokens share an id.
    """

    vocab_size: int
    pad: int
    unk: int
    cls: int
    sep: int
    mask: int

    def __post_init__(self) -> None:
        """Refuse ids that no embedding table of `vocab_size` rows could hold."""
        if len(set(self.special)) < len(self.special) or not all(0 <= i < self.vocab_size for i in self.special):
            raise ValueError(f"special token ids must differ and lie below vocab_size: {self}")

    @property
    def special(self) -> tuple[int, ...]:
        """The ids that are never masked and never sampled as a random replacement."""
        return (self.pad, self.unk, self.cls, self.sep, self.mask)

    @property
    def punctuation(self) -> tuple[int, ...]:
        """The ids of the tokens that consist only of punctuation: none if the tokens' texts are not known."""
        return ()

    @property
    def stop_words(self) -> tuple[int, ...]:
        """The ids of the tokens that are stop words or punctuation: none if the tokens' texts are not known."""
        return ()

    @property
    def words(self) -> tuple[int, ...]:
        """The ids of the tokens that are whole words: all but the special ones if the tokens' texts are not known."""
        return tuple(sorted({*range(self.vocab_size)} - {*self.special}))
