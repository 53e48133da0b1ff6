"""The formats of labelled texts by name."""

from deepsiam.data_prep.collections.format import Format
from deepsiam.data_prep.collections.formats.answer_selection import AnswerSelection
from deepsiam.data_prep.collections.formats.beir import Beir
from deepsiam.data_prep.collections.formats.bright import Bright
from deepsiam.data_prep.collections.formats.convai2 import ConvAI2
from deepsiam.data_prep.collections.formats.dpr import Dpr
from deepsiam.data_prep.collections.formats.dstc7 import Dstc7
from deepsiam.data_prep.collections.formats.flagembedding import FlagEmbedding
from deepsiam.data_prep.collections.formats.mind import Mind
from deepsiam.data_prep.collections.formats.msmarco import MsMarco
from deepsiam.data_prep.collections.formats.nli import Nli
from deepsiam.data_prep.collections.formats.pairs import Pairs
from deepsiam.data_prep.collections.formats.reddit_dialogues import RedditDialogues
from deepsiam.data_prep.collections.formats.tevatron import Tevatron
from deepsiam.data_prep.collections.formats.trec import Trec
from deepsiam.data_prep.collections.formats.triples import Triples
from deepsiam.data_prep.collections.formats.ubuntu import Ubuntu
from deepsiam.data_prep.collections.formats.wikipedia_search import WikipediaSearch

FORMATS: dict[str, type[Format]] = {
    "answer_selection": AnswerSelection,
    "beir": Beir,
    "bright": Bright,
    "convai2": ConvAI2,
    "dpr": Dpr,
    "dstc7": Dstc7,
    "flagembedding": FlagEmbedding,
    "mind": Mind,
    "msmarco": MsMarco,
    "nli": Nli,
    "pairs": Pairs,
    "reddit_dialogues": RedditDialogues,
    "tevatron": Tevatron,
    "trec": Trec,
    "triples": Triples,
    "ubuntu": Ubuntu,
    "wikipedia_search": WikipediaSearch,
}
