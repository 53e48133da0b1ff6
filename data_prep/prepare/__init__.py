"""The passes of `python -m data_prep SOURCE INPUT...`, from raw files to shards."""
