"""Find which columns of a table of pairs or triples are the query, the document, its negatives and the label.

Names decide, not the order: sentence-transformers takes columns in their order, so a table with sorted columns (anchor,
negative, positive) would train on the negatives as positives. Columns with other names are taken in their order. Text
without a header is refused, since its first line would be lost.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from deepsiam.data_prep.collections.files.table import CSV, TSV, table_columns, table_kind
from deepsiam.data_prep.collections.format import Where
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.pairs import LABELS

QUERY, DOCUMENT, NEGATIVE = "query", "document", "negative"
NAMES = {  # in lower case
    QUERY: "query|question|anchor|premise|(sentence|text|question)_?[1a]",
    DOCUMENT: "document|positive|pos|passage|answer|hypothesis|(sentence|text|question)_?[2b]",
    NEGATIVE: r"(hard_)?neg(ative)?(_?\d+)?",
}
IGNORED = {"", "id", "idx", "index", "__index_level_0__"}


class TextColumns(NamedTuple):
    """The names of columns."""

    texts: Sequence[str]  # query, document, negatives
    label: str | None
    by_name: bool  # whether the columns were found by name, not by order

    def check_keys(self, keys: Iterable[str], where: Where) -> None:
        """Raise InputError if a row has a label or a negative that is no column: the first object lacked its key."""
        for key in keys:
            if key not in (*self.texts, self.label) and (key.lower() in LABELS or _role(key) == NEGATIVE):
                lacks = "which the file's first object has not: write it in every object, or in none"
                raise InputError(f"{where}: has {key!r:.40}, {lacks}")


def text_columns(path: Path, *, negatives: bool) -> TextColumns:
    """Find the columns of a table; raise InputError, naming them, if they are not those of pairs or triples."""
    names = table_columns(path)
    labels = [name for name in names if name.lower() in LABELS]
    texts = [name for name in names if name.lower() not in LABELS | IGNORED]
    full_order = [QUERY, DOCUMENT, *[NEGATIVE] * (max(len(texts) - 2, 1) if negatives else 0)]
    roles = [_role(name) for name in texts]
    by_name = sorted(map(str, roles)) == sorted(full_order)
    has_names = any(roles) or table_kind(path) not in (TSV, CSV)
    in_order = (
        has_names
        and len(roles) == len(full_order)
        and all(role in (None, name) for role, name in zip(roles, full_order, strict=True))
    )
    if (by_name or in_order) and len(labels) <= 1:
        if by_name:
            texts.sort(key=lambda name: full_order.index(str(_role(name))))
        return TextColumns(texts, next(iter(labels), None), by_name)
    advice = f"{', '.join(full_order[:3])}{', more negatives' * negatives}, and score or label where there is one"
    columns = ", ".join(f"{name:.40}" for name in names) or "none"
    hint = "; such tables are of the format triples" if NEGATIVE in roles and not negatives else ""
    raise InputError(f"{path}: its columns are {columns}; name them {advice}{hint}")


def _role(name: str) -> str | None:
    return next((role for role, pattern in NAMES.items() if re.fullmatch(pattern, name.lower())), None)
