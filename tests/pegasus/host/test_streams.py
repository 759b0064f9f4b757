"""Standard streams that nobody reads."""

from __future__ import annotations

import os
import sys

import pytest

from pegasus.host import silence_stream


def test_a_stdout_that_is_gone_fails_no_more(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        stdout.write("never read")
        with pytest.raises(BrokenPipeError):
            stdout.flush()
        silence_stream(sys.stdout)
        stdout.flush()
