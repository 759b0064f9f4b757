"""Commands that do not exist."""

from __future__ import annotations

import pytest

from pegasus.intake import COMMANDS, LEAVING_COMMANDS, alias_note, command_of, describe_unknown, find_unknown
from pegasus.intake.commands import OTHER_NAMES

KNOWN = {"/status", "/stop", "/new", "/code-review"}


@pytest.mark.parametrize("text", ["/foo", "/foo bar", "/foo\nbar", "/staus", "/st", "/new-idea", "/x_1\tz"])
def test_a_first_word_that_looks_like_a_command_and_is_none_is_found(text):
    assert find_unknown(text, KNOWN) == text.split()[0]


@pytest.mark.parametrize(
    "text",
    [
        "/stop",
        "/code-review this",
        "/code_review this",
        "/etc/hosts is broken",
        "/Users is empty",
        "/",
        "//",
        "/1",
        "/foo.",
        "/foo:bar",
        " /foo",
        "see /foo",
        "hello",
        "",
        "/" + "x" * 100_000,
    ],
)
def test_known_commands_paths_and_everything_else_are_not(text):
    assert find_unknown(text, KNOWN) is None


def test_the_answer_names_what_is_spelled_nearly_so_or_begins_so():
    assert "Did you mean /status?" in describe_unknown("/staus", KNOWN)
    assert "Did you mean /status or /stop?" in describe_unknown("/st", KNOWN)
    assert "Did you mean /code-review?" in describe_unknown("/code", KNOWN)
    assert describe_unknown("/xyz", KNOWN).startswith("There is no command /xyz. /help lists all")


@pytest.mark.parametrize("name", ["/exit", "/quit"])
def test_what_leaves_the_chat_is_known_and_stands_alone(name):
    answer = describe_unknown(name, KNOWN)
    assert answer.startswith(f"{name} leaves the chat in a terminal, with nothing behind it")
    assert "no command" not in answer


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("/reset", "Did you mean /new?"),
        ("/compress", "Did you mean /compact?"),
        ("/tokens", "Did you mean /context?"),
        ("/rewind", "Did you mean /undo?"),
        ("/regenerate", "Did you mean /retry?"),
        ("/sessions", "Did you mean /resume?"),
        ("/models", "Did you mean /model?"),
        ("/permissions", "/permissions. The rules are [[policy.rules]] of the settings; /approvals lists"),
        ("/think", "On the command line `pegasus config set models.effort high` does that."),
        ("/add-dir", "On the command line `pegasus chat --folder` does that."),
        ("/bash", "/bash. Write what is to be run, as in “run make test”"),
        ("/commands", "Did you mean /help?"),
        ("/?", "Did you mean /help?"),
        ("/init", "CLAUDE.md stands in AGENTS.md of the workspace; `pegasus init` chooses the model."),
        ("/export", "On the command line `pegasus sessions show` does that."),
        ("/agents", "Did you mean /tasks?"),
        ("/bye", "Did you mean /exit?"),
        ("/memory", "On the command line `pegasus memory` does that."),
        ("/add", "In a terminal @file attaches a file."),
    ],
)
def test_what_other_agents_call_it_leads_to_ours(name, says):
    assert find_unknown(name, COMMANDS) == name
    assert says in describe_unknown(name, COMMANDS)


@pytest.mark.parametrize("name", ["/think", "/init"])
def test_the_command_line_is_named_as_it_is_called_in_this_installation(name, monkeypatch):
    monkeypatch.setenv("PEGASUS_COMMAND", "./scripts/run")
    answer = describe_unknown(name, COMMANDS)
    assert "`./scripts/run " in answer
    assert "pegasus" not in answer


def test_no_name_of_another_agent_hides_a_command_or_leads_nowhere():
    assert not OTHER_NAMES.keys() & COMMANDS
    commands = {ours for ours in OTHER_NAMES.values() if ours.startswith("/")}
    assert commands <= {*COMMANDS, *LEAVING_COMMANDS}


@pytest.mark.parametrize(
    ("text", "command"), [("/clear", "/new"), (" /Cost now", "/usage"), ("/compact x", "/compact")]
)
def test_a_second_name_is_the_same_command(text, command):
    assert command_of(text) == command
    assert bool(alias_note(text)) is (command != "/compact")
