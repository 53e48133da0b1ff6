"""Learn a WordPiece vocabulary by merging the most frequent pair of pieces, always in the same order.

The trainer of the `tokenizers` library gives another vocabulary in each run (the random order of its hash maps decides
how pieces with the same spelling but different merges are counted), and a shard must be reproducible byte for byte.
Byte pair encoding: Sennrich, Haddow, Birch (2016), algorithm 1, with incremental counts for speed.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

Pair = tuple[str, str]


def learn(word_counts: Mapping[str, int], alphabet: list[str], size: int) -> list[str]:
    """Return at most `size` pieces in the order learned; `##x` continues a word.

    The first pieces are the alphabet, and its continuations that occur. Words with a character outside the alphabet are
    ignored. Ties are broken by spelling; a pair that occurs once is not merged.
    """
    known_characters = set(alphabet)
    spelled = {word: count for word, count in word_counts.items() if known_characters.issuperset(word)}
    words = [[word[0], *("##" + character for character in word[1:])] for word in sorted(spelled)]
    counts = [spelled[word] for word in sorted(spelled)]
    continuing = {piece for word in words for piece in word[1:]}
    vocabulary = dict.fromkeys([*alphabet, *sorted(continuing)])

    pair_counts: Counter[Pair] = Counter()
    places: defaultdict[Pair, set[int]] = defaultdict(set)  # words that contain or contained a pair
    for index, word in enumerate(words):
        for pair in zip(word, word[1:], strict=False):
            pair_counts[pair] += counts[index]
            places[pair].add(index)
    queue = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(queue)

    while queue and len(vocabulary) < size:
        count, pair = heapq.heappop(queue)
        if -count != pair_counts[pair]:  # out of date: an entry with the right count is in the queue
            continue
        if -count < 2:
            break
        merged_piece = pair[0] + pair[1].removeprefix("##")
        vocabulary[merged_piece] = None
        changes: Counter[Pair] = Counter()
        for index in places.pop(pair):
            for new_pair in _merge(words[index], pair, merged_piece, counts[index], changes):
                places[new_pair].add(index)
        for changed_pair, change in changes.items():
            pair_counts[changed_pair] += change
            if change and pair_counts[changed_pair] > 0:
                heapq.heappush(queue, (-pair_counts[changed_pair], changed_pair))
    return list(vocabulary)


def _merge(word: list[str], pair: Pair, merged_piece: str, count: int, changes: Counter[Pair]) -> Iterator[Pair]:
    """Merge a pair in a word that occurs `count` times, add to the changes of all counts, and yield the new pairs."""
    head, tail = pair
    for position in range(len(word) - 1):
        if word[position : position + 2] != [head, tail]:  # beyond the end of a word that became shorter, too
            continue
        changes[pair] -= count
        if position:
            left_piece = word[position - 1]
            changes[left_piece, head] -= count
            changes[left_piece, merged_piece] += count
            yield left_piece, merged_piece
        if position + 2 < len(word):
            right_piece = word[position + 2]
            changes[tail, right_piece] -= count
            changes[merged_piece, right_piece] += count
            yield merged_piece, right_piece
        word[position : position + 2] = [merged_piece]
