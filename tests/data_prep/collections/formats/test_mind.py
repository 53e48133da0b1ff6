"""MIND: histories and impressions in three releases, new users, news in several folders."""

from tests.data_prep.collections.formats.contract import FormatContract, lines

NEWS = {
    "N1": ("Foxes jump", "Quick brown ones."),
    "N2": ('The "lazy" dog', ""),
    "N3": ("Rivers", "They flow."),
    "N4": ("Trees", "They do not."),
}
BEHAVIORS = [
    "1\tU1\t11/15/2019 10:22:32 AM\tN1 N2\tN3-1 N4-0",
    "2\tU1\t11/15/2019 10:25:32 AM\tN1 N2\tN4-1 N1-1 N3-0",
    "3\tU2\t11/15/2019 11:22:32 AM\t\tN2-1 N3-0",
]
BEHAVED, KNOWN, OTHER_NEWS = "MINDsmall_train/behaviors.tsv", "MINDsmall_train/news.tsv", "MINDsmall_dev/news.tsv"


def news(*names: str, entities: int = 2) -> str:
    return lines(*((name, "sports", "golf", *NEWS[name], "url", *["[]"] * entities) for name in names))


class TestMind(FormatContract):
    name = "mind"
    files = {BEHAVED: lines(*BEHAVIORS), KNOWN: news(*NEWS)}
    given = ["MINDsmall_train"]
    found = {
        "train": [
            ('Foxes jump The "lazy" dog', {"Rivers They flow.": 1.0, "Trees They do not.": 0.0}),
            (
                'Foxes jump The "lazy" dog',
                {"Trees They do not.": 1.0, "Foxes jump Quick brown ones.": 1.0, "Rivers They flow.": 0.0},
            ),
            ("", {'The "lazy" dog': 1.0, "Rivers They flow.": 0.0}),
        ]
    }
    counts = (4, 2)  # all impressions with one history share one query
    parts = [["Foxes jump", 'The "lazy" dog']] * 2 + [[""]]  # the clicked titles
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


class TestSeveralFolders(FormatContract):  # share their news; the older releases have other columns
    name = "mind"
    files = {
        **TestMind.files,
        "MINDsmall_dev/behaviors.tsv": "1\tU1\tnow\tN3\tN4-1\n",
        OTHER_NEWS: news("N3", "N4"),
        "older/behaviors.tsv": lines(*(line.split("\t", 1)[1] for line in BEHAVIORS)),  # without the impression
        "older/news.tsv": news(*NEWS, entities=1),
        "oldest/behaviors.tsv": """\
U1\tN1 N2\tN3#TAB#N4#TAB#11/13/2019 8:36:57 AM
U1\tN1 N2\tN4 N1#TAB#N3#TAB#11/13/2019 8:36:57 AM
U2\t\tN2#TAB#N3#TAB#11/13/2019 8:36:57 AM
""",
        "oldest/news.tsv": news(*NEWS),
    }
    given = ["MINDsmall_train", "MINDsmall_dev", "older=older", "oldest=oldest"]
    found = {
        "dev": [("Rivers", {"Trees They do not.": 1.0})],
        **dict.fromkeys(("train", "older", "oldest"), TestMind.found["train"]),
    }
    counts = (4, 3)
    refused = [
        (
            {OTHER_NEWS: "N1\ta\tb\tOther\t\turl\t[]\t[]\n"},
            "dev/news.tsv:1: id 'N1' has another text on an earlier line",
        ),
        ([KNOWN], "news.tsv: has no behaviors.tsv; name the folders"),
    ]
