"""Turn raw text into shards and collections of tokens. Does not need torch, so it runs alone on a CPU fleet."""
