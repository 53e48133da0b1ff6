"""The sources of `python -m data_prep`, by the names of its commands."""

from deepsiam.data_prep.sources.source import Source
from deepsiam.registry import Registry

SOURCES: Registry[Source] = Registry(
    "source",
    {
        "wikipedia": "deepsiam.data_prep.sources.wikipedia.articles.WIKIPEDIA",
        "wikipedia-links": "deepsiam.data_prep.sources.wikipedia.links.WIKIPEDIA_LINKS",
        "bookcorpus": "deepsiam.data_prep.sources.bookcorpus.BOOKCORPUS",
        "bookcorpus-sentences": "deepsiam.data_prep.sources.bookcorpus.BOOKCORPUS_SENTENCES",
        "reddit": "deepsiam.data_prep.sources.reddit.utterances.REDDIT",
        "text": "deepsiam.data_prep.sources.plain_text.TEXT",
        "jsonl": "deepsiam.data_prep.sources.plain_text.JSONL",
        "webdataset": "deepsiam.data_prep.sources.webdataset.WEBDATASET",
        "python": "deepsiam.data_prep.sources.docstrings.python.PYTHON",
        "pairs": "deepsiam.data_prep.sources.pairs.PAIRS",
        "cleaned": "deepsiam.data_prep.sources.cleaned.CLEANED",
    },
)
