"""The torch modules and losses that methods are built of."""
