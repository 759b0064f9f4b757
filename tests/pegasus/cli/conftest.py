from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from pegasus.cli import main
from pegasus.observe import stop_logging

Run: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user with an empty directory and an empty environment."""
    import os

    for name in list(os.environ):
        if name.upper().startswith(("PEGASUS", "ANTHROPIC", "OPENAI", "GEMINI", "OLLAMA")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield tmp_path
    stop_logging()


@pytest.fixture
def pegasus(capsys: pytest.CaptureFixture[str]) -> Run:
    """pegasus(*args): exit code, stdout and stderr of a command run in this process."""

    def pegasus(*args: str) -> tuple[int, str, str]:
        code = main(args)
        out, err = capsys.readouterr()
        return code, out, err

    return pegasus
