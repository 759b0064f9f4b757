"""Walls around commands, with the real process: system calls that act on more than files and a command's own processes."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.blackbox.support import Call, serving
from tests.blackbox.support import outside as attack
from tests.blackbox.support.walls import WALLS, attacked, can_make_mounts
from tests.blackbox.support.work import Office, act, answer, heard, shell

ATTACK = Path(attack.__file__).read_text()


@pytest.fixture
def shared_memory():
    """A file in /dev/shm, where programs of the user share memory."""
    path = Path("/dev/shm/pegasus-test")
    path.write_text("of another program")
    yield
    path.unlink()


def known_of(path):
    """All that the system knows of a file and a command might change; None if it is gone."""
    if not path.exists():
        return None
    found = path.stat()
    names = [name for name in os.listxattr(path) if name.startswith("user.")]
    return found.st_mode, found.st_uid, found.st_gid, found.st_nlink, sorted(names), path.is_dir() or found.st_mtime_ns


def state_of(pid):
    """Limits, priority and processors of a process."""
    priority = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[15:17]
    return Path(f"/proc/{pid}/limits").read_text(), priority, os.sched_getaffinity(pid)


async def test_a_command_acts_on_no_process_no_key_and_no_file_outside(tmp_path, walled, shared_memory):
    """Limits, priority and affinity of the daemon, keys and memory that programs share, parts of the kernel; rights, owners and times
    of the token, the settings, the home and a file beside it, by name and by descriptor."""
    seen = {}

    def command(daemon):
        beside = tmp_path / "beside"
        beside.write_text("mine")
        beside.chmod(0o640)
        files = [beside, daemon.home / "token", daemon.home / "pegasus.toml", daemon.home, tmp_path]
        seen.update({path: known_of(path) for path in files})
        seen["daemon"] = daemon.pid, state_of(daemon.pid)
        return f"{sys.executable} attack.py {daemon.pid} {' '.join(map(str, files))}"

    checked = {}

    def compare():
        pid, before = seen.pop("daemon")
        checked["daemon"] = state_of(pid) == before
        checked.update({path.name: known_of(path) == known for path, known in seen.items()})

    result, _, walls = await attacked(tmp_path, walled, command, files={"attack.py": ATTACK}, finally_do=compare)
    assert walls["state"] == ("full" if walls["kind"] == "bubblewrap" or can_make_mounts() else "partial")
    assert result["stdout"] == "end\n", result
    assert checked == dict.fromkeys(checked, True)
    assert len(checked) == 6


async def test_partial_walls_ask_after_text_from_outside_and_the_state_is_shown(tmp_path):
    """bubblewrap whose trial says that something gets through, on a kernel of another architecture for example."""
    program = tmp_path / "bwrap"
    program.write_text('#!/bin/sh\ncase "$*" in *trial*) echo limits;; *) exec /usr/bin/bwrap "$@";; esac\n')
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    look, read = act(shell("echo seen")), act(Call("read_file", {"path": "readme"}))
    book = Office({"plain": [look, answer("done")], "reading": [read, look, answer("done")]})
    async with serving(tmp_path, book, {**WALLS, "policy.rules": []}, env=env) as daemon:
        (daemon.home / "workspace/readme").write_text("anything")
        async with daemon.client() as client:
            await client.say("do plain")
            assert await heard(client) == ["completed: done"]
            await client.say("do reading")
            asked = await client.get("approval", state="open")
            assert (asked["tool"], asked["arguments"]) == ("shell_exec", {"command": "echo seen"})
            assert "partial" in asked["why"]
            status = (await client.call("status"))["sandbox"]
            assert (status["kind"], status["state"], status["walled"]) == ("bubblewrap", "partial", False)
            assert "Note: walls around commands" in await client.ask("/status")
        assert re.search(r"^Walls +.*partial", (await daemon.command("status")).out, re.MULTILINE)
        assert "apt install bubblewrap" in (await daemon.command("doctor")).out
