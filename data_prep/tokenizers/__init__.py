"""Load, train and apply a tokenizer.json."""
