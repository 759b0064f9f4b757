"""The guard of one command: a small process between the daemon and the command, which makes sure that all of it ends.

`pegasus.sandbox.guarded` runs this file with the bare interpreter (`-I -S`), as a module, since a script would be compiled anew
each time (5 ms). Starting it is a part of every command, so it imports nothing of Pegasus, and of the standard library only
modules that are already loaded or built in.

Where the command has walls, the guard builds those of Landlock around it (`pegasus.sandbox.landlock`), or runs within those of
bubblewrap, as the first process of a PID namespace. In both cases the command can neither end nor stop nor trace the guard, and has
a filter of system calls.

The guard is a *subreaper* (prctl(2)): if a process below it loses its parent, the guard becomes the
parent, also after a double fork or in a new session. So everything that the command starts stays
below the guard, and "the guard has no child left" means that nothing is left; the kernel guarantees
it.

Interface:

* argv[1] is the descriptor to report to; argv[2] to argv[4] are those that become stdin, stdout and stderr of the
  command. The guard closes its copies of the three after the start. argv[5] is a socket to the daemon, -1 if there is none.
* fd 0 brings the order (4 bytes of length, then marshal data), and nothing after it. Its end asks
  the guard to end everything. The daemon closes it for that, and the kernel closes it if the daemon
  dies, even by kill -9.
* Reports are lines: `refused <errno> <subject>`, `started <pid>`, `ended <wait status>`, `left <n>`
  (n processes outlived it), `exceeded <limit>` ("memory" or "processes").
* Exit code 0: nothing can have escaped. 1: there is no subreaper (not Linux), so the guard ended
  the process group of the command, which a new session escapes. Any other: the guard was killed.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import sys
from time import monotonic

# The order of the steps in this file matters:
#
# 1. Become the subreaper and ignore the signals that would end the guard, before the command exists.
# 2. Read the order, fork, and let the child turn itself into the command. The child resets all
#    signals first, because ignored ones are inherited by the command.
# 3. Let go of the command's pipes. Otherwise their readers would never see the end of the output.
# 4. Wait for the end of the command, or of fd 0. Both wake up the same select: a signal writes into
#    a pipe (set_wakeup_fd), so none is lost between a check and the wait.
#    While it waits it looks at what the processes use together, which no limit of the kernel covers without privileges:
#    RLIMIT_DATA is about one process, RLIMIT_NPROC about all of the user's.
# 5. End what is left. New processes can appear while the old ones are ending, so the search is
#    repeated until there is no child. During the grace each process gets one SIGTERM; after it,
#    all get SIGKILL in every round, which wins even against a program that forks all the time.

TYPE_CHECKING = False  # importing `typing` takes as long as starting the interpreter, and `signal` builds enums
if TYPE_CHECKING:
    import signal
    from typing import Any, Final
else:
    import _signal as signal

_PR_SET_PDEATHSIG: Final = 1
"""Option of prctl: the signal that this process gets when its parent dies."""
_PR_SET_DUMPABLE: Final = 4
"""Option of prctl: whether processes of the same user may look into this one."""
_PR_SET_CHILD_SUBREAPER: Final = 36
"""Option of prctl: orphans below this process become its children."""
_IGNORED: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that would end the guard before its command. A Ctrl-C in the terminal reaches the whole group."""
_RESTORED: Final = (*_IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that the command gets back with their default action."""
_POLL_SECONDS: Final = 0.02  # seconds between two searches for new processes while the old ones are ending
_FIRST_LOOK, _LAST_LOOK = 0.05, 1.0
"""Seconds between two looks at what the processes use: few after the start and while it grows, more while it does not."""
_GROWTH: Final = 1.2
"""Factor from which on a look has found growth."""
_OOM_SCORE: Final = 800
"""Score that makes the kernel end commands before other programs, the daemon among them, when the machine is short of memory."""


def prctl(option: int, value: int) -> bool:
    """Make the system call prctl. Return False where it does not exist or refuses."""
    if sys.platform != "linux":
        return False
    import _ctypes  # `ctypes` costs five times as much

    function = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    return bool(_ctypes.call_function(function, (option, value, 0, 0, 0)) == 0)


class Guard:
    """The state of the guard: the command, the processes below it, and the daemon's wish to end them.

    For example:

        guard = Guard(report)
        guard.start(order, streams, -1)
        guard.watch(memory=1 << 31, processes=256)
        guard.end(grace=1.0)   # returns when nothing of the command is left
    """

    def __init__(self, report: int) -> None:
        """report: the descriptor to report to. Signals that would end the guard are ignored; SIGCHLD wakes it up."""
        self._report_fd = report
        self.adopts = prctl(_PR_SET_CHILD_SUBREAPER, 1)  # whether orphans become children of this process
        self.pid = os.getpid()
        if self.pid == 1:
            # In a PID namespace everything ends with its first process. This one ends with bwrap, and cannot be traced.
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(_PR_SET_DUMPABLE, 0)
        self.command = 0  # the pid of the command
        self.running = False  # whether the command itself still runs
        self.first_signals = [signal.SIGTERM, signal.SIGCONT]  # what asks a process to end
        # Python writes a byte into this pipe at each signal. Both ends must not block: a full pipe is as good
        # as one byte.
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def report(self, line: str) -> None:
        """Report a line. It does not matter if the daemon is gone and nobody reads it."""
        try:
            os.write(self._report_fd, line.encode() + b"\n")
        except OSError:
            return

    def start(self, order: dict[str, Any], streams: list[int], conduit: int) -> None:
        """Start the command in a session of its own. streams: its stdin, stdout and stderr. conduit: for a proxy that it opens itself.

        A command that cannot be started is reported with its errno, from the child, which then ends with 127.
        The guard goes on as if a command had ended. The start is reported when the program runs: the pipe to the child is closed
        by its exec, or by its end.
        """
        running, starting = os.pipe()
        self.command = os.fork()
        if self.command == 0:
            try:
                _become_command(order, streams, self.pid, conduit)
            except OSError as error:
                self.report(f"refused {error.errno} {os.fsdecode(error.filename or 'the limits')}")
            except BaseException as error:
                self.report(f"refused {errno.EINVAL} {type(error).__name__}: {error}")
            os._exit(127)
        os.close(starting)
        while not {0, running} & set(self._wait([0, running, self._woken], None)):
            continue  # a signal
        os.close(running)
        self.running = True
        self.report(f"started {self.command}")

    def watch(self, memory: int, processes: int) -> bool:
        """Wait until the command has ended, or the daemon asks to end it or is gone. Return True if it uses more than it may.

        memory: bytes that all processes may have together. processes: how many there may be. 0 = no limit. Children that are
        not the command are reaped on the way; they are orphans that it has left behind.
        """
        pause, before = (_FIRST_LOOK if memory or processes else None), 1.0
        while self.reap() and self.running:
            ready = self._wait([0, self._woken], pause)
            if 0 in ready:
                return False
            if pause is not None and not ready:
                members = self.members()
                used = sum(map(private_memory, members)) if memory else 0
                if processes and len(members) > processes:
                    self.report("exceeded processes")
                    return True
                if memory and used > memory and sum(map(exact_memory, members)) > memory:
                    self.report("exceeded memory")
                    return True
                share = max(used / memory if memory else 0.0, len(members) / processes if processes else 0.0)
                pause = _FIRST_LOOK if share > before * _GROWTH else min(pause * 2, _LAST_LOOK)
                before = share
        return False

    def end(self, grace: float) -> None:
        """Send SIGTERM to all processes, after `grace` seconds SIGKILL, until there are none."""
        terminated: set[int] = set()
        deadline = monotonic() + grace
        outlived = not self.running
        while self.reap():
            # Each process gets SIGTERM once; programs that handle it may take the whole grace.
            fresh = self.members() - terminated
            if outlived:
                self.report(f"left {len(fresh)}")
                outlived = False
            terminated |= fresh
            if monotonic() < deadline:
                # A stopped process must continue to receive the signals before.
                self._send(fresh, *self.first_signals)
                self._wait([self._woken], min(_POLL_SECONDS, max(deadline - monotonic(), 0)))
            else:
                self._send(self.members(), signal.SIGKILL)
                self._wait([self._woken], 0 if fresh else _POLL_SECONDS)  # no pause while new processes keep appearing

    def reap(self) -> bool:
        """Reap the processes that have ended. Return True while some are left.

        Without a subreaper only the command itself is a child; whether its group lives is asked separately.
        """
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self.command:
                    self.running = False
                    self.report(f"ended {status}")
        except ChildProcessError:
            return not self.adopts and _group_lives(self.command)

    def members(self) -> set[int]:
        """Return all processes below this one. Without a subreaper, return the command's process group as a negative number."""
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
        """Send each signal to each process. Processes that have ended meanwhile are skipped."""
        for pid in pids:
            for number in signals:
                try:
                    os.kill(pid, number)
                except OSError:  # it has ended
                    continue

    def _wait(self, fds: list[int], seconds: float | None) -> list[int]:
        """Wait until a descriptor is readable, and return those that are. `_woken` becomes readable when a child ends."""
        ready = select.select(fds, (), (), seconds)[0]
        if self._woken in ready:
            os.read(self._woken, 4096)
        return ready


def children(pid: int) -> list[int]:
    """Return the children of a process; [] if it has ended.

    A process that ends while it is read counts as one without children: they have a new parent then, which is
    found in the next round.
    """
    try:
        found = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += [int(word) for word in file.read(1 << 20).split()]
        return found
    except OSError:
        return [] if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _children_by_search(pid)


def private_memory(pid: int) -> int:
    """Return the bytes of memory that a process has for itself; 0 if it has ended.

    What processes share after a fork is counted for each of them, so that the sum can be too high, never too low.
    """
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            resident, shared = file.read(4096).split()[1:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def exact_memory(pid: int) -> int:
    """Return the bytes of memory that a process has, its part of what it shares included. Takes a millisecond for 100 MB."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            amounts = {line.split()[0]: int(line.split()[1]) for line in file.readlines()[1:]}
        return (amounts[b"Pss_Anon:"] + amounts[b"Pss_Shmem:"]) * 1024
    except (OSError, LookupError, ValueError):  # it has ended, or the kernel does not tell
        return private_memory(pid)


def _children_by_search(pid: int) -> list[int]:
    """Return the children of a process on a kernel that is built without CONFIG_PROC_CHILDREN.

    It reads the status of every process of the machine, so it is used only where the kernel offers nothing
    better.
    """
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
    """Return whether a process of the group is left."""
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _become_command(order: dict[str, Any], streams: list[int], guard: int, conduit: int) -> None:
    """Turn this process, a fork of the guard, into the command. Raises OSError if that is not possible.

    PDEATHSIG ends the command if the guard dies between the fork and the exec.

    order: argv, env, cwd, limits (pairs of a resource and a number), terminal (whether stdin is one), walls (those to put
    around it, or None). Limits above the hard limit of this process are lowered to it, since raising it is refused.
    """
    import resource

    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in _RESTORED:
        signal.signal(number, signal.SIG_DFL)
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # it has died before the line above
        os._exit(127)
    for wanted, stream in enumerate(streams):
        os.dup2(stream, wanted)
    _offer_to_killer()
    if order["terminal"]:
        _control_terminal()
    for number, value in order["limits"]:
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)  # above it is refused
        resource.setrlimit(number, (value, value))
    walls = order["walls"]
    if walls is not None and walls["mounts"] is not None:
        import mounts  # type: ignore[import-not-found]

        mounts.change(walls["mounts"])
    if order["proxy"] is not None and _has_own_network(walls):
        _add_proxy(order, conduit)
    os.chdir(order["cwd"])
    if walls is not None:
        import landlock  # type: ignore[import-not-found]

        landlock.restrict(walls)
    _execute(order["argv"], order["env"])


def _offer_to_killer() -> None:
    """Make this process, and all that it starts, the first that the kernel ends when memory is short."""
    prctl(_PR_SET_DUMPABLE, 1)  # otherwise its files in /proc belong to root
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(str(_OOM_SCORE).encode())
    except OSError:  # not Linux, or it has a higher score already
        return


def _control_terminal() -> None:
    """Make stdin, a terminal, the controlling terminal of this session: Ctrl-C reaches the command, and /dev/tty opens it."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _execute(argv: list[str], env: dict[str, str]) -> None:
    """Do what os.execvpe does, without the modules that it imports."""
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


def open_proxy(conduit: int) -> int:
    """Open a socket that the command can connect to, and pass it to the daemon, which serves it. Return its port. Raises OSError.

    conduit: descriptor of the socket to the daemon. The guard keeps none of both.
    """
    import _socket  # a third of the time that `socket` takes
    from _struct import pack

    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    daemon = _socket.socket(fileno=conduit)
    daemon.sendmsg([b"proxy"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, pack("i", listener.fileno()))])
    port = int(listener.getsockname()[1])
    daemon.close()
    listener.close()
    return port


def _has_own_network(walls: dict[str, Any] | None) -> bool:
    """Return whether the process that becomes the command makes a network, in which it has to open the proxy itself."""
    return walls is not None and walls["mounts"] is not None and walls["mounts"].get("network", False)


def _add_proxy(order: dict[str, Any], conduit: int) -> None:
    """Open a proxy, tell the command where it is, and let it connect there. Variables that the task has set stay."""
    port = open_proxy(conduit)
    for name, value in order["proxy"].items():
        order["env"].setdefault(name, value.replace("{port}", str(port)))
    if order["walls"] is not None:
        order["walls"]["ports"] = None if _has_own_network(order["walls"]) else [port]


def read_order() -> dict[str, Any] | None:
    """Return what to run, or None if the daemon was gone before it had sent all of it."""
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
    """Guard one command to its end. Return True if nothing can have escaped."""
    report, *streams, conduit = map(int, sys.argv[1:6])
    for descriptor in {report, *streams}:
        os.set_inheritable(descriptor, False)
    guard = Guard(report)
    order = read_order()
    if order is None:
        return True
    if order["proxy"] is not None and not _has_own_network(order["walls"]):
        try:
            _add_proxy(order, conduit)
        except OSError as error:
            guard.report(f"refused {error.errno} the proxy")
            return True
    if order["terminal"]:
        guard.first_signals.insert(
            0, signal.SIGHUP
        )  # interactive shells ignore SIGTERM and end when their terminal hangs up
    guard.start(order, streams, conduit)
    for descriptor in {
        *streams,
        *([conduit] if order["proxy"] is not None and _has_own_network(order["walls"]) else []),
    }:
        os.close(descriptor)
    exceeded = guard.watch(order["memory"], order["processes"])
    guard.end(0.0 if exceeded else order["grace"])
    return guard.adopts


def run() -> None:
    """Guard one command, and end the process."""
    os._exit(0 if main() else 1)
