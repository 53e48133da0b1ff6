"""Read back the groups of a collection, or read a format to its end."""

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.format import Format


def choices(opened: Collection, split: str) -> list[tuple[str, dict[str, float]]]:
    """Return, for each group of a split, its query and its candidates with their labels, in order."""
    groups = opened.groups(split)
    found = []
    for i in range(len(groups)):
        query, candidates, labels = groups[i]
        texts = [opened.corpus.text(candidate) for candidate in candidates.tolist()]
        found.append((opened.queries.text(query), dict(zip(texts, labels.tolist(), strict=True))))
    return found


def exhaust(reader: Format) -> None:
    """Read everything that a format yields, as a build does, so that its errors are raised."""
    for _ in (*reader.corpus(), *reader.queries(), *(row for split in reader.splits() for row in reader.groups(split))):
        pass
