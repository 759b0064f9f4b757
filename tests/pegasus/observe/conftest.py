from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pegasus.observe import log


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test has a process of its own, as far as logging goes: what an earlier test has configured is taken down first."""
    log.stop_logging()
    monkeypatch.setattr(log, "_writer", log._LogWriter())
    yield
    log.stop_logging()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pegasus.log"
