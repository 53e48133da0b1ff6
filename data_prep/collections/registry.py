"""The formats of labelled texts by name."""

from data_prep.collections.format import Format
from data_prep.collections.formats.beir import Beir
from data_prep.collections.formats.convai2 import ConvAI2
from data_prep.collections.formats.dstc7 import Dstc7
from data_prep.collections.formats.mind import Mind
from data_prep.collections.formats.msmarco import MsMarco
from data_prep.collections.formats.reddit_dialogues import RedditDialogues
from data_prep.collections.formats.tevatron import Tevatron
from data_prep.collections.formats.trec import Trec
from data_prep.collections.formats.ubuntu import Ubuntu
from data_prep.collections.formats.wikipedia_search import WikipediaSearch

FORMATS: dict[str, type[Format]] = {
    "beir": Beir,
    "convai2": ConvAI2,
    "dstc7": Dstc7,
    "mind": Mind,
    "msmarco": MsMarco,
    "reddit_dialogues": RedditDialogues,
    "tevatron": Tevatron,
    "trec": Trec,
    "ubuntu": Ubuntu,
    "wikipedia_search": WikipediaSearch,
}
