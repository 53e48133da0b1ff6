"""The kinds of text that `python -m data_prep` knows, by the names of its commands."""

from data_prep.bookcorpus import BOOKCORPUS, BOOKCORPUS_SENTENCES
from data_prep.reddit import REDDIT
from data_prep.text import JSONL, TEXT
from data_prep.wikipedia import WIKIPEDIA

SOURCES = {
    "wikipedia": WIKIPEDIA,
    "bookcorpus": BOOKCORPUS,
    "bookcorpus-sentences": BOOKCORPUS_SENTENCES,
    "reddit": REDDIT,
    "text": TEXT,
    "jsonl": JSONL,
}
