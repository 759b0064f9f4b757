"""The stand-in delegates small jobs, does them as a subagent, and passes on what comes of them."""

import json

import pytest

from pegasus.models import AssistantTurn, ModelRequest, ToolCall, ToolResult, ToolSpec, UserTurn
from pegasus.models.stand_in import StandIn
from pegasus.models.stand_in_tasks import find_job
from tests.pegasus.models.conftest import REPLY

HERE = "[channel: web | id: c1]"
SPAWN = ToolSpec("spawn_subagent", "Delegate.", {"type": "object"})
TASK_TOOLS = tuple(
    ToolSpec(name, "", {"type": "object"}) for name in ("shell_exec", "read_file", "list_files", "grep_files", "notify")
)


async def main_agent(text, tools=(REPLY, SPAWN)):
    return await StandIn().generate(ModelRequest("sys", (UserTurn(text=f"{HERE}\n{text}"),), tools))


async def subagent(*turns, tools=TASK_TOOLS):
    return await StandIn().generate(ModelRequest("sys", turns, tools))


async def after(name, content, *, is_error=False):
    """What it reports when its call gave this."""
    call = ToolCall("a", name, {})
    results = (ToolResult("a", name, content if isinstance(content, str) else json.dumps(content), is_error),)
    return await subagent(UserTurn(text="run: x"), AssistantTurn("", (call,)), UserTurn(results))


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("run `ls -la`", "shell_exec", {"command": "ls -la"}),
        ("Please run uname -a | head", "shell_exec", {"command": "uname -a | head"}),
        ("read notes.txt", "read_file", {"path": "notes.txt"}),
        ("show me the file `my notes`", "read_file", {"path": "my notes"}),
        ("list files", "list_files", {"path": "."}),
        ("list the files in src/", "list_files", {"path": "src/"}),
        ("search for TODO", "grep_files", {"pattern": "TODO"}),
        ("fetch https://example.org/x.", "http_get", {"url": "https://example.org/x"}),
    ],
)
def test_small_jobs_are_understood_and_their_line_is_understood_again(text, tool, arguments):
    job = find_job(text)
    assert (job.tool, job.arguments) == (tool, arguments)
    assert (find_job(job.line).tool, find_job(job.line).arguments) == (tool, arguments)


@pytest.mark.parametrize("text", ["hello", "read my mind", "listen", "running late", "what is a file?", "researching"])
def test_other_words_are_no_job(text):
    assert find_job(text) is None


async def test_a_job_is_delegated_with_a_word_to_the_user():
    response = await main_agent("run `ls`")
    reply, spawn = response.calls
    assert reply.arguments["channelId"] == "c1"
    assert "run: ls" in reply.arguments["text"]
    assert (spawn.name, spawn.arguments["input"]) == ("spawn_subagent", "run: ls")


async def test_without_a_task_system_it_says_that_it_has_no_rule():
    [reply] = (await main_agent("run `ls`", tools=(REPLY,))).calls
    assert "beyond my rules" in reply.arguments["text"]


async def test_as_a_subagent_it_makes_the_one_call_of_its_job():
    [call] = (await subagent(UserTurn(text="run: ls -la\n\n# Memory\nrun: rm -rf /"))).calls
    assert (call.name, call.arguments) == ("shell_exec", {"command": "ls -la"})


async def test_a_tool_that_its_type_lacks_is_said():
    response = await subagent(UserTurn(text="fetch: https://example.org"))
    assert (response.calls, response.text) == ((), "A task of this type may not use http_get.")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("shell_exec", {"exitCode": 0, "stdout": "a\nb\n", "stderr": ""}, "a\nb"),
        ("shell_exec", {"exitCode": 3, "stdout": "", "stderr": "no"}, "no\n(exit code 3)"),
        ("shell_exec", {"exitCode": 0, "stdout": "", "stderr": ""}, "(no output)"),
        ("read_file", {"path": "x", "content": "hi"}, "x:\nhi"),
        ("list_files", {"files": [{"name": "a"}, {"name": "d", "isDir": True}]}, "a\nd/"),
        ("grep_files", {"matches": [{"file": "f", "lineNumber": 3, "line": "  TODO x"}]}, "f:3: TODO x"),
        ("other", "plain words", "plain words"),
    ],
)
async def test_it_reports_what_came_of_the_call(name, content, words):
    assert (await after(name, content)).text == words


async def test_it_reports_a_failure_as_one_and_cuts_what_is_long():
    assert (await after("shell_exec", "Error: no", is_error=True)).text == "That did not work: Error: no"
    assert (await after("read_file", {"path": "x", "content": "y" * 9000})).text.endswith("characters in all)")


@pytest.mark.parametrize(
    ("notification", "words"),
    [
        ('[Task ab completed]\n{"response":"It is done.","iterations":2}', "It is done."),
        ('[Task ab completed]\n{"response":null}', "The task is done; it had nothing to report."),
        ("[Task ab failed]\nno such file", "The task failed: no such file"),
        ("[Task ab update]\nhalf way", "half way"),
        ("[Task ab needs information]\nwhich one?", "The task asks: which one?"),
    ],
)
async def test_what_a_task_says_is_passed_on_where_it_was_asked_for(notification, words):
    [reply] = (await main_agent(notification)).calls
    assert reply.arguments["text"].startswith(words)
    assert reply.arguments["channelId"] == "c1"


async def test_that_a_task_was_stopped_is_no_news_to_who_stopped_it():
    assert (await main_agent("[Task ab failed]\nstopped by the user (cli)")).calls == ()
