"""What a model needs to know about a tokenizer."""

from dataclasses import dataclass

from deepsiam.data_prep.tokenizers.frame import Frames, Ids
from deepsiam.data_prep.tokenizers.prompt import Prompt


@dataclass(frozen=True)
class Vocabulary:
    """How many token ids there are, and which of them are the special tokens; None: the tokenizer has no such token.

    Raises:
        ValueError: a special id lies outside the vocabulary, or two special tokens share an id.
    """

    vocab_size: int
    pad: int  # may be another special token, too
    unk: int | None
    cls: int | None
    sep: int | None
    mask: int | None

    def __post_init__(self) -> None:
        """Refuse ids that no embedding table of `vocab_size` rows could hold."""
        other_ids = [i for i in (self.unk, self.cls, self.sep, self.mask) if i is not None]
        distinct = len(set(other_ids)) == len(other_ids) and self.pad != self.mask
        if not distinct or not all(0 <= i < self.vocab_size for i in (self.pad, *other_ids)):
            raise ValueError(f"special token ids must differ and lie below vocab_size: {self}")

    @property
    def frames(self) -> Frames:
        """What is put around a text and a pair: by default [CLS] before the first, and [SEP] after each."""
        cls, sep = ((token,) if token is not None else () for token in (self.cls, self.sep))
        return Frames((cls, sep), (cls, sep, sep))

    @property
    def text_frame(self) -> tuple[Ids, Ids]:
        """The ids before and after a text."""
        return self.frames.text

    @property
    def pair_frame(self) -> tuple[Ids, Ids, Ids]:
        """The ids before, between and after the two texts of a pair."""
        return self.frames.pair

    @property
    def special(self) -> tuple[int, ...]:
        """The ids that are never masked and never sampled as a random replacement."""
        roles = (self.pad, self.unk, self.cls, self.sep, self.mask)
        around = (token for part in (*self.text_frame, *self.pair_frame) for token in part)
        return tuple(dict.fromkeys(token for token in (*roles, *around) if token is not None))

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

    def prompt(self, text: str) -> Prompt:
        """Return what puts a prompt before texts; raise ValueError: the tokens' texts are not known."""
        raise ValueError(f"the prompt {text!r:.80} needs a tokenizer")
