import subprocess
import sys

import pytest

from tests.toy import ROOT, environment

WITHOUT = """
import sys
import deepsiam.data_prep.__main__
assert not {"torch", "webdataset"} & set(sys.modules)
"""
LATER = """
import torch, webdataset
assert issubclass(webdataset.DataPipeline, torch.utils.data.IterableDataset)
"""
EARLIER = """
import sys, webdataset
from deepsiam.data_prep.common import webdataset_without_torch
assert webdataset_without_torch.TarWriter is webdataset.TarWriter
assert sys.modules["torch"]
"""


@pytest.mark.parametrize("code", [WITHOUT + LATER, EARLIER], ids=["later", "earlier"])
def test_data_prep_needs_no_torch_and_leaves_webdataset_as_it_is(code: str) -> None:
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr
