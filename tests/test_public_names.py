"""`import deepsiam` is light, and its public names are what they say."""

import subprocess
import sys

import pytest

import deepsiam
from tests import toy

HEAVY = ("torch", "transformers", "deepspeed", "numpy", "pydantic", "tokenizers", "importlib.metadata")
USES = """
import sys
before = {*sys.modules}
import deepsiam
print(*{*sys.modules} - before)
deepsiam.InputError
deepsiam.register("source", "mine", 1)
print("torch" in sys.modules)
"""


def test_the_import_loads_no_library_and_errors_and_registering_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", USES], cwd=toy.ROOT, capture_output=True, text=True, check=True)
    imported, later = done.stdout.splitlines()
    loaded = imported.split()
    assert "deepsiam" in loaded
    assert not [name for name in loaded if name.startswith(HEAVY)]
    assert len(loaded) < 30
    assert later == "False"


def test_every_public_name_is_there() -> None:
    assert {*deepsiam.__all__} <= {*dir(deepsiam)}
    for name in deepsiam.__all__:
        assert getattr(deepsiam, name).__doc__
    with pytest.raises(AttributeError, match="module 'deepsiam' has no attribute 'lod'"):
        deepsiam.lod  # type: ignore[attr-defined]  # noqa: B018
