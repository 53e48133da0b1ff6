"""DeepSpeed: the only room that imports it."""
