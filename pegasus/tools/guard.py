"""The guard of one command: a small process between the daemon and what it runs, so that all of it ends for certain.

Run as a script by `pegasus.tools.process` with the bare interpreter (`-I -S`); it imports nothing of Pegasus, and of the
standard library only what costs nothing. It is the command's *subreaper*: whatever the command starts, new sessions and
double forks included, stays below it, for an orphan's new parent is the guard. So "the guard has no child left" is the
kernel's own word that nothing is left.

fd 0: the order (4 bytes of length, marshal), then nothing; its end means "end it": the daemon wants it, or is dead (kill -9).
fd 1, 2: the command's output, which the guard lets go of. argv: the fd to report to, the fd that is the command's stdin.
Reports, one a line: `refused <errno> <what>`, `started <pid>`, `ended <wait status>`, `left <n>` (processes outlived the command).
Where there is no subreaper (not Linux), all of it is the command's process group, and a new session escapes: exit code 1 says so.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import sys
from time import monotonic

TYPE_CHECKING = False  # importing typing takes as long as starting the interpreter, and `signal` builds enums
if TYPE_CHECKING:
    import signal
    from typing import Any, Final
else:
    import _signal as signal

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_IGNORED: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_RESTORED: Final = (*_IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
_LOOK: Final = 0.02  # seconds between two looks for new processes while those told to end are ending


def prctl(option: int, value: int) -> bool:
    """The system call; False where there is none or it refuses."""
    if sys.platform != "linux":
        return False
    import _ctypes  # `ctypes` costs five times as much

    function = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    return bool(_ctypes.call_function(function, (option, value, 0, 0, 0)) == 0)


class Guard:
    """report: fd to report to. adopts: whether orphans come to this process."""

    def __init__(self, report: int) -> None:
        self._report = report
        self.adopts = prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self.pid = os.getpid()
        self.command = 0
        self.running = False
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def tell(self, line: str) -> None:
        """Report; whether anybody still reads is not the guard's business."""
        try:
            os.write(self._report, line.encode() + b"\n")
        except OSError:
            return

    def start(self, order: dict[str, Any], stdin: int) -> None:
        """Start the command in its own session."""
        self.command = os.fork()
        if self.command == 0:
            try:
                _become(order, stdin, self.pid)
            except OSError as error:
                self.tell(f"refused {error.errno} {os.fsdecode(error.filename or 'the limits')}")
            except BaseException as error:
                self.tell(f"refused {errno.EINVAL} {type(error).__name__}: {error}")
            os._exit(127)
        self.running = True
        self.tell(f"started {self.command}")

    def watch(self) -> None:
        """Wait until the command has ended or the daemon wants it to."""
        while self.reap() and self.running:
            if 0 in self._wait([0, self._woken], None):
                return

    def end(self, grace: float) -> None:
        """TERM to all, KILL to what is left after `grace` seconds, until there is nothing."""
        told: set[int] = set()
        deadline = monotonic() + grace
        outlived = not self.running
        while self.reap():
            fresh = self.members() - told
            if outlived:
                self.tell(f"left {len(fresh)}")
                outlived = False
            told |= fresh
            if monotonic() < deadline:
                self._send(fresh, signal.SIGTERM, signal.SIGCONT)  # a stopped process could not hear the first
                self._wait([self._woken], min(_LOOK, max(deadline - monotonic(), 0)))
            else:
                self._send(self.members(), signal.SIGKILL)
                self._wait([self._woken], 0 if fresh else _LOOK)  # no pause while something is faster than this loop

    def reap(self) -> bool:
        """Collect what has ended; True while something is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self.command:
                    self.running = False
                    self.tell(f"ended {status}")
        except ChildProcessError:
            return not self.adopts and _group_lives(self.command)

    def members(self) -> set[int]:
        """All below this process (or, without adoption, the command, which stands for its group)."""
        if not self.adopts:
            return {-self.command}
        found: set[int] = set()
        waiting = [self.pid]
        while waiting:
            for child in children(waiting.pop()):
                if child not in found:
                    found.add(child)
                    waiting.append(child)
        return found

    def _send(self, pids: set[int], *signals: int) -> None:
        for pid in pids:
            for number in signals:
                try:
                    os.kill(pid, number)
                except OSError:  # it is gone
                    continue

    def _wait(self, fds: list[int], seconds: float | None) -> list[int]:
        ready = select.select(fds, (), (), seconds)[0]
        if self._woken in ready:
            os.read(self._woken, 4096)
        return ready


def children(pid: int) -> list[int]:
    """The children of a process; [] when it is gone."""
    try:
        found = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += [int(word) for word in file.read(1 << 20).split()]
        return found
    except OSError:
        return [] if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _children_by_search(pid)


def _children_by_search(pid: int) -> list[int]:
    """The same for a kernel built without CONFIG_PROC_CHILDREN."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    parent = file.read(4096).rpartition(b")")[2].split()[1]
            except OSError:
                continue
            if int(parent) == pid:
                found.append(int(name))
    return found


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _become(order: dict[str, Any], stdin: int, guard: int) -> None:
    """Turn this process into the command. OSError: it cannot be."""
    import resource

    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in _RESTORED:
        signal.signal(number, signal.SIG_DFL)
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(127)
    os.dup2(stdin, 0)
    os.set_inheritable(stdin, False)
    for number, value in order["limits"]:
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))
    os.chdir(order["cwd"])
    _execute(order["argv"], order["env"])


def _execute(argv: list[str], env: dict[str, str]) -> None:
    """execvpe, without what `os` imports for it."""
    if "/" in argv[0]:
        os.execve(argv[0], argv, env)  # noqa: S606
    refused: OSError = FileNotFoundError(errno.ENOENT, "", argv[0])
    for folder in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(f"{folder or '.'}/{argv[0]}", argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = error
    raise refused


def read_order() -> dict[str, Any] | None:
    """What to run; None if the daemon went away before it had said so."""
    wanted = 4
    data = b""
    while len(data) < wanted:
        part = os.read(0, 1 << 16)
        if not part:
            return None
        data += part
        if len(data) >= 4:
            wanted = 4 + int.from_bytes(data[:4], "big")
    order: dict[str, Any] = marshal.loads(data[4:])  # noqa: S302  from the daemon itself
    return order


def main() -> bool:
    """Guard one command to its end; True if nothing can have escaped."""
    report, stdin = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(report, False)
    guard = Guard(report)
    order = read_order()
    if order is None:
        return True
    guard.start(order, stdin)
    os.close(stdin)
    os.close(1)
    os.close(2)
    guard.watch()
    guard.end(order["grace"])
    return guard.adopts


if __name__ == "__main__":
    os._exit(0 if main() else 1)
