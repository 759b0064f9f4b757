"""Walls that a process puts around itself with the kernel alone: Landlock, a filter of system calls, and no capabilities.

The guard (`pegasus.sandbox.guard`) loads this file in the process that becomes a command, just before exec. It needs neither
a privilege nor a program. Like the guard it imports nothing of Pegasus, and of the standard library only what is built in.

* **Landlock** (landlock(7)) is a list of what may be opened: everything that no rule allows is refused, for the process and all
  that it starts. It also keeps them from signalling or tracing processes outside, from abstract unix sockets (version 6), and from
  TCP (version 4). A refusal is EACCES, of a signal EPERM. Before it, `mounts` makes read-only what may not be written.
* **The filter** (`system_calls`) refuses what Landlock does not see. It stands beneath bubblewrap's walls, too.
* **Capabilities** are dropped, so that root's commands cannot undo the rest.

Nothing of it can be taken back. A step that fails raises OSError, and the command is not started.
"""

from __future__ import annotations

import errno
import os
import sys
from _ctypes import Array, _SimpleCData, addressof, call_function, dlopen, dlsym  # `ctypes` costs five times as much
from _stat import S_ISDIR, S_ISLNK
from _struct import pack

TYPE_CHECKING = False  # importing `typing` takes as long as starting the interpreter
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Final

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
"""Numbers of the system calls, the same on all architectures that Pegasus knows."""
_VERSION: Final = 1
"""Flag of landlock_create_ruleset: return the version instead of a rule set."""
_RULE_PATH: Final = 1
_RULE_PORT: Final = 2
"""Types of rules."""

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE = 1 << 4 | 1 << 5  # folders, files
_MAKE = 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12  # folders, files, sockets, pipes, links
_MOVE = 1 << 13  # from one folder to another
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_OF_VERSION: Final = ((1, (1 << 13) - 1), (2, _MOVE), (3, _TRUNCATE), (5, _IOCTL))
"""Rights on files that each version of Landlock has added."""
_READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE: Final = _READ | _WRITE_FILE | _REMOVE | _MAKE | _MOVE | _TRUNCATE | _IOCTL
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
"""Rights that a rule about a file may have; the others are about folders."""
_BIND, _CONNECT = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2

_PR_SET_SECCOMP: Final = 22
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_LAST_CAPABILITY: Final = 63
_CAPABILITY_VERSION: Final = 0x20080522
"""Form of the arguments of capset: three sets of 64 capabilities."""


def version() -> int:
    """Return the version of Landlock that the kernel offers, 0 without one."""
    if sys.platform != "linux":
        return 0
    try:
        return max(call("syscall", _CREATE_RULESET, None, 0, _VERSION), 0)
    except (ImportError, OSError):
        return 0


def restrict(walls: Mapping[str, Any]) -> None:
    """Put the walls around this process. Raises OSError if one of them does not stand.

    walls: `version` of Landlock, 0 for no rules about files; `read` and `write`, paths of files and folders that may be read, and also
    written; `ports` of TCP that may be connected to, [] for no network at all, None for one of its own; `calls`, the filter of system
    calls. A path that is missing is skipped. With `read` None all may be read and connected to: the rules are about opening files to
    write only, beneath bubblewrap's mounts, which do not keep anybody from writing to a pipe with a name.
    """
    for number in range(_LAST_CAPABILITY + 1):
        # Without privileges there is nothing to drop, and it is refused.
        call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
    call("prctl", _PR_CAP_AMBIENT, 4, 0, 0, 0)
    require(call("capset", pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)))
    # Without it the kernel takes neither the rules nor the filter from a process without privileges; and no program
    # with the setuid bit gets more rights.
    require(call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if walls["version"]:
        if walls["read"] is None:
            _apply_rules(pack("=Q", _WRITE_FILE), (((walls["write"]), _WRITE_FILE),), ())
        else:
            _restrict_files(walls["version"], walls["read"], walls["write"], walls["ports"])
    if walls["calls"]:
        _filter_calls(walls["calls"])


def _restrict_files(version: int, read: Sequence[str], write: Sequence[str], ports: Sequence[int] | None) -> None:
    """Apply Landlock, as far as this version of it goes."""
    # A right that the version does not know is an error for the kernel, so only known ones are handled.
    handled = 0
    for since, rights in _OF_VERSION:
        handled |= rights if version >= since else 0
    # Version 6 keeps signals and abstract sockets within the walls.
    scoped = _ABSTRACT_SOCKETS | _SIGNALS if version >= 6 else 0
    network = 0 if ports is None or version < 4 else _CONNECT if ports else _BIND | _CONNECT
    # The structure has grown with the versions. An older kernel refuses a longer one.
    attributes = pack("=QQQ", handled, network, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    _apply_rules(attributes, ((read, _READ & handled), (write, _WRITE & handled)), ports or ())


def _apply_rules(attributes: bytes, grants: Sequence[tuple[Sequence[str], int]], ports: Sequence[int]) -> None:
    """Apply a set of rules: rights on paths, and ports that may be connected to."""
    rules = call("syscall", _CREATE_RULESET, attributes, len(attributes), 0)
    require(rules)
    try:
        for paths, rights in grants:
            for path in paths:
                _allow_path(rules, path, rights)
        for port in ports:
            require(call("syscall", _ADD_RULE, rules, _RULE_PORT, pack("=QQ", _CONNECT, port), 0))
        require(call("syscall", _RESTRICT_SELF, rules, 0))
    finally:
        os.close(rules)


def _allow_path(rules: int, path: str, rights: int) -> None:
    """Add a rule about a file, or a folder with all below it. One that is missing, or is a link, is skipped."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        mode = os.fstat(descriptor).st_mode
        if not S_ISLNK(mode):
            # The kernel refuses a rule that gives rights about folders to a file.
            rights &= ~0 if S_ISDIR(mode) else _OF_FILES
            require(call("syscall", _ADD_RULE, rules, _RULE_PATH, pack("=Qi", rights, descriptor), 0))
    finally:
        os.close(descriptor)


# ------------------------------------------------------------------ system calls


def _filter_calls(data: bytes) -> None:
    """Apply a filter of system calls, made by `pegasus.sandbox.system_calls`. Raises OSError."""
    character = type("c_char", (_SimpleCData,), {"_type_": "c"})
    array: Any = type("c_char_array", (Array,), {"_type_": character, "_length_": len(data)})
    program = array.from_buffer_copy(data)  # kept until the call below has read it
    # struct sock_fprog: the number of steps, and where they are.
    header = pack("@HP", len(data) // 8, addressof(program))
    require(call("prctl", _PR_SET_SECCOMP, 2, header, 0, 0))


# ------------------------------------------------------------------ calls


def call(name: str, *arguments: Any) -> int:
    """Call a function of the C library with integers, bytes and None; return its result, which is -1 after an error."""
    return int(call_function(dlsym(dlopen(None, 0), name), arguments))  # type: ignore[arg-type]


def require(result: int) -> None:
    """Raise OSError for the result of a call that has failed."""
    if result < 0:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), "the walls around the command")
