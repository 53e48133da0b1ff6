"""Small shards written and read back, and ways to damage them."""

from pathlib import Path

from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

Texts = list[list[list[int]]]
DOCUMENTS: Texts = [[[n % 70, 1, 2], [], [3]] if n % 5 else [] for n in range(40)]


def write(directory: Path, tok: Tokenizer, documents: Texts, chunk_tokens: int = 20, per_shard: int = 2) -> Manifest:
    writer = ShardWriter(directory, tok, chunk_tokens, per_shard)
    for number, document in enumerate(documents):
        writer.add(f"d{number}", document)
    return writer.close()


def read_back(manifest: Manifest) -> tuple[list[str], Texts]:
    """Return the ids and the token ids of all documents."""
    documents = [
        document for index in range(len(manifest.shards)) for document in Shard.open(manifest, index).documents()
    ]
    names = [document.id for document in documents]
    return names, [[segment.tolist() for segment in document.segments] for document in documents]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-512])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[700] ^= 1
    path.write_bytes(content)
