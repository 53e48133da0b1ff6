"""The formats of labelled texts by name."""

from deepsiam.data_prep.collections.format import Format
from deepsiam.registry import Registry

FORMATS: Registry[type[Format]] = Registry(
    "format",
    {
        "answer_selection": "deepsiam.data_prep.collections.formats.answer_selection.AnswerSelection",
        "beir": "deepsiam.data_prep.collections.formats.beir.Beir",
        "bright": "deepsiam.data_prep.collections.formats.bright.Bright",
        "convai2": "deepsiam.data_prep.collections.formats.convai2.ConvAI2",
        "documents": "deepsiam.data_prep.collections.formats.documents.Documents",
        "dpr": "deepsiam.data_prep.collections.formats.dpr.Dpr",
        "dstc7": "deepsiam.data_prep.collections.formats.dstc7.Dstc7",
        "flagembedding": "deepsiam.data_prep.collections.formats.flagembedding.FlagEmbedding",
        "mind": "deepsiam.data_prep.collections.formats.mind.Mind",
        "msmarco": "deepsiam.data_prep.collections.formats.msmarco.MsMarco",
        "nli": "deepsiam.data_prep.collections.formats.nli.Nli",
        "pairs": "deepsiam.data_prep.collections.formats.pairs.Pairs",
        "reddit_dialogues": "deepsiam.data_prep.collections.formats.reddit_dialogues.RedditDialogues",
        "tevatron": "deepsiam.data_prep.collections.formats.tevatron.Tevatron",
        "trec": "deepsiam.data_prep.collections.formats.trec.Trec",
        "triples": "deepsiam.data_prep.collections.formats.triples.Triples",
        "ubuntu": "deepsiam.data_prep.collections.formats.ubuntu.Ubuntu",
        "wikipedia_search": "deepsiam.data_prep.collections.formats.wikipedia_search.WikipediaSearch",
    },
)
