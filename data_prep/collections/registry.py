"""The formats of labelled texts by name."""

from data_prep.collections.format import Format
from data_prep.collections.formats.beir import Beir

FORMATS: dict[str, type[Format]] = {
    "beir": Beir,
}
