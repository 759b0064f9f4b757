"""Walls that the program bubblewrap builds: namespaces in which a command sees little of the machine.

`bwrap` starts the guard (`pegasus.sandbox.guard`), and the guard starts the command, so that the guard is the first process of its PID
namespace. That makes it untouchable: the kernel lets no process of a namespace end or stop its first one, and ends all others with
it. What the command starts cannot leave the namespace, whatever it does.

The namespaces have a fresh /proc and /dev, no network but their own loopback, and the folders of `pegasus.sandbox.folders`. All
capabilities are dropped. The guard gives the command its environment.

`--die-with-parent` is not used: the "parent" of that option is a thread, and the daemon starts processes from threads that end
when they have nothing to do. The same is reached otherwise: the guard ends everything when its pipe from the daemon closes, and
asks the kernel to be killed with bwrap. `--new-session` is not used either: the daemon starts bwrap in a session of its own, which has
no terminal.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from pegasus.sandbox.folders import Folders

NAMESPACES: Final = ("--unshare-pid", "--unshare-net", "--unshare-ipc")
"""Options that are always given. `--unshare-user` is among the options of the probe: it may be refused, and root can do without."""


_OF_THE_KERNEL: Final = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi")
"""Files by which the kernel is set."""
PRIVATE: Final = ("tmp", "home", "shm")
"""Folders of one command: for temporary files, in place of homes, and for shared memory."""


def bubblewrap_arguments(program: Sequence[str], folders: Folders, temporary: str) -> list[str]:
    """Return the beginning of a command line; the program to run in the walls follows.

    program: bwrap with the options that work on this machine. temporary: folder of this command alone, with the folders
    `PRIVATE` in it.
    """
    arguments = [*program, *NAMESPACES, "--cap-drop", "ALL", "--as-pid-1"]
    arguments += ["--ro-bind", "/", "/"] if "/" not in folders.writable else ["--bind", "/", "/"]
    arguments += ["--dev", "/dev", "--proc", "/proc"]
    # The kernel lets root write to these without any capability, also within a namespace: core_pattern names a program to run outside.
    for name in _OF_THE_KERNEL:
        arguments += ["--ro-bind-try", name, name]
    # Memory that programs share is files here; on the disk it does not pass by the limit of memory.
    arguments += ["--bind", os.path.join(temporary, "shm"), "/dev/shm"]  # noqa: S108
    emptied: list[str] = []
    for path, kind in folders.entries():
        if path == "/":
            continue
        for upper in folders.ways_to(path):
            arguments += ["--bind", upper, upper]
        if kind == "write":
            arguments += ["--bind-try", path, path]
        elif kind == "read":
            arguments += ["--ro-bind-try", path, path]
        elif kind == "home":
            arguments += ["--bind", os.path.join(temporary, "home"), path]
        elif path == os.path.realpath("/tmp"):  # noqa: S108
            arguments += ["--bind", os.path.join(temporary, "tmp"), path]
        elif os.path.isdir(path):
            arguments += ["--tmpfs", path]
            emptied.append(path)
        else:
            arguments += ["--ro-bind", os.devnull, path]
    for path in emptied:
        arguments += ["--remount-ro", path]
    return [*arguments, "--"]
