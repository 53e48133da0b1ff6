"""English stop words, which pages do not mark and queries of tokens leave out."""

import re

# Lucene's, which BM25 leaves out too
STOP_WORD = re.compile(
    "a|an|and|are|as|at|be|but|by|for|if|in|into|is|it|no|not|of|on|or|such|that|the|their|then|there|these|they|this|to|"
    "was|will|with",
    re.IGNORECASE,
)
