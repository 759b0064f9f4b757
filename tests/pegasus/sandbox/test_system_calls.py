"""The filter of system calls, carried out step by step as the kernel does."""

import errno

import pytest

from pegasus.sandbox.system_calls import (
    ARCHITECTURES,
    BY_ARGUMENTS,
    MISSING,
    OF_OTHERS,
    REFUSED,
    filter_data,
    filter_steps,
)

ALLOWED = 0


def outcome_of(steps, machine, number, arguments=()):
    """What the kernel does with a filter, in a few lines: the errno of a refusal, 0 for a call that is made."""
    values = dict.fromkeys(range(16, 64, 8), 0)
    values |= {0: number, 4: machine} | {16 + 8 * index: value & 0xFFFFFFFF for index, value in enumerate(arguments)}
    at, held = 0, 0
    while True:
        step = steps[at]
        at += 1
        match step.operation:
            case 0x20:
                held = values[step.value]
            case 0x54:
                held &= step.value
            case 0x15:
                at += step.if_true if held == step.value else step.if_false
            case 0x35:
                at += step.if_true if held >= step.value else step.if_false
            case 0x45:
                at += step.if_true if held & step.value else step.if_false
            case 0x06:
                return ALLOWED if step.value == 0x7FFF0000 else step.value & 0xFFFF


@pytest.fixture(params=ARCHITECTURES)
def machine(request):
    return request.param


@pytest.fixture
def column(machine):
    return list(ARCHITECTURES).index(machine)


@pytest.fixture
def make(machine):
    """Makes a function that says what becomes of a call, within the walls of one kind."""

    def make(*, tcp=False, unix=True):
        steps = filter_steps(machine, tcp=tcp, unix=unix)
        return lambda number, *arguments, on=ARCHITECTURES[machine]: outcome_of(steps, on, number, arguments)

    return make


@pytest.fixture
def by_name(make, column):
    """Says what becomes of a call, given by its name, within walls of bubblewrap."""
    outcome, numbers = make(), OF_OTHERS | BY_ARGUMENTS
    return lambda name, *arguments: outcome(numbers[name][column], *arguments)


PROMISED = """
io_uring_setup io_uring_enter io_uring_register add_key request_key keyctl clone3
ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd bpf perf_event_open userfaultfd fanotify_init
shmget shmat shmctl shmdt semget semop semctl semtimedop msgget msgsnd msgrcv msgctl
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
setns mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr open_by_handle_at
prlimit64 sched_setscheduler sched_setattr sched_setparam sched_setaffinity migrate_pages move_pages
"""
"""Calls of the kinds that the pages promise to be refused, whole or about other processes."""


def test_no_call_of_a_kind_that_is_promised_is_left_out():
    assert set(PROMISED.split()) - {*REFUSED, *MISSING, *OF_OTHERS} == set()


@pytest.mark.parametrize("unix", [True, False])
@pytest.mark.parametrize("tcp", [True, False])
def test_calls_that_no_program_of_a_workspace_needs_are_refused_whatever_their_arguments(make, column, tcp, unix):
    outcome = make(tcp=tcp, unix=unix)
    for arguments in ((), (0, 0, 0), (1, 2, 3)):
        assert {outcome(n[column], *arguments) for n in REFUSED.values() if n[column] is not None} == {errno.EPERM}
        assert {outcome(n[column], *arguments) for n in MISSING.values()} == {errno.ENOSYS}


def test_files_processes_and_threads_are_no_matter_of_the_filter(make, machine):
    outcome = make()
    usual = {"x86_64": (0, 1, 9, 59, 61, 62, 90, 92, 132, 202, 268, 280), "aarch64": (52, 54, 63, 98, 129, 221, 260)}
    assert {outcome(number) for number in usual[machine]} == {ALLOWED}
    assert outcome(452) == ALLOWED, "fchmodat2: mounts and folders decide about it"
    assert outcome(470) == outcome(1000) == errno.ENOSYS, "calls that nobody knows yet"


def test_a_process_may_limit_and_schedule_itself_and_nobody_else(by_name):
    for name in OF_OTHERS:
        assert by_name(name, 0) == ALLOWED
        assert by_name(name, 1) == by_name(name, 4711) == errno.EPERM
    for name, process, group, user in (("setpriority", 0, 1, 2), ("ioprio_set", 1, 2, 3)):
        assert by_name(name, process, 0, 19) == by_name(name, group, 0, 19) == ALLOWED
        assert by_name(name, process, 4711, 19) == by_name(name, group, 4711, 19) == errno.EPERM
        assert by_name(name, user, 0, 19) == by_name(name, user, 1000, 19) == errno.EPERM


def test_processes_and_threads_are_made_and_namespaces_are_not(by_name):
    assert by_name("clone", 17) == by_name("clone", 0x3D0F00) == ALLOWED
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert by_name("clone", flag | 17) == by_name("unshare", flag) == errno.EPERM
    assert by_name("unshare", 0x80) == errno.EPERM
    assert by_name("unshare", 0x400) == ALLOWED, "its own table of descriptors"


def test_a_terminal_is_set_up_and_nothing_is_typed_into_it(by_name):
    assert by_name("ioctl", 0, 0x5401) == by_name("ioctl", 0, 0x540E) == ALLOWED
    assert by_name("ioctl", 0, 0x5412) == by_name("ioctl", 0, 0x541C) == errno.EPERM
    assert by_name("ioctl", 0, 0x5412 | 1 << 32) == errno.EPERM, "the kernel does not look at the upper half"


def test_odd_requests_of_usual_calls(by_name):
    assert by_name("fcntl", 3, 1) == by_name("prctl", 15) == by_name("personality", 0xFFFFFFFF) == ALLOWED
    assert by_name("fcntl", 3, 1024) == by_name("prctl", 62) == by_name("personality", 0x40000) == errno.EPERM


def test_other_architectures_have_no_calls(make, machine):
    outcome = make()
    assert outcome(0, on=0x40000003) == outcome(165, on=0) == errno.ENOSYS
    if machine == "x86_64":
        assert outcome(0x40000000 | 41, 2, 1, 0) == errno.ENOSYS, "x32"


@pytest.mark.parametrize("tcp", [True, False])
def test_within_landlocks_walls_there_are_only_these_sockets(make, column, tcp):
    outcome = make(tcp=tcp, unix=False)
    socket, pair = BY_ARGUMENTS["socket"][column], BY_ARGUMENTS["socketpair"][column]
    with_tcp = ALLOWED if tcp else errno.EACCES
    for family in (2, 10):
        assert outcome(socket, family, 1, 0) == with_tcp
        assert outcome(socket, family, 1 | 0o2004000, 6) == with_tcp, "with flags"
        assert outcome(socket, family, 1, 262) == errno.EACCES, "MPTCP, which Landlock does not see"
        assert outcome(socket, family, 2, 0) == outcome(socket, family, 3, 1) == errno.EACCES
    assert outcome(socket, 16, 3, 0) == ALLOWED
    assert outcome(socket, 16, 3, 9) == errno.EACCES
    for family in (0, 1, 17, 38, 40):
        assert outcome(socket, family, 1, 0) == errno.EACCES
    for kind, expected in ((1, ALLOWED), (5, ALLOWED), (2, errno.EACCES), (3, errno.EACCES)):
        assert outcome(pair, 1, kind, 0) == outcome(pair, 1, kind | 0o2004000, 0) == expected
    for name, before in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        number = BY_ARGUMENTS[name][column]
        assert outcome(number, *[0] * before, 0, 0) == ALLOWED
        if tcp:
            assert outcome(number, *[0] * before, 0x20000000, 0) == errno.EACCES


def test_within_bubblewraps_walls_there_are_the_usual_sockets(make, column):
    outcome, socket = make(), BY_ARGUMENTS["socket"][column]
    for family in (1, 2, 10):
        assert outcome(socket, family, 1, 0) == outcome(socket, family, 2, 17) == ALLOWED
    assert outcome(socket, 16, 3, 0) == ALLOWED
    for family, protocol in ((16, 16), (17, 0), (38, 0), (40, 0), (44, 0)):
        assert outcome(socket, family, 1, protocol) == errno.EACCES


def test_a_filter_is_one_that_the_kernel_takes(machine):
    """It has at most 4,096 steps, all jumps lead to steps of it, and the last step ends it."""
    for unix in (True, False):
        steps = filter_steps(machine, tcp=True, unix=unix)
        assert len(filter_data(machine, tcp=True, unix=unix)) == 8 * len(steps) < 8 * 4096
        for at, step in enumerate(steps):
            assert max(step.if_true, step.if_false) < min(256, len(steps) - at)
        assert steps[-1].operation == 0x06
