"""Answers of an editor that no frame of the gateway takes."""

import pytest
import trio

from pegasus.acp.editor_tools import EditorTools

COMMAND = {"command": "x", "cwd": "/project", "env": {}, "outputBytes": 10, "seconds": 5}


class Link:
    """The connection with an editor that has one answer for each method."""

    def __init__(self, answers):
        self.answers = answers

    async def request(self, method, params):
        return self.answers.get(method, {})


async def result_of(tool, arguments, answers):
    """What the daemon is told about a call, when a message may have 100 bytes."""
    told = []

    async def call(method, params):
        told.append(params)

    async def show(call, terminal):
        pass

    async with trio.open_nursery() as nursery:
        tools = EditorTools("s", Link(answers), call, show, nursery, 100)
        tools.take({"type": "call", "call": "t1", "tool": tool, "arguments": arguments})
    [answer] = told
    return answer


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("x" * 200, "the editor: its answer has 214 bytes, allowed: 100"),
        ("\ud800", "the editor: its answer holds half a surrogate pair, which is no text"),
    ],
)
async def test_a_file_that_cannot_be_passed_on_fails_its_call_and_not_the_connection(content, error):
    answer = await result_of("read_text_file", {"path": "/project/a"}, {"fs/read_text_file": {"content": content}})
    assert answer == {"call": "t1", "error": error}


async def test_of_a_terminal_that_returns_more_than_was_asked_for_the_end_counts():
    written = {"output": "x" * 10_000 + "the end", "truncated": False, "exitStatus": {"exitCode": 0}}
    answer = await result_of("run_command", COMMAND, {"terminal/output": written})
    assert answer["result"] == {
        "output": "xxxthe end",
        "truncated": True,
        "timedOut": False,
        "exitCode": 0,
        "signal": None,
    }
