"""daemon.json and the ready line."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pegasus import __version__
from pegasus.host import HomeError, Notifier, announced, read_daemon
from pegasus.host.daemon import DaemonInfo

WS = "ws://127.0.0.1:7717"


def announce(home):
    return announced(home, Notifier(), ws=WS, clock=lambda: 1772029800000)


def test_while_it_runs_the_file_says_where(home):
    with announce(home):
        assert json.loads(home.daemon.read_text()) == {
            "pid": os.getpid(),
            "ws": WS,
            "http": None,
            "version": __version__,
            "startedAt": 1772029800000,
        }
        assert read_daemon(home) == DaemonInfo(os.getpid(), WS, None, __version__, 1772029800000)
    assert read_daemon(home) is None
    assert list(home.daemon.parent.iterdir()) == []


def test_the_file_is_removed_also_after_an_error(home):
    with pytest.raises(ZeroDivisionError), announce(home):
        raise ZeroDivisionError
    assert not home.daemon.exists()


def test_the_ready_line_is_printed_once_and_at_once(home, capsys):
    with announce(home):
        assert capsys.readouterr().out == f"pegasus ready ws={WS} http=- pid={os.getpid()}\n"
    assert capsys.readouterr().out == ""


def test_the_address_of_the_http_server_is_announced(home, capsys):
    with announced(home, Notifier(), ws=WS, http="http://127.0.0.1:7718"):
        assert read_daemon(home).http == "http://127.0.0.1:7718"
    assert capsys.readouterr().out == f"pegasus ready ws={WS} http=http://127.0.0.1:7718 pid={os.getpid()}\n"


def test_a_file_left_by_a_dead_process_is_ignored(home, start):
    dead = start("")
    dead.wait(timeout=20)
    home.daemon.write_text(json.dumps({"pid": dead.pid, "ws": WS, "http": None, "version": "1", "startedAt": 1}))
    assert read_daemon(home) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"pid":"x"}',
        b'{"pid":0,"ws":"","http":null,"version":"","startedAt":0}',
        b"\xff",
        b'{"pid":-1}',
        b'{"pid":1e400}',
    ],
)
def test_a_file_that_makes_no_sense_is_ignored(home, content):
    home.daemon.write_bytes(content)
    assert read_daemon(home) is None


def test_a_daemon_that_was_killed_and_that_nobody_has_reaped_does_not_run(home):
    """Until its parent asks how it ended, which the first process of a container may never do."""
    killed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        home.daemon.write_text(json.dumps({"pid": killed.pid, "ws": WS, "http": None, "version": "", "startedAt": 0}))
        assert read_daemon(home).pid == killed.pid
        killed.kill()
        os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays as it is
        assert read_daemon(home) is None
    finally:
        killed.communicate()


def test_no_file_no_daemon(home):
    assert read_daemon(home) is None


def test_a_place_that_cannot_be_written(home):
    home.daemon.mkdir()
    with pytest.raises(HomeError, match=r"daemon\.json: cannot be written"), announce(home):
        pass


READY = """
import sys
from pathlib import Path
from pegasus.host import Home, Notifier, announced
sys.stdin.readline()
with announced(Home(Path(sys.argv[1])), Notifier(), ws="ws://x"):
    sys.stderr.write("went on")
"""


def test_a_reader_of_stdout_that_left_is_no_error(home, start):
    process = start(READY, home.path)
    process.stdout.close()
    process.stdin.write("\n")
    process.stdin.close()
    assert process.wait(timeout=20) == 0
    assert process.stderr.read() == "went on"


def test_a_closed_stdout_is_no_error(home, start):
    process = start(READY, home.path, stdout=None, preexec_fn=lambda: os.close(1))
    process.stdin.write("\n")
    process.stdin.close()
    assert process.wait(timeout=20) == 0
    assert process.stderr.read() == "went on"


def test_a_full_disk_behind_stdout_is_no_error(home):
    with open("/dev/full", "w") as full:
        command = ["python", "-c", READY, str(home.path)]
        done = subprocess.run(
            [__import__("sys").executable, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=20,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"went on")
