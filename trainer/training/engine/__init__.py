"""DeepSpeed: the only package that imports it."""

import logging

# on a host without GPUs it warns as it is imported, on every command; whether GPUs are there that torch does not see,
# device.py checks
logging.getLogger("DeepSpeed").addFilter(lambda record: "Setting accelerator to CPU" not in record.getMessage())
