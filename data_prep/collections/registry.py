"""The formats of labelled texts by name."""

from data_prep.collections.format import Format
from data_prep.collections.formats.beir import Beir
from data_prep.collections.formats.msmarco import MsMarco
from data_prep.collections.formats.tevatron import Tevatron
from data_prep.collections.formats.trec import Trec

FORMATS: dict[str, type[Format]] = {
    "beir": Beir,
    "msmarco": MsMarco,
    "tevatron": Tevatron,
    "trec": Trec,
}
