"""A command of Pegasus as a process, run to its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs
import trio

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = (sys.executable, "-m", "pegasus")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the process sees: no key, no proxy and no setting of the machine the tests run on."""
    kept = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TZ": "UTC", "PYTHONPATH": str(ROOT)}
    kept |= {name: value for name, value in os.environ.items() if name.startswith(("COVERAGE", "PYTHONPYCACHE"))}
    return kept | dict(extra or {})


@attrs.frozen
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


async def command(
    *arguments: str,
    stdin: bytes = b"",
    timeout: float = 30.0,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Result:
    """Run `python -m pegasus ARGUMENTS` to its end."""
    with trio.fail_after(timeout):
        done = await trio.run_process(
            [*PROGRAM, *arguments],
            stdin=stdin,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=env or environment(),
            cwd=cwd or ROOT,
        )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace"))
