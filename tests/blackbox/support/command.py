"""A command of Pegasus as a process, run to its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import attrs
import trio

from tests.blackbox.support.forks import ROOT, Forked, can_fork, fork_program

PROGRAM = (sys.executable, "-m", "pegasus")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the process sees: no key, no proxy, no setting and no model server of the machine the tests run on."""
    kept = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TZ": "UTC", "PYTHONPATH": str(ROOT)}
    kept |= {name: value for name, value in os.environ.items() if name.startswith(("COVERAGE", "PYTHONPYCACHE"))}
    kept |= dict.fromkeys(("OLLAMA_BASE_URL", "LLAMACPP_BASE_URL", "LMSTUDIO_BASE_URL"), "http://127.0.0.1:1")
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
    module: str = "pegasus",
) -> Result:
    """Run `pegasus ARGUMENTS` to its end. module: another program, `python -m MODULE`."""
    with trio.fail_after(timeout):
        if can_fork(env or environment(), environment()):
            process = fork_program(
                arguments, env or environment(), cwd or ROOT, environment(), stdin=True, module=module
            )
            return await _end_of(process, stdin)
        done = await trio.run_process(
            [sys.executable, "-m", module, *arguments],
            stdin=stdin,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=env or environment(),
            cwd=cwd or ROOT,
        )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace"))


async def _end_of(process: Forked, stdin: bytes) -> Result:
    """Give the program its input, and return how it ended. Cancelled: it is killed."""
    read = {1: b"", 2: b""}

    async def collect(number: int, pipe: IO[bytes]) -> None:
        async with _stream(pipe) as stream:
            async for piece in stream:
                read[number] += piece

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect, 1, process.stdout)
            nursery.start_soon(collect, 2, process.stderr)
            assert process.stdin is not None
            async with _stream(process.stdin) as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(stdin)
        await trio.lowlevel.wait_readable(process.status)
    finally:
        process.kill()
        code = process.wait()
    return Result(code, read[1].decode(), read[2].decode(errors="replace"))


def _stream(pipe: IO[bytes]) -> trio.lowlevel.FdStream:
    with pipe:
        return trio.lowlevel.FdStream(os.dup(pipe.fileno()))
