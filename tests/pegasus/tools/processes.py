"""Seeing the processes of a test: each test's commands carry a mark of their own in their environment."""

import os
import sys
import time

PYTHON = sys.executable


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


def until(condition, seconds=20.0):
    """Wait for something another process does; for use in threads and in plain tests."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.01)
