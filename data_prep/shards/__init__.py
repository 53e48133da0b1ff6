"""WebDataset tars of token ids and the manifest that lists them: write, read, verify, describe, export."""
