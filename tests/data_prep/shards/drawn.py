"""Token documents drawn by hypothesis."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from deepsiam.data_prep.shards.document import TokenDocument

IDS = np.dtype(np.uint16)
SEGMENTS = st.lists(st.lists(st.integers(0, 75), max_size=5).map(lambda ids: np.array(ids, IDS)), max_size=4)


@st.composite
def documents(draw: st.DrawFn) -> TokenDocument:
    segments = draw(SEGMENTS)
    headings = draw(st.sets(st.integers(0, len(segments) - 1))) if segments else set()
    return TokenDocument(
        segments,
        draw(st.text(max_size=5)),
        draw(st.sampled_from(["", "book", "thread"])),
        tuple(sorted(headings)),
        draw(st.integers(0, len(segments))),
        draw(st.integers(0, (1 << 64) - 1)),
    )


def plain(document: TokenDocument) -> tuple[Any, ...]:
    """Return all attributes in comparable form, with the group that a reader sees."""
    segments = [segment.tolist() for segment in document.segments]
    group = document.group or document.id
    return document.id, group, segments, document.headings, document.context, document.key
