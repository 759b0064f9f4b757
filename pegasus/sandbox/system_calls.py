"""The filter of system calls beneath the walls of both kinds (seccomp(2)): calls that no program of a workspace needs.

What they have in common is that they act on more than files and the processes of the command: on other processes (their limits,
priorities, memory), on what the kernel keeps for the whole user or machine (key rings, System V IPC, message queues, modules), or on
parts of the kernel in which mistakes are found again and again. Neither folders nor namespaces stop all of them: within Landlock's
walls there are no namespaces for them, and those of bubblewrap share the kernel with everybody.

The filter is made here, once; the process that becomes a command applies it just before exec (`landlock.restrict`). It is inherited,
and cannot be taken back.

    data = filter_data("x86_64", tcp=False, unix=True)   # the program for the kernel, 8 bytes a step

A refusal is EPERM. It is ENOSYS where programs then take the way that they have for older kernels: the C library goes from clone3,
whose flags a filter cannot see, to clone, whose flags it can. Calls of another architecture are ENOSYS too: they have other numbers,
so they would pass by everything here.
"""

from __future__ import annotations

import errno
from struct import pack
from typing import Final

import attrs

_LOAD: Final = 0x20
_MASK: Final = 0x54
_EQUAL, _AT_LEAST, _HAS_BITS = 0x15, 0x35, 0x45
_RETURN: Final = 0x06
"""Operations of the filter's small language (BPF)."""
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000
"""Results of the filter; an errno is added to the second."""
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16
"""Places in what the filter reads: the system call's number, the architecture, six arguments of eight bytes."""
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET, _TCP = 1, 5, 6
_X32: Final = 0x40000000
"""Bit of system calls of an x86 interface that has numbers of its own."""
_NEWEST: Final = 469
"""Number of the newest call that is known here, on both architectures; nobody knows what later ones do."""
_FASTOPEN: Final = 0x20000000
"""Flag of a send that connects; Landlock does not see such a connection."""
_NAMESPACES: Final = 0x7E020000
"""Flags of clone and unshare that make namespaces."""
_NEW_TIME: Final = 0x80
"""The same for time; a flag of unshare only."""
_TYPES: Final = (0x5412, 0x541C)
"""Requests of ioctl that put characters into the input of a terminal, as if somebody had typed them: TIOCSTI and TIOCLINUX."""
_LEASE: Final = 1024
"""Command of fcntl that makes others wait before they write to a file: F_SETLEASE."""
_CORE_SCHEDULING: Final = 62
"""Option of prctl that decides which processes run beside each other: PR_SCHED_CORE."""
_WHO_USER: Final = 2
"""First argument of setpriority: all processes of a user. For ioprio_set it is one more."""
_PERSONALITIES: Final = (0, 0xFFFFFFFF)
"""Arguments of personality that change nothing: the usual one, and the question which it is."""

REFUSED: Final = {
    # Names, with their numbers on x86_64 and on aarch64.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "mq_timedsend": (242, 182),
    "mq_timedreceive": (243, 183),
    "mq_notify": (244, 184),
    "mq_getsetattr": (245, 185),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "fanotify_init": (300, 262),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "syslog": (103, 116),
    "lookup_dcookie": (212, 18),
    "vhangup": (153, 58),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
}
"""Calls that are refused whatever their arguments are."""
MISSING: Final = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}
"""Calls that seem not to exist, because programs then do without."""
OF_OTHERS: Final = {
    "prlimit64": (302, 261),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setaffinity": (203, 122),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
}
"""Calls whose first argument is a process, which must be 0, the calling one. A filter does not know its number, so naming that is
refused, too."""
BY_ARGUMENTS: Final = {
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "personality": (135, 92),
    "clone": (56, 220),
    "unshare": (272, 97),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "prctl": (157, 167),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
}
"""Calls that are refused with some arguments."""
ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Names of the architectures that a filter can be made for, as uname(2) has them, and as the kernel tells a filter."""


@attrs.frozen
class FilterStep:
    """A step of a filter, which only jumps forward. Example: `FilterStep(0x15, 0, 1, 101)` skips one step unless 101 is at hand."""

    operation: int
    """Number of the operation."""
    if_true: int
    """Steps to skip if a comparison holds."""
    if_false: int
    """Steps to skip if it does not."""
    value: int
    """Number that it works with."""


_REFUSAL: Final = FilterStep(_RETURN, 0, 0, _REFUSE | errno.EPERM)
_NO_CALL: Final = FilterStep(_RETURN, 0, 0, _REFUSE | errno.ENOSYS)
_NO_SOCKET: Final = FilterStep(_RETURN, 0, 0, _REFUSE | errno.EACCES)
_ALLOWED: Final = FilterStep(_RETURN, 0, 0, _ALLOW)


def filter_steps(machine: str, *, tcp: bool, unix: bool) -> list[FilterStep]:
    """Return the filter for a machine of `ARCHITECTURES`.

    unix: bubblewrap's walls, which have a network of their own: sockets of the internet and unix sockets may be made. Otherwise
    they are Landlock's: there are no unix sockets but pairs, since one with a path leads to any service of the system, and of the
    internet only TCP if `tcp`; where that leads to is Landlock's decision.

    Each part begins with the number of a call at hand, and either ends the filter or passes to the next part with it still at hand.
    """
    column = list(ARCHITECTURES).index(machine)
    number = {name: numbers[column] for name, numbers in (OF_OTHERS | BY_ARGUMENTS).items()}
    steps = [
        _load(_MACHINE),
        FilterStep(_EQUAL, 1, 0, ARCHITECTURES[machine]),
        _NO_CALL,
        _load(_NUMBER),
    ]
    if machine == "x86_64":
        steps += [FilterStep(_AT_LEAST, 0, 1, _X32), _NO_CALL]
    steps += [FilterStep(_AT_LEAST, 0, 1, _NEWEST + 1), _NO_CALL]
    for calls, outcome in ((REFUSED, _REFUSAL), (MISSING, _NO_CALL)):
        for numbers in calls.values():
            steps += _where(numbers[column], [outcome])
    for name in OF_OTHERS:
        steps += _where(number[name], [_argument(0), *_only((0,), _REFUSAL)])
    # "Who" is the calling process or its group, which a command has to itself; never a user.
    for name, of_user in (("setpriority", _WHO_USER), ("ioprio_set", _WHO_USER + 1)):
        checks = [_argument(0), *_except((of_user,), _REFUSAL), _argument(1), *_only((0,), _REFUSAL)]
        steps += _where(number[name], checks)
    steps += _where(number["personality"], [_argument(0), *_only(_PERSONALITIES, _REFUSAL)])
    for name, flags in (("clone", _NAMESPACES), ("unshare", _NAMESPACES | _NEW_TIME)):
        steps += _where(number[name], [_argument(0), FilterStep(_HAS_BITS, 0, 1, flags), _REFUSAL, _ALLOWED])
    steps += _where(number["ioctl"], [_argument(1), *_except(_TYPES, _REFUSAL), _ALLOWED])
    steps += _where(number["fcntl"], [_argument(1), *_except((_LEASE,), _REFUSAL), _ALLOWED])
    steps += _where(number["prctl"], [_argument(0), *_except((_CORE_SCHEDULING,), _REFUSAL), _ALLOWED])
    steps += _where(number["socket"], _socket_steps(tcp=tcp, unix=unix))
    if not unix:
        # Each packet of a datagram socket may go to another address, those of a pair too.
        kinds = [_argument(1), FilterStep(_MASK, 0, 0, 0xF), *_only((_STREAM, _SEQPACKET), _NO_SOCKET)]
        steps += _where(number["socketpair"], kinds)
        for name, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)) if tcp else ():
            steps += _where(
                number[name], [_argument(flags), FilterStep(_HAS_BITS, 0, 1, _FASTOPEN), _NO_SOCKET, _ALLOWED]
            )
    return [*steps, _ALLOWED]


def filter_data(machine: str, *, tcp: bool, unix: bool) -> bytes:
    """Return the filter as the kernel takes it. The arguments are those of `filter_steps`."""
    return b"".join(pack("=HBBI", *attrs.astuple(step)) for step in filter_steps(machine, tcp=tcp, unix=unix))


def _socket_steps(*, tcp: bool, unix: bool) -> list[FilterStep]:
    """Return the steps about a new socket: which families there are, and of which kind."""
    route = [_argument(2), *_only((0,), _NO_SOCKET)]  # of netlink only what tells addresses and routes
    steps = [_argument(0), *_if_equal(_NETLINK, route)]
    if unix:
        return [*steps, *_only((_UNIX, _INET, _INET6), _NO_SOCKET)]
    if tcp:
        # Without SOCK_NONBLOCK and SOCK_CLOEXEC. Other protocols than TCP pass by Landlock, also MPTCP.
        stream = [_argument(1), FilterStep(_MASK, 0, 0, 0xF), FilterStep(_EQUAL, 1, 0, _STREAM), _NO_SOCKET]
        stream += [_argument(2), *_only((0, _TCP), _NO_SOCKET)]
        for family in (_INET, _INET6):
            steps += _if_equal(family, stream)
    return [*steps, _NO_SOCKET]


def _load(place: int) -> FilterStep:
    """Return the step that takes four bytes at hand."""
    return FilterStep(_LOAD, 0, 0, place)


def _argument(index: int) -> FilterStep:
    """Return the step that takes an argument at hand, of which the kernel uses no more than the lower half here.

    It stands first, because all of `ARCHITECTURES` are little-endian.
    """
    return _load(_ARGUMENTS + 8 * index)


def _where(number: int | None, steps: list[FilterStep]) -> list[FilterStep]:
    """Return steps for one system call. They must end the filter. number: None if the architecture has no such call."""
    return [] if number is None else _if_equal(number, steps)


def _if_equal(value: int, steps: list[FilterStep]) -> list[FilterStep]:
    """Return steps that are made if a value is at hand, and skipped otherwise."""
    return [FilterStep(_EQUAL, 0, len(steps), value), *steps]


def _only(values: tuple[int, ...], otherwise: FilterStep) -> list[FilterStep]:
    """Return steps that allow a call if one of these values is at hand, and end otherwise."""
    steps = [FilterStep(_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [*steps, otherwise, _ALLOWED]


def _except(values: tuple[int, ...], outcome: FilterStep) -> list[FilterStep]:
    """Return steps that end if one of these values is at hand, and go on otherwise."""
    return [step for value in values for step in (FilterStep(_EQUAL, 0, 1, value), outcome)]
