"""trainer.finetune as a forked command, whose library of the hub has read other variables than these before."""

import os
from pathlib import Path

import pytest

from deepsiam.trainer import finetune
from tests import hub

if __name__ == "__main__":
    hub.use(os.environ["HF_ENDPOINT"], Path(os.environ["HF_HUB_CACHE"]), pytest.MonkeyPatch())
    finetune.main()
