"""Mounts of a command's own, which the process that becomes it makes; beneath Landlock's walls also a network of its own.

Landlock decides what may be opened. It has no say about what changes a file without opening it for writing: chmod, chown, times and
attributes, by name or by a descriptor that was opened for reading. A read-only mount refuses all of these, so each of the folders that
may be written becomes a mount of its own, and everything else becomes read-only. Shared memory becomes a folder of the command.

The process that becomes a command does this for itself, before it drops its capabilities; nothing that it starts can change the
mounts again, since that needs capabilities in the namespace. It works without privileges where the kernel lets users make user
namespaces. Like the guard this file imports nothing of Pegasus, and of the standard library only what is built in.
"""

from __future__ import annotations

import os
from _struct import pack

TYPE_CHECKING = False  # importing `typing` takes as long as starting the interpreter
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Final
if TYPE_CHECKING or __package__:  # as a part of Pegasus, and not in the bare interpreter
    from pegasus.sandbox.landlock import call, require
else:
    from landlock import call, require

_NEW_MOUNTS: Final = 0x00020000
_NEW_USER: Final = 0x10000000
_NEW_NETWORK: Final = 0x40000000
"""Flags of unshare(2)."""
_SET_FLAGS: Final = 0x8914
_UP: Final = 0x41
"""Request of ioctl that sets the flags of a network interface, and those of one that is up and running."""
_TELLING: Final = (
    "/proc/keys",
    "/proc/key-users",
    "/proc/kcore",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/proc/latency_stats",
)
"""Files that tell of the keys and programs of others, and of the kernel."""
NAMESPACES: Final = {"user": _NEW_USER | _NEW_MOUNTS, "root": _NEW_MOUNTS}
"""The ways to get a mount namespace: within a user namespace, which may be refused, or plainly, which only root may do."""
_OPEN_TREE: Final = 428
_MOVE_MOUNT: Final = 429
_MOUNT_SETATTR: Final = 442
"""Numbers of the system calls, the same on all architectures that Pegasus knows."""
_HERE: Final = -100
"""Descriptor that stands for the current folder: AT_FDCWD."""
_RECURSIVE: Final = 0x8000
_EMPTY_PATH: Final = 0x1000
_NO_FOLLOW: Final = 0x100
_CLONE_TREE: Final = 0x80001
"""Flags of open_tree: a copy of the mounts, which a program that is started does not inherit."""
_MOVE_FROM_DESCRIPTOR: Final = 4
_READ_ONLY: Final = 1
_PRIVATE: Final = 1 << 18
"""Propagation by which no mount is told to other namespaces: MS_PRIVATE."""


def change(plan: Mapping[str, Any]) -> None:
    """Change the mounts of this process as its walls are planned (`Sandbox`). Raises OSError.

    plan: `namespace` with what `close_outside` takes, beneath Landlock; otherwise `devices`, `sockets`, `closed` and `writable`, in
    the namespace that bubblewrap has made.
    """
    if plan["namespace"]:
        close_outside(plan)
    else:
        make_read_only(plan["devices"])
        hide((*plan["sockets"], *_TELLING))
        close_files(plan["closed"], plan["writable"])


def close_outside(plan: Mapping[str, Any]) -> None:
    """Move this process into a mount namespace of its own, in which only these folders can be written to. Raises OSError.

    plan: `namespace`, one of NAMESPACES; `network`, whether it gets one of its own, with nothing but loopback; `mounted`, files and
    folders that stay writable; `shared`, folder that becomes /dev/shm. What is missing, or vanishes meanwhile, is skipped. The current
    folder and open descriptors of folders are those of before and must be opened anew.
    """
    user, group = os.geteuid(), os.getegid()
    require(call("unshare", NAMESPACES[plan["namespace"]] | (_NEW_NETWORK if plan["network"] else 0)))
    if plan["namespace"] == "user":
        # The same numbers as outside, and no others. Without groups to set, no privilege is needed for it.
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "wb", buffering=0) as file:
                file.write(text.encode())
    if plan["network"]:
        _start_loopback()
    _set_mount(_HERE, b"/", 0, _PRIVATE)
    copies = list(_copies(plan))
    _set_mount(_HERE, b"/", _READ_ONLY, 0)
    for path, descriptor in copies:
        _move(descriptor, path)
    hide(_TELLING)


def _start_loopback() -> None:
    """Start the loopback interface of a new network namespace."""
    import _socket  # a third of the time that `socket` takes
    import fcntl

    interfaces = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    fcntl.ioctl(interfaces.fileno(), _SET_FLAGS, pack("16sh14x", b"lo", _UP))
    interfaces.close()


def _copies(plan: Mapping[str, Any]) -> Iterable[tuple[bytes, int]]:
    """Yield the places of writable mounts, upper ones first, each with a copy of what is to be there."""
    for source, target in [*((path, path) for path in sorted(plan["mounted"])), (plan["shared"], "/dev/shm")]:  # noqa: S108
        descriptor = call("syscall", _OPEN_TREE, _HERE, os.fsencode(source), _CLONE_TREE | _RECURSIVE)
        if descriptor >= 0:
            yield os.fsencode(target), descriptor
        elif os.path.exists(source):
            require(descriptor)


def close_files(closed: Iterable[str], roots: Iterable[str]) -> None:
    """Make files and folders within writable ones read-only, and keep the folders above them from being renamed. Raises OSError.

    roots: the writable folders, which are mounts here. Whoever may write could rename a folder with a closed file in it and make
    another one in its place, so each of them becomes a mount, which cannot be renamed. So does a link, which leads where it did.
    """
    above = set(roots)
    kept = []
    for path in closed:
        while (path := os.path.dirname(path)) not in above and path != "/":
            above.add(path)
            kept.append(path)
    for path in sorted(kept):
        _cover(path, 0)
    for path in closed:
        _cover(path, _READ_ONLY)


def hide(paths: Iterable[str]) -> None:
    """Put /dev/null in the place of files: of unix sockets, which a read-only mount does not keep anybody from connecting to."""
    for path in paths:
        _cover(path, _READ_ONLY, os.devnull)


def _cover(path: str, flags: int, source: str = "") -> None:
    """Mount a file or folder over itself, or another one over it, with flags."""
    descriptor = call("syscall", _OPEN_TREE, _HERE, os.fsencode(source or path), _CLONE_TREE | _RECURSIVE | _NO_FOLLOW)
    if descriptor < 0:
        if os.path.lexists(path):
            require(descriptor)
        return
    if flags:
        _set_mount(descriptor, b"", flags, 0)
    _move(descriptor, os.fsencode(path))


def _move(descriptor: int, path: bytes) -> None:
    """Put a copy of mounts at its place, unless that has vanished."""
    moved = call("syscall", _MOVE_MOUNT, descriptor, b"", _HERE, path, _MOVE_FROM_DESCRIPTOR)
    if moved < 0 and os.path.lexists(path):
        require(moved)
    os.close(descriptor)


def make_read_only(paths: Iterable[str]) -> None:
    """Make mounts that exist read-only. Raises OSError. Of a device it is about the rights and times only, not about what it does."""
    for path in paths:
        if os.path.exists(path):
            _set_mount(_HERE, os.fsencode(path), _READ_ONLY, 0)


def _set_mount(descriptor: int, path: bytes, flags: int, propagation: int) -> None:
    """Set flags, or the propagation, of a mount and all below it. It is at a path, or has the descriptor if that is empty."""
    attributes = pack("=QQQQ", flags, 0, propagation, 0)
    where = _RECURSIVE if path else _RECURSIVE | _EMPTY_PATH
    require(call("syscall", _MOUNT_SETATTR, descriptor, path, where, attributes, len(attributes)))
