"""The sources of `python -m data_prep`, by the names of its commands."""

from deepsiam.data_prep.sources.bookcorpus import BOOKCORPUS, BOOKCORPUS_SENTENCES
from deepsiam.data_prep.sources.cleaned import CLEANED
from deepsiam.data_prep.sources.docstrings.python import PYTHON
from deepsiam.data_prep.sources.pairs import PAIRS
from deepsiam.data_prep.sources.plain_text import JSONL, TEXT
from deepsiam.data_prep.sources.reddit.utterances import REDDIT
from deepsiam.data_prep.sources.webdataset import WEBDATASET
from deepsiam.data_prep.sources.wikipedia.articles import WIKIPEDIA
from deepsiam.data_prep.sources.wikipedia.links import WIKIPEDIA_LINKS

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
