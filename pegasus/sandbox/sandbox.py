"""The walls around commands: what this machine offers, tried out once, and the value that says what commands may do.

There are two kinds of walls. The program *bubblewrap* is used where it works: it builds namespaces, which hide processes, network and
folders. Where it does not, *Landlock* (`pegasus.sandbox.landlock`) is, which needs a kernel and nothing else: it refuses what it
cannot hide. Where there is neither, commands have all rights of the user, and the owner is told.

    sandbox = probe_sandbox(settings, home.path, home.workspace)   # pegasus.sandbox.probe
    result = await run_process("make", cwd=folder, env=environment, sandbox=sandbox)

A `Sandbox` never changes. Somebody who starts a program with other rights makes another one: `attrs.evolve(sandbox, …)`.

**bubblewrap.** `bwrap` starts the guard (`pegasus.sandbox.guard`), and the guard starts the command, so that the guard is the
first process of its PID namespace. That makes it untouchable: the kernel lets no process of a namespace end or stop its first one, and
ends all others with it. What the command starts cannot leave the namespace, whatever it does.

The namespaces have a fresh /proc and /dev, no network but their own loopback, and the folders of `pegasus.sandbox.folders`. All
capabilities are dropped. The guard gives the command its environment.

`--die-with-parent` is not used: the "parent" of that option is a thread, and the daemon starts processes from threads that end
when they have nothing to do. The same is reached otherwise: the guard ends everything when its pipe from the daemon closes, and
asks the kernel to be killed with bwrap. `--new-session` is not used either: the daemon starts bwrap in a session of its own, which has
no terminal.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import cache
from typing import Any, Final, Protocol

import attrs

from pegasus.messages import ChannelInfo
from pegasus.sandbox.folders import NO_FOLDERS, Folders, foreign_sockets
from pegasus.sandbox.proxy import Dial, ProxyOrder
from pegasus.sandbox.system_calls import ARCHITECTURES, filter_data

LEAST_LANDLOCK: Final = 6
"""Version of Landlock (Linux 6.12) from which on a command cannot signal processes outside."""
_BOUND_DEVICES: Final = [os.path.join("/dev", name) for name in ("null", "zero", "full", "random", "urandom", "tty")]
"""Devices of which bubblewrap shows the real ones."""
_DEVICES: Final = [*_BOUND_DEVICES, "/dev/ptmx", "/dev/shm"]  # noqa: S108
"""Devices and folders in /dev that commands may write to, where it is the real one. Not pts: the terminals of the user are there."""
_ASIDE: Final = ".old-"
"""Behind the name of the folder for temporary files: what a killed daemon has left."""
_TEMPORARY_NAMES: Final = ("TMPDIR", "TMP", "TEMP")
"""Variables that name the folder for temporary files."""
_OF_THE_HOME: Final = "XDG_"
"""Beginning of the variables that name folders in the person's home, or in /run."""


NAMESPACES: Final = ("--unshare-pid", "--unshare-net", "--unshare-ipc")
"""Options that are always given. `--unshare-user` is among the options of the probe: it may be refused, and root can do without."""
_OF_THE_KERNEL: Final = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi")
"""Files by which the kernel is set."""
_CAN_MOUNT: Final = ("--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP")
"""Options by which the guard may change mounts in its namespace. The command loses both capabilities (`landlock.restrict`)."""
PRIVATE: Final = ("tmp", "home", "shm")
"""Private folders of each command: temporary files, home directory, shared memory."""


GAPS: Final = {
    "files": "change the rights and times of files that they cannot write",
    "limits": "limit other processes of yours",
    "memory": "use System V IPC",
    "calls": "use calls of the kernel that no filter stops",
    "signals": "end other processes of yours",
}
"""Names of what walls may not stop, with the words for people."""


class WorkspaceWatcher(Protocol):
    """Watches over the workspace, in which programs can write: it is told when one begins and when it has ended.

    Example::

        class Observer:
            @asynccontextmanager
            async def running_program(self) -> AsyncIterator[None]:
                self.running += 1
                try:
                    yield
                finally:
                    self.running -= 1
    """

    def running_program(self) -> AbstractAsyncContextManager[None]:
        """Return a block in which a program runs. Entering raises OSError if none may; leaving comes when all of it has ended."""
        ...


@attrs.frozen(eq=False, repr=False)
class CommandSandbox:
    """The walls around one command, made by `Sandbox.walls`.

    Example::

        walls = sandbox.walls({"PATH": "/usr/bin"}, mark)
        [*walls.prefix, sys.executable, …]   # starts the guard, within bubblewrap if there is one
    """

    prefix: tuple[str, ...] = ()
    """Beginning of the command line that starts its guard."""
    environment: Mapping[str, str] = attrs.field(factory=dict)
    """Its environment."""
    kernel: Mapping[str, Any] | None = None
    """Walls that the process puts around itself, as `landlock.restrict` and `mounts.close_outside` take them; None: there are none."""
    folder: str = ""
    """Its own folder for temporary files; whoever made the walls removes it (`remove_folder`)."""
    proxy: ProxyOrder | None = None
    """Its way to the network; None: it has none, or needs none."""


@attrs.frozen(eq=False, repr=False)
class Sandbox:
    """The walls that commands have. `Sandbox()` has none, and sets no limits.

    For example:

        if not sandbox.is_walled:
            print(sandbox.description)   # no walls: … commands can do all that you can
    """

    mode: str = "off"
    """The setting `sandbox.mode`."""
    bubblewrap: tuple[str, ...] = ()
    """The program and the options with which it works here; () if it does not."""
    landlock: int = 0
    """Version of Landlock that is applied, also beneath bubblewrap; 0: none is."""
    namespace: str = ""
    """Way to the mount namespace beneath Landlock (`mounts.NAMESPACES`); "": there is none."""
    gaps: tuple[str, ...] = ()
    """Names of what a trial has shown that the walls do not stop (`GAPS`)."""
    problem: str = ""
    """Reason why bubblewrap is not used."""
    folders: Folders = NO_FOLDERS
    """The folders that commands see."""
    network: str = "none"
    """The setting `sandbox.network`: "none", or "all" that `dial` connects to."""
    dial: Dial | None = attrs.field(default=None, eq=False)
    """Makes the connections of commands with a network; None: they have none."""
    has_hosts: bool = False
    """The setting `sandbox.hosts` names the hosts that are reached."""
    memory: int = 0
    """Bytes that all processes of a command may have together; 0 = no limit."""
    processes: int = 0
    """Processes that a command may have at the same time; 0 = no limit."""
    closed: tuple[str, ...] = ()
    """Files and folders in writable folders that a command sees read-only, if its walls can do that (`can_close`)."""
    witness: WorkspaceWatcher | None = attrs.field(default=None, eq=False)
    """Observer of each command; None: there is none."""
    tell_owner: Callable[[str, ChannelInfo | None, Sequence[str]], None] = attrs.field(
        default=lambda *_: None, eq=False
    )
    """Called with a task, the channel of its work and files that programs run by themselves and that a command has changed; must not
    wait."""

    @property
    def kind(self) -> str:
        """Return the walls that are used: "bubblewrap", "landlock" or "none"."""
        return "bubblewrap" if self.bubblewrap else "landlock" if self.landlock else "none"

    @property
    def state(self) -> str:
        """Return how much the walls stop: "full", "partial" (a command can do some of `GAPS`) or "none"."""
        return "none" if self.kind == "none" else "partial" if self.open_gaps else "full"

    @property
    def open_gaps(self) -> tuple[str, ...]:
        """Return the names of what the walls do not stop, also for what needs no trial."""
        calls = () if _machine() in ARCHITECTURES else ("calls",)
        signals = ("signals",) if self.kind == "landlock" and self.landlock < LEAST_LANDLOCK else ()
        return tuple(dict.fromkeys((*self.gaps, *calls, *signals)))

    @property
    def is_confined(self) -> bool:
        """Return whether a command can neither read the keys of its owner, nor reach the gateway, other processes or their files."""
        return self.state == "full"

    @property
    def can_close(self) -> bool:
        """Return whether parts of a writable folder can be read-only. Landlock cannot, nor can bubblewrap with the setuid bit."""
        return _CAN_MOUNT[1] in self.bubblewrap

    @property
    def has_network(self) -> bool:
        """Return whether commands within the walls have a proxy. Landlock before version 4 could not keep them to it."""
        return self.network == "all" and self.dial is not None and (bool(self.bubblewrap) or self.landlock >= 4)

    @property
    def description(self) -> str:
        """Return the walls in a few words, for people."""
        if self.mode == "off" and not self.bubblewrap:
            return 'none (sandbox.mode = "off"): commands can do all that you can'
        if self.kind == "none":
            return f"none ({self.problem}): commands can do all that you can"
        name = "bubblewrap" if self.bubblewrap else f"Landlock {self.landlock} ({self.problem})"
        missing = ", ".join(GAPS[gap] for gap in self.open_gaps)
        return f"{name}; partial: commands can still {missing}" if missing else name

    @property
    def warning(self) -> str:
        """Return what the owner should know about weaker walls than there could be, with what to do; "" if there is nothing."""
        if self.mode == "off" or (self.bubblewrap and self.state == "full"):
            return ""
        return f"walls around commands: {self.description}; install bubblewrap, or allow it to make user namespaces"

    def set_leftovers_aside(self) -> None:
        """Put away the temporary files that commands of a killed daemon have left. To be called when no command runs.

        They may be many, so they are only renamed here; `remove_leftovers` takes its time.
        """
        with suppress(OSError):
            os.rename(self.folders.temporary, f"{self.folders.temporary}{_ASIDE}{time.time_ns()}")

    def remove_leftovers(self) -> None:
        """Remove what has been put away. May take long; commands may run meanwhile."""
        above, name = os.path.split(self.folders.temporary)
        with suppress(OSError):
            for old in os.listdir(above):
                if old.startswith(name + _ASIDE):
                    remove_folder(os.path.join(above, old))

    def running_program(self) -> AbstractAsyncContextManager[None]:
        """Return the block that a program runs in, for the witness."""
        return nullcontext() if self.witness is None else self.witness.running_program()

    def walls(self, env: Mapping[str, str], name: str) -> CommandSandbox:
        """Return the walls around a command, and make its folder for temporary files. Raises OSError.

        env: its environment. name: unique among the commands that run. Blocks for the time that it takes to make four folders.
        """
        if self.kind == "none":
            return CommandSandbox(environment=env)
        folder = os.path.join(self.folders.temporary, name)
        os.makedirs(folder, mode=0o700)
        for private in PRIVATE:
            os.mkdir(os.path.join(folder, private), mode=0o700)
        proxy = ProxyOrder(is_limited=self.has_hosts) if self.has_network else None
        if self.bubblewrap:
            arguments = bubblewrap_arguments(self.bubblewrap, self.folders, folder)
            environment = self._environment(env, "/tmp", "")  # noqa: S108
            return CommandSandbox(tuple(arguments), environment, self.kernel_walls(folder), folder, proxy)
        environment = self._environment(env, os.path.join(folder, "tmp"), os.path.join(folder, "home"))
        return CommandSandbox((), environment, self.kernel_walls(folder), folder, proxy)

    def kernel_walls(self, folder: str) -> dict[str, Any]:
        """Return the walls that the process of a command puts around itself. folder: that for its temporary files."""
        calls = _filter(_machine(), tcp=self.has_network, unix=bool(self.bubblewrap))
        order: dict[str, Any] = {"version": self.landlock, "calls": calls, "ports": []}
        folders = self.folders
        if self.bubblewrap:
            # Devices are those of the machine, and root owns them. bubblewrap can make them read-only, but then they are no devices.
            plan: dict[str, Any] = {
                "devices": _BOUND_DEVICES,
                "sockets": foreign_sockets(folders),
                "closed": list(self.closed),
            }
            plan = {"namespace": "", "writable": list(folders.writable), **plan}
            write = [*folders.writable, *folders.homes, *folders.hidden, "/dev"]
            return {**order, "read": None, "write": write, "mounts": plan if self.can_close else None}
        read, write = folders.granted()
        mounted = [*write, folder]
        plan = {
            "namespace": self.namespace,
            "mounted": mounted,
            "shared": os.path.join(folder, "shm"),
            "network": self.has_network,
        }
        paths = {"read": [*read, "/proc"], "write": [*mounted, *_DEVICES]}
        return {**order, **paths, "mounts": plan if self.namespace else None}

    def _environment(self, env: Mapping[str, str], temporary: str, home: str) -> dict[str, str]:
        """Return the environment of a command whose folders are somewhere else than the daemon's.

        home: "" if HOME is right as it is. What the task has set itself stays.
        """
        inherited = {name for name, value in env.items() if os.environ.get(name) == value}
        kept = {name: value for name, value in env.items() if not (name in inherited and name.startswith(_OF_THE_HOME))}
        ours = dict.fromkeys(_TEMPORARY_NAMES, temporary) | ({"HOME": home} if home else {})
        return {**kept, **{name: value for name, value in ours.items() if name not in kept or name in inherited}}


@cache
def _filter(machine: str, *, tcp: bool, unix: bool) -> bytes:
    """Return the filter of system calls, b"" for a machine without one. There are few, so each is made once."""
    return filter_data(machine, tcp=tcp, unix=unix) if machine in ARCHITECTURES else b""


@cache
def _machine() -> str:
    """Return the architecture of this machine, in the words of uname(2)."""
    return os.uname().machine


def remove_folder(folder: str) -> None:
    """Remove a folder for temporary files with all that a command has left in it. What cannot be removed stays.

    A command may have taken away its own rights on a folder; they are given back first.
    """
    with suppress(OSError):
        for name in PRIVATE:
            os.rmdir(os.path.join(folder, name))
        os.rmdir(folder)
        return
    for path, names, _ in os.walk(folder):
        for name in names:
            inner = os.path.join(path, name)
            if not os.path.islink(inner):
                with suppress(OSError):
                    os.chmod(inner, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def bubblewrap_programs(path: str) -> list[tuple[str, ...]]:
    """Return the ways to start bubblewrap, the best one first.

    A user namespace keeps commands of root from the powers of root. It may be refused to root where a plain start is not.
    """
    programs: list[tuple[str, ...]] = [(path, "--unshare-user", *_CAN_MOUNT), (path, "--unshare-user")]
    return programs if os.geteuid() else [*programs, (path,)]


def bubblewrap_arguments(program: Sequence[str], folders: Folders, temporary: str) -> list[str]:
    """Return the beginning of a command line; the program to run in the walls follows.

    program: bwrap with the options that work on this machine. temporary: folder of this command alone, with the folders
    `PRIVATE` in it.
    """
    name, *options = program
    arguments = [name, *NAMESPACES, "--cap-drop", "ALL", *options, "--as-pid-1"]
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
