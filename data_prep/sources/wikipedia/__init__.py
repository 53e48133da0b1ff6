"""Wikipedia's XML dumps, or WikiExtractor's output -> articles."""
