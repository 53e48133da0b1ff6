"""What everything that any source reads must be."""

from collections.abc import Iterable

from deepsiam.data_prep.sources.document import Bad, Document, Dropped

Record = Document | Bad | Dropped


def sound(records: Iterable[Record]) -> list[Record]:
    """Return the records, after checking that each is of one line and that every document has text in lines."""
    read = list(records)
    for record in read:
        assert isinstance(record, Record)
        if isinstance(record, Bad):
            assert (record.where + record.reason).isprintable()
            assert len(record.reason) < 200
        if isinstance(record, Document):
            assert record.segments
            assert set(record.headings) <= set(range(len(record.segments)))
            assert 0 <= record.context <= len(record.segments)
            for text in (record.id, *record.segments):
                assert text == " ".join(text.split()) != ""
                text.encode()
    return read
