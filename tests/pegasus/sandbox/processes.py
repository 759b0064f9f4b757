"""Seeing the processes of a test: each test's commands carry a mark of their own in their environment."""

import os
import sys

import trio

from pegasus.sandbox import CommandLimits

PYTHON = sys.executable
PATIENCE = 20.0
"""Seconds that another process may take."""
QUICK = CommandLimits(grace=0.2)
"""Limits of commands in tests, which need not wait for programs to clean up."""


def alive(mark):
    """The living processes that have `mark` in their environment, as {pid: command line}."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() not in file.read():
                    continue
            with open(f"/proc/{name}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] in b"ZX":
                    continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                found[int(name)] = file.read().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def guards():
    """The guards that run below this process."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split() if "guard.py" in command_line(pid)]


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode()
    except OSError:
        return ""


class Bell:
    """A named pipe that a command writes into to say that it is there: `echo > NAME`. To be made before the command is."""

    def __init__(self, path):
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    async def wait(self):
        """What was written into it, once something was."""
        try:
            with trio.fail_after(PATIENCE):
                await trio.lowlevel.wait_readable(self._fd)
            return os.read(self._fd, 1000).decode()
        finally:
            os.close(self._fd)


async def gone(mark):
    """Wait until the last process that has `mark` in its environment has ended."""
    with trio.fail_after(PATIENCE):
        while there := alive(mark):
            for pid in there:
                await _ended(pid)


async def _ended(pid):
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await trio.lowlevel.wait_readable(fd)
    finally:
        os.close(fd)
