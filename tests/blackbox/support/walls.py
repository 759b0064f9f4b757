"""Commands that a deceived model runs within walls, in the real process."""

from __future__ import annotations

import json
import subprocess
import sys

from pegasus.sandbox import landlock
from tests.blackbox.support.serving import serving
from tests.blackbox.support.work import Office, act, answer, heard, shell

WALLS = {"sandbox.mode": "auto"}
"""Settings of the real program; where bubblewrap is missing, tests of other things have no walls."""


def can_make_mounts() -> bool:
    """Whether the kernel lets a process make mounts of its own, without which Landlock's walls are partial."""
    attempt = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10020000))"
    return landlock.version() >= 6 and subprocess.run([sys.executable, "-c", attempt], check=False).returncode == 0


def output_of(view) -> dict:
    return json.loads(view.last)


async def attacked(tmp_path, walls, command, settings=None, files=None, env=None, finally_do=None):
    """The result of a command that a task runs: `command` gets the daemon and returns the text of the command.

    walls: environment of the daemon. files: what is in the workspace. env: environment of the command.
    finally_do: called when the command has ended and the daemon still runs.
    """
    name = "attack"
    tmp_path.mkdir(exist_ok=True)
    results = []

    def keep(view):
        results.append(output_of(view))
        return answer("done")

    book = Office()
    async with serving(tmp_path, book, {**WALLS, "sandbox.writable": [], **(settings or {})}, env=walls) as daemon:
        for file, text in (files or {}).items():
            (daemon.home / "workspace" / file).write_text(text)
        book.jobs[name] = [act(shell(command(daemon), env=env or {})), keep]
        async with daemon.client() as client:
            await client.say(f"do {name}")
            assert await heard(client) == ["completed: done"]
            status = await client.call("status")
            if finally_do is not None:
                finally_do()
        return results[0], daemon, status["sandbox"]
