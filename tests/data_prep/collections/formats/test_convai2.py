"""ConvAI2: personas and turns so far, twenty candidates, files without candidates."""

from tests.data_prep.collections.formats.contract import FormatContract

REPLIES = [f"reply {number} ." for number in range(19)]
OTHERS = "|".join(REPLIES)
LIKES_PARTS = ["your persona: i like foxes .", "your persona: i like dogs .", "hi , how are you ?"]
LIKES = " ".join(LIKES_PARTS)
FILE = "valid_self_original.txt"


class TestConvAI2(FormatContract):
    name = "convai2"
    files = {
        FILE: f"""\
1 your persona: i like foxes .
2 your persona: i like dogs .
3 hi , how are you ?\ti am fine .\t\t{OTHERS}|i am fine .
4 what do you like ?\tdogs !\t\tdogs !|{OTHERS}
1 your persona: i run .
2 __SILENCE__\thello .\t\t{OTHERS}|hello .
""",
        "train_none_original_no_cands.txt": "1 hi .\thello .\n2 bye .\thello .\n1 hi .\tyes .\n",
    }
    found = {
        "dev": [
            (LIKES, dict.fromkeys(REPLIES, 0.0) | {"i am fine .": 1.0}),
            (f"{LIKES} i am fine . what do you like ?", {"dogs !": 1.0} | dict.fromkeys(REPLIES, 0.0)),
            ("your persona: i run . __SILENCE__", dict.fromkeys(REPLIES, 0.0) | {"hello .": 1.0}),
        ],
        # without candidates or personas
        "train": [("hi .", {"hello .": 1}), ("hi . hello . bye .", {"hello .": 1}), ("hi .", {"yes .": 1})],
    }
    counts = (23, 5)  # two groups share one query
    parts = [LIKES_PARTS, [*LIKES_PARTS, "i am fine .", "what do you like ?"], ["your persona: i run .", "__SILENCE__"]]
    refused = [
        (FILE, "hello\tyou", ":7: does not begin with its number"),
        (FILE, "4 a\tb\t\tb", ":7: numbered 4, after 2"),
        (FILE, "3 just a turn", ":7: neither a line of a persona nor a turn"),
        (FILE, "3 a\tb\tb", ":7: 3 columns, expected turn TAB reply TAB TAB candidates"),
        (FILE, "3 a\tb\t\tc|d", ":7: the reply is not among the candidates"),
        (FILE, "3 a\tb\t\tb||d", ":7: 'candidate' is empty"),
        (FILE, "3 a\t\t\tb", ":7: 'reply' is empty"),
        (FILE, "3 \tb\t\tb", ":7: 'turn' is empty"),
    ]
