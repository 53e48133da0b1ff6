"""The vectors of an index as a Parquet table, which vector databases read: `id`, a text, and `vector`.

A vector is a fixed-size list of the index's numbers, float32 or float16; rows are in the order of the collection.
"""

from __future__ import annotations

from pathlib import Path

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import whole_file
from deepsiam.data_prep.common.progress import track
from deepsiam.trainer.ranking.indexes.dense import DenseIndex
from deepsiam.trainer.ranking.indexes.registry import open_index

ROWS = 16_384  # of a row group, which is in memory: some 50 MB at a width of 768


def export_vectors(directory: Path, out: Path) -> str:
    """Write the vectors of all documents to the file `out`, completely or not at all; return a line that says how many.

    Raises:
        InputError: the folder is no index of one vector per text, or is damaged; pyarrow is not installed.
    """
    require("dumps", "pyarrow", feature="a Parquet file")
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    index = open_index(directory)
    if not isinstance(index, DenseIndex):
        kind = index.folder.manifest["kind"]
        raise InputError(f"{directory}: an index of kind {kind}: only one vector per text makes a table of vectors")
    width, dtype = index.vectors.width, pa.from_numpy_dtype(index.vectors.dtype)
    schema = pa.schema([("id", pa.string()), ("vector", pa.list_(dtype, width))])
    ids, rows = index.collection.corpus.ids, index.documents.rows
    with whole_file(out) as file, ParquetWriter(file, schema, use_dictionary=False) as table:
        for start in track(range(0, len(rows), ROWS), "write", "groups"):
            part = rows[start : start + ROWS]
            numbers = pa.array(index.vectors[part].reshape(-1), dtype)
            names = [ids[i] for i in range(start, start + len(part))]
            table.write(pa.record_batch([names, pa.FixedSizeListArray.from_arrays(numbers, width)], schema=schema))
    return f"{out}: {len(rows):,} vectors of {width} x {dtype}, with their ids"
