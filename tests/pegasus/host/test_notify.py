"""systemd's notify protocol over real datagram sockets."""

from __future__ import annotations

import os
import socket
import time
import uuid

import pytest
import trio

from pegasus.host import Home, Notifier, announced, ask_to_start_again, is_asked_to_start_again


@pytest.fixture
def receiver(tmp_path):
    """What systemd would be."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(10)
        yield receiver


def received(receiver) -> list[dict[str, str]]:
    receiver.setblocking(False)
    messages = []
    while True:
        try:
            messages.append(dict(line.split("=", 1) for line in receiver.recv(4096).decode().splitlines()))
        except BlockingIOError:
            return messages


def test_ready_and_stopping(home, receiver, capsys):
    with announced(home, Notifier(receiver.getsockname()), ws="ws://x"):
        (message,) = received(receiver)
        assert message["READY"] == "1"
        assert "ws=ws://x" in message["STATUS"]
    assert [message["STOPPING"] for message in received(receiver)] == ["1"]


def test_a_reload_begins_with_its_time_and_ends_ready_again(home, receiver):
    notifier = Notifier(receiver.getsockname())
    notifier.ready("up")
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    with pytest.raises(OSError, match="no file"), notifier.reloading():
        raise OSError("no file")
    _, reloading, ready = received(receiver)
    assert reloading["RELOADING"] == "1"
    assert before <= int(reloading["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert ready == {"READY": "1", "STATUS": "up"}


def test_a_reload_before_ready_and_after_a_stop_has_begun_claims_nothing(receiver):
    notifier = Notifier(receiver.getsockname())
    with notifier.reloading():
        pass
    notifier.ready("up")
    with notifier.reloading():
        notifier.stopping()
    assert [next(iter(message)) for message in received(receiver)] == ["READY", "RELOADING", "STOPPING"]


def test_the_environment_says_where_and_is_not_passed_on_to_children(receiver):
    environ = {
        "NOTIFY_SOCKET": receiver.getsockname(),
        "WATCHDOG_USEC": "3000000",
        "WATCHDOG_PID": str(os.getpid()),
        "PATH": "/bin",
    }
    notifier = Notifier.from_environment(environ)
    notifier.ready("up")
    assert received(receiver) == [{"READY": "1", "STATUS": "up"}]
    assert notifier.watchdog == 3.0
    assert environ == {"PATH": "/bin"}


def test_an_abstract_socket():
    name = f"pegasus-test-{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        Notifier("@" + name).ready("up")
        assert received(receiver)[0]["READY"] == "1"


async def test_signs_of_life_come_twice_as_often_as_wanted(receiver, autojump_clock):
    notifier = Notifier(receiver.getsockname(), watchdog=10.0)
    with trio.move_on_after(20.5):
        await notifier.keep_alive()
    assert received(receiver) == [{"WATCHDOG": "1"}] * 5


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "3000000"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"},
    ],
)
async def test_without_a_watchdog_there_are_none(environ, autojump_clock):
    await Notifier.from_environment(environ).keep_alive()


def test_without_a_pid_the_watchdog_is_for_everybody():
    assert Notifier.from_environment({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000"}).watchdog == 3.0


@pytest.mark.parametrize("address", ["", "/nonexistent/socket", "/" + "x" * 300, "vsock:2:1", "a\0b"])
def test_nobody_listening_is_no_error(address):
    Notifier(address).ready("up")


def test_a_supervisor_that_does_not_read_is_not_waited_for(receiver):
    notifier = Notifier(receiver.getsockname())
    for _ in range(2000):
        notifier.stopping()


def test_the_home_is_needed_no_more_than_its_file(tmp_path, receiver):
    """STOPPING=1 is said also where daemon.json vanished with the home."""
    home = Home(tmp_path / "home")
    home.prepare()
    with announced(home, Notifier(receiver.getsockname()), ws="ws://x"):
        home.daemon.unlink()
    assert received(receiver)[-1]["STOPPING"] == "1"


def test_a_process_that_starts_again_does_not_say_that_it_stops(home, receiver, monkeypatch):
    """It hands the connection on, in whose place systemd would else wait for an end."""
    for name, value in {"NOTIFY_SOCKET": receiver.getsockname(), "WATCHDOG_USEC": "3000000"}.items():
        monkeypatch.setenv(name, value)
    notifier = Notifier.from_environment()
    with announced(home, notifier, ws="ws://x"):
        ask_to_start_again(home, os.getpid())
        assert is_asked_to_start_again(home)
    assert "NOTIFY_SOCKET" in os.environ
    assert [name for message in received(receiver) for name in message] == ["READY", "STATUS", "WATCHDOG"]
    again = Notifier.from_environment()
    assert again.watchdog == 3.0
    with notifier.reloading():
        pass
    assert received(receiver) == []


def test_another_process_is_not_asked_to_start_again(home, receiver):
    ask_to_start_again(home, os.getpid() + 1)
    assert not is_asked_to_start_again(home)
    with announced(home, Notifier(receiver.getsockname()), ws="ws://x"):
        assert not home.restart.exists(), "one that had this number and was killed has left it"
