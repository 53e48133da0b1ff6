"""MIND: histories and impressions in three releases, new users, news in several folders."""

from pathlib import Path

import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.formats.mind import Mind
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.choices import choices
from tests.data_prep.collections.formats.contract import FormatContract, lines
from tests.data_prep.collections.raw_formats import write_mind

NEWS = {
    "N1": ("Foxes jump", "Quick brown ones."),
    "N2": ('The "lazy" dog', ""),
    "N3": ("Rivers", "They flow."),
    "N4": ("Trees", "They do not."),
}
BEHAVIORS = [
    "1\tU1\t11/15/2019 10:22:32 AM\tN1 N2\tN3-1 N4-0",
    "2\tU1\t11/15/2019 10:25:32 AM\tN1 N2\tN4-1 N3-0 N1-1",
    "3\tU2\t11/15/2019 11:22:32 AM\t\tN3-0 N2-1",
]
BEHAVED, KNOWN = "MINDsmall_train/behaviors.tsv", "MINDsmall_train/news.tsv"


class TestMind(FormatContract):
    name = "mind"
    files = {
        BEHAVED: lines(*BEHAVIORS),
        KNOWN: lines(*((name, "sports", "golf", *texts, "url", "[]", "[]") for name, texts in NEWS.items())),
    }
    given = ["MINDsmall_train"]
    found = {
        "train": [
            ('Foxes jump The "lazy" dog', {"Rivers They flow.": 1.0, "Trees They do not.": 0.0}),
            (
                'Foxes jump The "lazy" dog',
                {"Trees They do not.": 1.0, "Rivers They flow.": 0.0, "Foxes jump Quick brown ones.": 1.0},
            ),
            ("", {"Rivers They flow.": 0.0, 'The "lazy" dog': 1.0}),
        ]
    }
    refused = [
        (BEHAVED, "4\tU1\tnow\tN1\tN3 N4", ":4: 'N3': the labels -1 and -0 are missing: .*the test set"),
        (BEHAVED, "Impression ID\tUser ID\tTime\tHistory\tImpressions", ":4: 'Impressions': .*: a header"),
        (BEHAVED, "4\tU1\tnow\tN1\tN3-1 N4-2", ":4: 'N4-2': label is not -1 or -0"),
        (BEHAVED, "4\tU1\tnow\tN1\tN3-1 -0", ":4: '-0': label is not -1 or -0"),
        (BEHAVED, "4\tU1\tnow\tN1\t", ":4: an impression that shows no news"),
        (BEHAVED, "4\tU1", ":4: 2 columns, expected 5"),
        (BEHAVED, "4\tU1\tnow\tN1\tN3-1\tN4-0", ":4: 6 columns, expected 5"),
        (BEHAVED, "4\tU1\tnow\tN9\tN3-1", ":4: 'N9' of the history is not in any news.tsv$"),
        (BEHAVED, "4\tU1\tnow\tN01\tN3-1", ":4: 'N01' of the history is not in any news.tsv; 'N1' is: write"),
        (BEHAVED, "4\tU1\tnow\tN1\tN9-1", ":4: 'N9' is not among the documents"),
        (KNOWN, "N5\tsports\tgolf\ttitle", ":5: 4 columns, expected 7 or 8"),
        (KNOWN, "N5\tsports\tgolf\t \tabstract\turl\t[]\t[]", ":5: 'title' is empty"),
        (KNOWN, "\tsports\tgolf\ttitle\tabstract\turl\t[]\t[]", ":5: id '' is empty"),
        (KNOWN, "news_id\tcategory\tsubcategory\ttitle\tabstract\turl\ta\tb", ":5: a header"),
        (KNOWN, "News ID\tCategory\tSubCategory\tTitle\tAbstract\tURL\ta\tb", ":5: a header"),
        (KNOWN, "N1\tsports\tgolf\tOther\t\turl\t[]\t[]", ":5: id 'N1' has another text on an earlier line"),
        ({KNOWN: None}, "train: has no news.tsv"),
    ]


def write(
    folder: Path, behaviors: list[str] = BEHAVIORS, news: tuple[str, ...] = tuple(NEWS), entities: int = 2
) -> Path:
    return write_mind(folder, behaviors, {name: NEWS[name] for name in news}, entities)


def test_a_query_is_the_clicked_titles(tmp_path: Path, small: Tokenizer) -> None:
    folder = write(tmp_path / "MINDsmall_train")
    assert [text.parts for text in Mind([folder]).queries()] == [["Foxes jump", 'The "lazy" dog']] * 2 + [[""]]
    opened = build("mind", [folder], tmp_path / "out", small)
    assert len(opened.queries) == 2  # all impressions with one history share one query
    assert [len(opened.queries.parts(number)) for number in range(2)] == [2, 1]
    assert len(opened.queries.tokens(1)) == 0


@pytest.mark.parametrize(
    "behaviors",
    [
        [line.split("\t", 1)[1] for line in BEHAVIORS],
        [
            "U1\tN1 N2\tN3#TAB#N4#TAB#11/13/2019 8:36:57 AM",
            "U1\tN1 N2\tN4 N1#TAB#N3#TAB#11/13/2019 8:36:57 AM",
            "U2\t\tN2#TAB#N3#TAB#11/13/2019 8:36:57 AM",
        ],
    ],
    ids=["without the impression", "clicked and others apart"],
)
def test_the_older_releases(tmp_path: Path, small: Tokenizer, behaviors: list[str]) -> None:
    opened = build("mind", [write(tmp_path / "train", behaviors, entities=1)], tmp_path / "out", small)
    assert choices(opened, "train") == TestMind.found["train"]


def test_the_folders_share_their_news(tmp_path: Path, small: Tokenizer) -> None:
    folders = [
        write(tmp_path / "MINDsmall_train", BEHAVIORS[:1]),
        write(tmp_path / "MINDsmall_dev", ["1\tU1\tnow\tN3\tN4-1"], ("N3", "N4")),
    ]
    opened = build("mind", folders, tmp_path / "out", small)
    assert opened.splits() == ["dev", "train"]
    assert len(opened.corpus) == 4
    assert choices(opened, "dev") == [("Rivers", {"Trees They do not.": 1.0})]
    renamed = [Path(f"mine={folders[1]}")]
    assert build("mind", renamed, tmp_path / "other", small).splits() == ["mine"]
    (folders[1] / "news.tsv").write_text("N1\ta\tb\tOther\t\turl\t[]\t[]\n")
    with pytest.raises(InputError, match="dev/news.tsv:1: id 'N1' has another text on an earlier line"):
        build("mind", folders, tmp_path / "out", small)
    with pytest.raises(InputError, match="news.tsv: has no behaviors.tsv; name the folders"):
        Mind([folders[0] / "news.tsv"])
