"""Finding out which walls work on this machine, by trying them out.

Versions tell little: a kernel may forbid namespaces, a container hides them or filters calls. So a program (`pegasus.sandbox.trial`)
is run within each kind of walls, as a command would be, and tells what they did not stop. The best walls that stand are used.
"""

from __future__ import annotations

import marshal
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final

import attrs

from pegasus.sandbox import landlock
from pegasus.sandbox.folders import plan_folders
from pegasus.sandbox.sandbox import PRIVATE, Sandbox, bubblewrap_arguments, bubblewrap_programs
from pegasus.settings import Settings

PROBE_SECONDS: Final = 3.0
"""Seconds that each kind of walls has to run a trivial program. It usually takes a hundredth of that."""
_TOO_SLOW: Final = f"it did not run a program within {PROBE_SECONDS:g} s"
"""Problem of walls that hang."""
NAMESPACES: Final = ("user", "root")
"""Ways to mounts of its own for Landlock (`mounts.NAMESPACES`), the better one first."""
_MEGABYTE: Final = 1 << 20
_RUN_TRIAL: Final = "import sys; sys.path.append(sys.argv[1]); import trial; trial.main()"
"""Program that runs `trial`. Its argument is the folder of that file, and of those that it loads."""


class SandboxError(Exception):
    """Walls that are required and not there. The text is one line that names the setting.

    Example::

        try:
            sandbox = probe_sandbox(settings, home.path, home.workspace)
        except SandboxError as error: ...   # the daemon does not start
    """


def probe_sandbox(settings: Settings, home: Path, workspace: Path) -> Sandbox:
    """Find out which walls work here, by running a trivial program within them; return the sandbox for the whole run.

    home: Pegasus's own, which must exist, as must the workspace. Blocks for some hundredths of a second, for `PROBE_SECONDS` at most
    for each kind of walls. Changes nothing.

    Raises SandboxError if the settings require walls and none are `full`.
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
    found = _find_bubblewrap(found, home)
    if not found.bubblewrap:
        found = find_landlock(found, home)
    if wanted.mode == "require" and found.state != "full":
        raise SandboxError(
            f'sandbox.mode: found "require", but the walls here are {found.state}: {found.description}; '
            'install a bubblewrap that works, or allow "auto"'
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


def _find_bubblewrap(sandbox: Sandbox, home: Path) -> Sandbox:
    """Return the sandbox with the program and the options that work, or with the reason why there are none."""
    path = shutil.which("bwrap")
    if sys.platform != "linux":
        return attrs.evolve(sandbox, problem="bubblewrap exists for Linux only")
    # One in a relative folder of PATH is not taken: where the agent was started, such as in the workspace, others may have put it.
    if path is None or not os.path.isabs(path):
        return attrs.evolve(sandbox, problem="bubblewrap is not installed")
    problem = ""
    for program in bubblewrap_programs(path):
        tried = attrs.evolve(sandbox, bubblewrap=program, landlock=landlock.version())
        gaps, problem = _try_walls(tried, home)
        if not problem:
            return attrs.evolve(tried, gaps=gaps)
        if problem == _TOO_SLOW:  # the next way would take as long
            break
    return attrs.evolve(sandbox, problem=f"bubblewrap does not work: {problem}")


def find_landlock(sandbox: Sandbox, home: Path) -> Sandbox:
    """Return the sandbox with Landlock as far as it works here: with mounts of its own, without, or not at all."""
    version = landlock.version()
    if not version:
        return sandbox
    problem = ""
    for namespace in (*(name for name in NAMESPACES if name != "root" or os.geteuid() == 0), ""):
        tried = attrs.evolve(sandbox, landlock=version, namespace=namespace)
        gaps, problem = _try_walls(tried, home)
        if not problem:
            return attrs.evolve(tried, gaps=gaps)
    return attrs.evolve(sandbox, problem=f"{sandbox.problem}, and Landlock does not work: {problem}")


def _try_walls(sandbox: Sandbox, home: Path) -> tuple[tuple[str, ...], str]:
    """Run the trial in walls as a command would have them. Return the names of what they did not stop, and what went wrong, if it did.

    home: a folder outside of all that commands may write to.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="pegasus-probe-") as temporary:
            for name in PRIVATE:
                os.mkdir(os.path.join(temporary, name))
            folders = sandbox.folders
            prefix = bubblewrap_arguments(sandbox.bubblewrap, folders, temporary) if sandbox.bubblewrap else []
            walls = sandbox.kernel_walls(temporary)
            if sandbox.namespace:
                walls["mounts"]["network"] = True  # some commands will have one
            order = {
                "walls": walls,
                "workspace": folders.workspace,
                "outside": ""
                if sandbox.bubblewrap
                else str(home),  # there it is another folder of the same name, or none
                "daemon": os.getpid(),
            }
            return _run_trial(prefix, order)
    except subprocess.TimeoutExpired:
        return (), _TOO_SLOW
    except OSError as error:
        return (), error.strerror or str(error)


def _run_trial(prefix: Sequence[str], order: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """Run the trial with its order behind a beginning of the command line, and return what `_try_walls` does."""
    # -S leaves out what takes time.
    done = subprocess.run(
        [*prefix, sys.executable, "-I", "-S", "-c", _RUN_TRIAL, os.path.dirname(__file__)],
        input=marshal.dumps(order),
        capture_output=True,
        timeout=PROBE_SECONDS,
        cwd="/",
        env={},
        check=False,
    )
    if done.returncode == 0:
        return tuple(done.stdout.decode().split()), ""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return (), lines[-1] if lines else f"exit code {done.returncode}"
