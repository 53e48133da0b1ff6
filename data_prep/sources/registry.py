"""The sources of `python -m data_prep`, by the names of its commands."""

from data_prep.sources.bookcorpus import BOOKCORPUS, BOOKCORPUS_SENTENCES
from data_prep.sources.cleaned import CLEANED
from data_prep.sources.docstrings.python import PYTHON
from data_prep.sources.pairs import PAIRS
from data_prep.sources.plain_text import JSONL, TEXT
from data_prep.sources.reddit.utterances import REDDIT
from data_prep.sources.webdataset import WEBDATASET
from data_prep.sources.wikipedia.articles import WIKIPEDIA
from data_prep.sources.wikipedia.links import WIKIPEDIA_LINKS

SOURCES = {
    "wikipedia": WIKIPEDIA,
    "wikipedia-links": WIKIPEDIA_LINKS,
    "bookcorpus": BOOKCORPUS,
    "bookcorpus-sentences": BOOKCORPUS_SENTENCES,
    "reddit": REDDIT,
    "text": TEXT,
    "jsonl": JSONL,
    "webdataset": WEBDATASET,
    "python": PYTHON,
    "pairs": PAIRS,
    "cleaned": CLEANED,
}
