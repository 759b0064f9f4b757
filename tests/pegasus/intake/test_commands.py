"""Commands that do not exist."""

from __future__ import annotations

import pytest

from pegasus.intake import describe_unknown, find_unknown

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
        "/?",
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
