"""What the groups of a collection say."""

from data_prep.collections.collection import Collection
from data_prep.collections.format import Format


def choices(opened: Collection, split: str) -> list[tuple[str, dict[str, float]]]:
    """The query of each group of a split, and the labels of its candidates in order."""
    groups = opened.groups(split)
    found = []
    for i in range(len(groups)):
        query, candidates, labels = groups[i]
        texts = [opened.corpus.text(candidate) for candidate in candidates.tolist()]
        found.append((opened.queries.text(query), dict(zip(texts, labels.tolist(), strict=True))))
    return found


def exhaust(reader: Format) -> None:
    """Read all that a format gives, as a build does; raises what it raises."""
    for _ in (*reader.corpus(), *reader.queries(), *(row for split in reader.splits() for row in reader.groups(split))):
        pass
