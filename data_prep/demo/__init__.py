"""The demo's data: shards and a collection from docstrings."""
