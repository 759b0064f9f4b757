"""`pegasus skills list` and `pegasus skills check`."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import suppress

import pytest


@pytest.fixture
def write(user):
    def write(name, front="description: d\n", where="skills", body="Body"):
        folder = user / ".pegasus" / where / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\n{front}---\n{body}", "utf-8")
        return folder

    return write


def test_the_built_in_skills_are_listed_and_in_order(pegasus):
    code, out, err = pegasus("skills", "list")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["NAME", "ORIGIN", "CONTEXT", "CALLED", "BY", "PURPOSE"]
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        "commit",
        "decide",
        "explain",
        "plan-day",
        "remember",
        "review",
    ]
    assert pegasus("skills", "check") == (0, "6 skills: ok\n", "")


def test_one_skill_is_checked_by_its_name(pegasus, write):
    write("good")
    folder = write("bad", front="name: [\n")
    assert pegasus("skills", "check", "good") == (0, "1 skill: ok\n", "")
    code, out, err = pegasus("skills", "check", "bad")
    assert (code, err) == (1, "")
    assert out.startswith(str(folder))
    assert pegasus("skills", "check")[0] == 1
    code, _, err = pegasus("skills", "check", "goood")
    assert code == 1
    assert 'no skill "goood"; there are: commit, decide,' in err


def test_the_list_says_where_a_skill_comes_from_and_who_may_call_it(pegasus, write):
    write("commit", "description: mine\ndisable-model-invocation: true\n")
    write("near", "description: here\nuser-invocable: false\ncontext: fork\n", where="workspace/skills")
    assert "pegasus skills accept near" in pegasus("skills", "list")[1]
    assert pegasus("skills", "accept", "near")[1].startswith("Accepted the skill near: here\n")
    rows = {line.split()[0]: line for line in pegasus("skills", "list")[1].splitlines()}
    assert rows["commit"].split() == ["commit", "home", "inline", "you", "mine"]
    assert rows["near"].split() == ["near", "workspace", "fork", "model", "here"]


@pytest.mark.parametrize(("width", "is_cut"), [(60, True), (300, False), (0, False)])
def test_the_list_is_as_wide_as_the_terminal_and_whole_where_no_width_is_known(user, width, is_cut):
    environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    reading, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    subprocess.run([sys.executable, "-m", "pegasus", "skills", "list"], stdout=terminal, env=environ, check=True)
    os.close(terminal)
    out = b""
    with suppress(OSError):  # Linux: EIO, behind the last byte
        while piece := os.read(reading, 65536):
            out += piece
    os.close(reading)
    row = next(line for line in out.decode().splitlines() if line.startswith("decide "))
    assert row.endswith("Needs no tools.") is not is_cut
    assert (len(row) == width) is is_cut


def test_the_list_as_json(pegasus, write):
    folder = write("mine", "description: d\nallowed-tools: reply\nmodel: default\n")
    answer = json.loads(pegasus("skills", "list", "--json")[1])
    [row] = [row for row in answer["skills"] if row["name"] == "mine"]
    assert row == {
        "name": "mine",
        "description": "d",
        "source": "home",
        "installedFrom": None,
        "revision": None,
        "folder": str(folder),
        "context": "inline",
        "agent": None,
        "model": "default",
        "allowedTools": ["reply"],
        "userInvocable": True,
        "modelInvocable": True,
    }


def test_the_list_says_that_something_is_wrong(pegasus, write):
    write("bad", "name: other\n")
    assert pegasus("skills", "list")[1].endswith("\n1 problem: see `pegasus skills check`.\n")


@pytest.mark.parametrize(
    ("name", "front", "problem"),
    [
        ("bad", "name: other\n", "must be the name of its folder"),
        ("help", "description: d\n", "/help is a command of Pegasus"),
        ("odd", "description: d\nallowed-tools: read_flie\n", "allowed-tools read_flie: there is no such tool"),
        ("odd", "description: d\ncontext: inline\nallowed-tools: shell_exec\n", "the skill wants `context: fork`"),
        ("odd", "description: d\ncontext: fork\nagent: nobody\n", "there are: general, explore, plan"),
        ("odd", "description: d\nmodel: nobody/x\n", 'there is no provider "nobody"'),
    ],
)
def test_what_cannot_be_used_as_it_stands_is_exit_code_1(pegasus, write, name, front, problem):
    folder = write(name, front)
    code, out, err = pegasus("skills", "check")
    assert (code, err) == (1, "")
    [line] = out.splitlines()
    assert str(folder) in line
    assert problem in line


def test_a_warning_is_told_and_no_failure(pegasus, write):
    write("odd", "description: d\nalowed-tools: x\n")
    code, out, _ = pegasus("skills", "check")
    assert code == 0
    assert "unknown key 'alowed-tools'" in out.splitlines()[0]


def test_tools_of_an_mcp_server_are_taken_on_trust(pegasus, write):
    write("odd", "description: d\nallowed-tools: github__create_issue, memory_*\n")
    assert pegasus("skills", "check")[0] == 0
