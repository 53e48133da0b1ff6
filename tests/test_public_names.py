"""`import deepsiam` is light, and its public names are what they say."""

import subprocess
import sys

import pytest

import deepsiam
from tests import toy

HEAVY = ("torch", "transformers", "deepspeed", "numpy", "pydantic", "tokenizers", "importlib.metadata")


def test_the_import_loads_no_library() -> None:
    code = "import sys; before = {*sys.modules}; import deepsiam; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], cwd=toy.ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "deepsiam" in loaded
    assert not [name for name in loaded if name.startswith(HEAVY)]
    assert len(loaded) < 30


def test_an_error_can_be_caught_without_torch() -> None:
    code = "import sys, deepsiam; deepsiam.InputError; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=toy.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_every_public_name_is_there() -> None:
    assert {*deepsiam.__all__} <= {*dir(deepsiam)}
    for name in deepsiam.__all__:
        assert getattr(deepsiam, name).__doc__
    with pytest.raises(AttributeError, match="module 'deepsiam' has no attribute 'lod'"):
        deepsiam.lod  # type: ignore[attr-defined]  # noqa: B018
