"""DeepSpeed: the only package that imports it."""
