"""`pegasus update` before a version is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


@pytest.mark.real_time
def test_a_check_leaves_the_installers_words_that_it_names_and_nothing_else(pegasus, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    wheel = tmp_path / "pegasus_agent-9.0-py3-none-any.whl"
    wheel.write_bytes(b"no archive")
    code, out, err = pegasus("update", "--check", str(wheel))
    assert (code, out) == (2, "")
    [log] = re.findall(r"the installer's own words: (.*)\)", err)
    assert Path(log).read_text()
    assert [path for path in Path(log).parent.iterdir() if path != Path(log)] == []
