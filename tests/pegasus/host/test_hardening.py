"""Protection against other processes of the same user."""

from __future__ import annotations

import sys

import pytest


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an attribute of Linux processes")
def test_a_process_that_forbids_inspection_is_not_dumpable(start):
    script = (
        "import ctypes; from pegasus.host import forbid_inspection; get = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0);"
        "before = get(); print(before, forbid_inspection(), get())"
    )
    assert start(script).communicate(timeout=20) == ("1 True 0\n", "")
