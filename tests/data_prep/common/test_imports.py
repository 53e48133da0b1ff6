"""The garbage collector is off during imports and restored afterwards."""

import gc

import pytest

from deepsiam.data_prep.common.imports import gc_paused


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before_and_leaves_what_was_imported_alone(enabled: bool) -> None:
    try:
        if not enabled:
            gc.disable()
        before = gc.get_freeze_count()
        with gc_paused():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
        assert gc.get_freeze_count() > before
    finally:
        gc.enable()
        gc.unfreeze()
