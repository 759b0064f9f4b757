"""A program that runs within walls and tries what no command may do to processes, the kernel and files outside.

    python outside.py PID [FILE…]   # of a process and of files outside of what may be written

It prints the name of each attempt that was not refused, and "end". What it tries with files shows in the files.
"""

import ctypes
import fcntl
import os
import socket
import sys
from struct import pack

LIBC = ctypes.CDLL(None, use_errno=True)
IS_X86 = os.uname().machine == "x86_64"
ROOM = ctypes.create_string_buffer(4096)


def call(x86, arm, *arguments):
    """A system call by its number on each architecture."""
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    if LIBC.syscall(x86 if IS_X86 else arm, *values) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def attempts(pid):
    """What must be refused: name and function. pid: a process outside; the first one and the user are tried, too."""
    guard, user, own = 1, os.getuid(), os.getpid()
    limits = pack("QQ", 3, 3)
    return {
        "look at limits": lambda: call(302, 261, pid, 0, None, ROOM),
        "limit a process": lambda: call(302, 261, pid, 7, limits, None),
        "limit its guard": lambda: call(302, 261, guard, 7, limits, None),
        "priority": lambda: call(141, 140, 0, pid, 19),
        "priority of its guard": lambda: call(141, 140, 0, guard, 19),
        "priority of the user": lambda: call(141, 140, 2, 0, 1),
        "disk priority": lambda: call(251, 30, 1, pid, 3 << 13),
        "disk priority of the user": lambda: call(251, 30, 3, user, 3 << 13),
        "affinity": lambda: call(203, 122, pid, 8, pack("Q", 1)),
        "scheduler": lambda: call(144, 119, pid, 3, pack("i", 0)),
        "scheduling parameters": lambda: call(142, 118, pid, pack("i", 0)),
        "scheduling attributes": lambda: call(314, 274, pid, pack("IIQiIQQQII", 56, 3, 0, 0, 0, 0, 0, 0, 0, 0), 0),
        "core scheduling": lambda: call(157, 167, 62, 1, pid, 0, 0),
        "move pages": lambda: call(279, 239, pid, 0, None, None, None, 0),
        "migrate pages": lambda: call(256, 238, pid, 64, pack("Q", 1), pack("Q", 1)),
        "shared memory": lambda: call(29, 194, 0x5045, 4096, 0o1600),
        "semaphores": lambda: call(64, 190, 0x5045, 1, 0o1600),
        "message queue": lambda: call(68, 186, 0x5045, 0o1600),
        "posix queue": lambda: call(240, 180, b"pegasus-test", 0o102, 0o600, None),
        "session keys": lambda: call(250, 219, 0, -3, 1),
        "add a key": lambda: call(248, 217, b"user", b"pegasus", b"x", 1, -3),
        "ask for a key": lambda: call(249, 218, b"user", b"pegasus", None, -3),
        "io_uring": lambda: call(425, 425, 4, ROOM),
        "userfaultfd": lambda: call(323, 282, 1),
        "bpf": lambda: call(321, 280, 0, ROOM, 64),
        "perf": lambda: call(298, 241, pack("IIQ", 1, 112, 0) + bytes(96), 0, -1, -1, 0),
        "attach": lambda: call(101, 117, 16, pid, 0, 0),
        "be traced": lambda: call(101, 117, 0, 0, 0, 0),
        "read memory": lambda: call(310, 270, own, ROOM, 0, ROOM, 0, 0),
        "compare": lambda: call(312, 272, own, own, 1, 0, 0),
        "take a descriptor": lambda: call(438, 438, os.pidfd_open(own), 1, 0),
        "user namespace": lambda: call(272, 97, 0x10000000),
        "mount namespace": lambda: call(272, 97, 0x20000),
        "child in a namespace": lambda: call(56, 220, 0x10000000 | 17, 0, 0, 0, 0) or os._exit(0),
        "child by clone3": lambda: call(435, 435, pack("Q", 0x10000000) + bytes(80), 88) or os._exit(0),
        "enter a namespace": lambda: call(308, 268, os.open("/proc/self/ns/user", os.O_RDONLY), 0),
        "mount": lambda: call(165, 40, b"none", b"/tmp", b"tmpfs", 0, None),
        "open a tree": lambda: call(428, 428, -100, b"/", 0x80001),
        "file system": lambda: call(430, 430, b"tmpfs", 0),
        "writable mounts": lambda: call(442, 442, -100, b"/", 0x8000, pack("QQQQ", 0, 1, 0, 0), 32),
        "unmount": lambda: call(166, 39, b"/proc", 2),
        "root folder": lambda: os.chroot("/"),
        "file by handle": lambda: call(304, 265, -100, ROOM, 0),
        "kernel log": lambda: call(103, 116, 10, 0, 0),
        "personality": lambda: call(135, 92, 0x40000),
        "fanotify": lambda: call(300, 262, 0x200, 0),
        "quota": lambda: call(179, 60, 0x800007 << 8, b"/dev/vda", 0, ROOM),
        "vsock": lambda: socket.socket(40, socket.SOCK_STREAM),
        "packets": lambda: socket.socket(17, socket.SOCK_RAW),
        "crypto socket": lambda: socket.socket(38, 5),
        "audit": lambda: socket.socket(16, 3, 9),
        "type into the terminal": lambda: fcntl.ioctl(0, 0x5412, b"x"),
        "signal": lambda: os.kill(pid, 0),
        "signal by descriptor": lambda: call(424, 424, os.pidfd_open(pid), 0, 0, 0),
        "environment": lambda: write("copy", open(f"/proc/{pid}/environ").read()),
        "folder of a process": lambda: os.listdir(f"/proc/{pid}/cwd"),
        "root of a process": lambda: os.listdir(f"/proc/{pid}/root"),
        "score": lambda: write(f"/proc/{pid}/oom_score_adj", "1000"),
        "automatic groups": lambda: write(f"/proc/{pid}/autogroup", "19"),
        "name": lambda: write(f"/proc/{pid}/comm", "x"),
        "shared files": lambda: open("/dev/shm/pegasus-test").read(),
    }


def change(path):
    """Try to change a file, or what the system knows of it, in every way there is."""

    def descriptor():
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    user, group = os.getuid(), os.getgid()
    ways = (
        lambda: os.chmod(path, 0o777),
        lambda: call(452, 452, -100, path.encode(), 0o777, 0x100),
        lambda: os.chmod(f"/proc/self/root{path}", 0o777),
        lambda: os.chmod(f"/proc/self/fd/{os.open(path, os.O_PATH)}", 0o777),
        lambda: os.chmod(os.path.relpath(path), 0o777),
        lambda: os.fchmod(descriptor(), 0o777),
        lambda: os.chown(path, user, group),
        lambda: os.lchown(path, user, group),
        lambda: os.fchown(descriptor(), user, group),
        lambda: os.utime(path, (1, 1)),
        lambda: os.utime(descriptor(), (1, 1)),
        lambda: os.setxattr(path, "user.test", b"x"),
        lambda: os.setxattr(descriptor(), "user.test", b"x"),
        lambda: os.removexattr(path, "user.mine"),
        lambda: fcntl.ioctl(descriptor(), 0x40086602, pack("l", 0)),
        lambda: call(469, 469, -100, path.encode(), bytes(24), 24, 0),
        lambda: write(path, ""),
        lambda: os.truncate(path, 0),
        lambda: os.link(path, "linked"),
        lambda: os.rename(path, f"{path}.moved"),
        lambda: os.unlink(path),
    )
    for way in ways:
        try:
            way()
        except OSError:
            continue


def main():
    for name, attempt in attempts(int(sys.argv[1])).items():
        try:
            attempt()
        except OSError:
            continue
        print(name)
    for path in sys.argv[2:]:
        change(path)
    print("end")


if __name__ == "__main__":
    main()
