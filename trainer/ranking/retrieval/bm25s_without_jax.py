"""bm25s, imported without JAX, which takes three quarters of a GPU's memory as bm25s tries its top-k; not used here."""

import sys

if "jax" in sys.modules:
    import bm25s
else:
    sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        import bm25s
    finally:
        del sys.modules["jax"]

__all__ = ["bm25s"]
