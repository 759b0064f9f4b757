"""Lists of tools, with commands by their beginning."""

import pytest

from pegasus.tool_patterns import is_named

GIT = ("read_file", "memory_*", "shell_exec(git *)", "shell_exec(npm run test)")


@pytest.mark.parametrize(
    ("tool", "is_shown"), [("read_file", True), ("memory_read", True), ("shell_exec", True), ("run_python", False)]
)
def test_a_tool_is_shown_if_any_part_of_it_may_be_used(tool, is_shown):
    assert is_named(GIT, tool) is is_shown


@pytest.mark.parametrize(
    ("command", "is_allowed"),
    [
        ("git status", True),
        ("git", True),
        ("  git   commit -m 'a; rm -rf /' && git push 2>&1 | git log\ngit diff;", True),
        ('git commit -m "it costs $5 (a lot) & more"', True),
        ("npm run test", True),
        ("npm run testing", False),
        ("gitk", False),
        ("rm -rf /", False),
        ("git status; rm -rf /", False),
        ("git status && rm -rf /", False),
        ("git log | sh", False),
        ("git status\nrm -rf /", False),
        ("git status & rm -rf /", False),
        ("git log > /etc/passwd", False),
        ("git log `id`", False),
        ('git log "$(id)"', False),
        ("git log <(id)", False),
        ("git log \\' ; rm -rf / \\'", False),
        ("git log 'open", False),
        ("GIT_SSH_COMMAND=id git fetch", False),
        ("", False),
    ],
)
def test_commands_are_allowed_by_their_beginning_each_of_a_line(command, is_allowed):
    assert is_named(GIT, "shell_exec", {"command": command}) is is_allowed


def test_a_call_that_changes_what_a_command_means_is_not_allowed():
    assert not is_named(GIT, "shell_exec", {"command": "git status", "env": {"PATH": "/tmp"}})
    assert not is_named(GIT, "shell_exec", {"command": ["git"]})
    assert not is_named(GIT, "shell_exec", {})
    assert is_named((*GIT, "shell_exec"), "shell_exec", {"command": "rm"})
    assert is_named(None, "anything", {})
    assert not is_named((), "read_file")
