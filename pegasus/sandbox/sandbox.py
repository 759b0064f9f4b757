"""The walls around commands: what this machine offers, tried out once, and the value that says what commands may do.

There are two kinds of walls. The program *bubblewrap* is used where it works: it builds namespaces, which hide processes, network and
folders. Where it does not, *Landlock* (`pegasus.sandbox.landlock`) is, which needs a kernel and nothing else: it refuses what it
cannot hide. Where there is neither, commands have all rights of the user, and the owner is told.

    sandbox = probe_sandbox(settings, home.path, home.workspace)
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
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final, Protocol

import attrs

from pegasus.sandbox import landlock
from pegasus.sandbox.folders import NO_FOLDERS, Folders, plan_folders
from pegasus.sandbox.proxy import Dial, ProxyOrder
from pegasus.settings import Settings

PROBE_SECONDS: Final = 1.0
"""Seconds that bubblewrap has to run a trivial program. It usually takes a hundredth of that."""
LEAST_LANDLOCK: Final = 6
"""Version of Landlock (Linux 6.12) from which on a command cannot signal processes outside."""
_MEGABYTE: Final = 1 << 20
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "shm")
"""Names in /dev that commands may write to, where it is the real one. Not pts: the terminals of the user are there."""
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
PRIVATE: Final = ("tmp", "home", "shm")
"""Folders of one command: for temporary files, in place of homes, and for shared memory."""


class SandboxError(Exception):
    """Walls that are required and not there. The text is one line that names the setting.

    Example::

        try:
            sandbox = probe_sandbox(settings, home.path, home.workspace)
        except SandboxError as error: ...   # the daemon does not start
    """


class Witness(Protocol):
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
class Walls:
    """The walls around one command, made by `Sandbox.walls`.

    Example::

        walls = sandbox.walls({"PATH": "/usr/bin"}, mark)
        [*walls.prefix, sys.executable, …]   # starts the guard, within bubblewrap if there is one
    """

    prefix: tuple[str, ...] = ()
    """Beginning of the command line that starts its guard."""
    environment: Mapping[str, str] = attrs.field(factory=dict)
    """Its environment."""
    landlock: Mapping[str, Any] | None = None
    """Argument that the guard hands to `landlock.restrict`; None: the walls stand already, or there are none."""
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
    """Version of Landlock that is applied; 0: none is."""
    problem: str = ""
    """Reason why bubblewrap is not used."""
    folders: Folders = NO_FOLDERS
    """The folders that commands see."""
    network: str = "none"
    """The setting `sandbox.network`: "none", or "all" that `dial` connects to."""
    dial: Dial | None = attrs.field(default=None, eq=False)
    """Makes the connections of commands with a network; None: they have none."""
    memory: int = 0
    """Bytes that all processes of a command may have together; 0 = no limit."""
    processes: int = 0
    """Processes that a command may have at the same time; 0 = no limit."""
    witness: Witness | None = attrs.field(default=None, eq=False)
    """Observer of each command; None: there is none."""

    @property
    def kind(self) -> str:
        """Return the walls that are used: "bubblewrap", "landlock" or "none"."""
        return "bubblewrap" if self.bubblewrap else "landlock" if self.landlock else "none"

    @property
    def is_walled(self) -> bool:
        """Return whether a command can neither read the keys of its owner, nor reach the gateway, nor signal the daemon."""
        return bool(self.bubblewrap) or self.landlock >= LEAST_LANDLOCK

    @property
    def has_network(self) -> bool:
        """Return whether commands within the walls have a proxy. Landlock before version 4 could not keep them to it."""
        return self.network == "all" and self.dial is not None and (bool(self.bubblewrap) or self.landlock >= 4)

    @property
    def description(self) -> str:
        """Return the walls in a few words, for people."""
        if self.bubblewrap:
            return "bubblewrap"
        if self.mode == "off":
            return 'none (sandbox.mode = "off"): commands can do all that you can'
        if not self.landlock:
            return f"none ({self.problem}): commands can do all that you can"
        missing = "" if self.is_walled else "; commands can still end other processes of yours"
        return f"Landlock {self.landlock} ({self.problem}){missing}"

    @property
    def warning(self) -> str:
        """Return what the owner should know about weaker walls than there could be, with what to do; "" if there is nothing."""
        if self.bubblewrap or self.mode == "off":
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

    def walls(self, env: Mapping[str, str], name: str) -> Walls:
        """Return the walls around a command, and make its folder for temporary files. Raises OSError.

        env: its environment. name: unique among the commands that run. Blocks for the time that it takes to make four folders.
        """
        if self.kind == "none":
            return Walls(environment=env)
        folder = os.path.join(self.folders.temporary, name)
        os.makedirs(folder, mode=0o700)
        for private in PRIVATE:
            os.mkdir(os.path.join(folder, private), mode=0o700)
        proxy = ProxyOrder() if self.has_network else None
        if self.bubblewrap:
            arguments = bubblewrap_arguments(self.bubblewrap, self.folders, folder)
            environment = self._environment(env, "/tmp", "")  # noqa: S108
            return Walls(tuple(arguments), environment, folder=folder, proxy=proxy)
        read, write = self.folders.granted()
        write = [*write, folder, *(os.path.join("/dev", device) for device in _DEVICES)]
        order = {"version": self.landlock, "read": [*read, "/proc"], "write": write, "ports": []}
        environment = self._environment(env, os.path.join(folder, "tmp"), os.path.join(folder, "home"))
        return Walls((), environment, order, folder, proxy)

    def _environment(self, env: Mapping[str, str], temporary: str, home: str) -> dict[str, str]:
        """Return the environment of a command whose folders are somewhere else than the daemon's.

        home: "" if HOME is right as it is. What the task has set itself stays.
        """
        inherited = {name for name, value in env.items() if os.environ.get(name) == value}
        kept = {name: value for name, value in env.items() if not (name in inherited and name.startswith(_OF_THE_HOME))}
        ours = dict.fromkeys(_TEMPORARY_NAMES, temporary) | ({"HOME": home} if home else {})
        return {**kept, **{name: value for name, value in ours.items() if name not in kept or name in inherited}}


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


# ------------------------------------------------------------------ trying out


def probe_sandbox(settings: Settings, home: Path, workspace: Path) -> Sandbox:
    """Find out which walls work here, by running a trivial program within them; return the sandbox for the whole run.

    home: Pegasus's own, which must exist, as must the workspace. Blocks for some hundredths of a second, for `PROBE_SECONDS` at most
    for each way to start bubblewrap. Changes nothing.

    Raises SandboxError if the settings require bubblewrap and it does not work. Landlock alone is not enough then: whoever requires
    walls relies on the stronger ones.
    """
    wanted = settings.sandbox
    folders = plan_folders(
        home,
        workspace,
        allowed_paths=settings.tools.allowed_paths,
        writable=wanted.writable,
        settings_file=settings.source.file,
    )
    found = Sandbox(
        mode=wanted.mode,
        folders=folders,
        network=wanted.network,
        memory=wanted.memory_mb * _MEGABYTE,
        processes=wanted.processes,
    )
    if wanted.mode == "off":
        return found
    program, problem = _find_bubblewrap(folders)
    version = 0 if program else _landlock_version()
    found = attrs.evolve(found, bubblewrap=program, landlock=version, problem=problem)
    if wanted.mode == "require" and not program:
        raise SandboxError(
            f'sandbox.mode: found "require", but {problem}; install a bubblewrap that works, or allow "auto"'
        )
    return found


class SandboxProbe(Thread):
    """`probe_sandbox` in a thread, while its caller does something else: a start imports most of the daemon in that time.

    For example::

        probe = SandboxProbe(settings, home.path, home.workspace)
        ...
        sandbox = probe.result()

    A probe whose result nobody asks for ends by itself, within the time that `probe_sandbox` may take.
    """

    def __init__(self, settings: Settings, home: Path, workspace: Path) -> None:
        super().__init__(name="sandbox probe")
        self._probe = partial(probe_sandbox, settings, home, workspace)
        self._found: Sandbox | Exception = RuntimeError("the probe has not ended")
        self.start()

    def run(self) -> None:
        """Probe the sandbox, and keep what was found or raised for `result`. The body of the thread."""
        try:
            self._found = self._probe()
        except Exception as error:
            self._found = error

    def result(self) -> Sandbox:
        """Wait for the sandbox. Raises what `probe_sandbox` raises."""
        self.join()
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def _landlock_version() -> int:
    """Return the version of Landlock to apply, 0 where it cannot be or the rest of these walls does not exist."""
    return landlock.version() if os.uname().machine in landlock.MACHINES else 0


def _find_bubblewrap(folders: Folders) -> tuple[tuple[str, ...], str]:
    """Return the program with the options that work, or () and the reason why there is none."""
    path = shutil.which("bwrap")
    if sys.platform != "linux":
        return (), "bubblewrap exists for Linux only"
    if path is None:
        return (), "bubblewrap is not installed"
    problem = ""
    # A user namespace keeps commands of root from the powers of root. It may be refused to root where a plain start is not.
    for program in ((path, "--unshare-user"), *(((path,),) if os.geteuid() == 0 else ())):
        problem = _try_bubblewrap(program, folders)
        if not problem:
            return program, ""
    return (), f"bubblewrap does not work: {problem}"


def _try_bubblewrap(program: tuple[str, ...], folders: Folders) -> str:
    """Run the interpreter in walls as a command would have them. Return what went wrong, "" for nothing."""
    try:
        with tempfile.TemporaryDirectory(prefix="pegasus-probe-") as temporary:
            for name in PRIVATE:
                os.mkdir(os.path.join(temporary, name))
            walls = bubblewrap_arguments(program, folders, temporary)
            # The workspace must be there, and the interpreter must run; -S leaves out what takes time.
            check = f"import posix; posix.chdir({folders.workspace!r})"
            command = [*walls, sys.executable, "-I", "-S", "-c", check]
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PROBE_SECONDS,
                cwd="/",
                env={},
                check=False,
            )
    except subprocess.TimeoutExpired:
        return f"it did not run a program within {PROBE_SECONDS:g} s"
    except OSError as error:
        return error.strerror or str(error)
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return "" if done.returncode == 0 else (lines[-1] if lines else f"exit code {done.returncode}")
