"""A small folder in BEIR's layout."""

import json
from pathlib import Path

CORPUS = [
    {"_id": "a", "title": "Foxes", "text": "The quick brown fox."},
    {"_id": "b", "title": "", "text": ""},
    {"_id": "c", "text": "Dogs sleep."},
]
QUERIES = [{"_id": "1", "text": "fox"}, {"_id": "2", "text": "dog sleeps"}]
HEADER = "query-id\tcorpus-id\tscore\n"


def write_beir(folder: Path) -> Path:
    """Write three documents, two queries and the split test; return the folder."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, records in {"corpus": CORPUS, "queries": QUERIES}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "qrels" / "test.tsv").write_text(HEADER + "1\ta\t1\n2\tc\t2\n2\tb\t0\n")
    return folder
