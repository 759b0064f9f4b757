"""The stand-in as a person meets it: it answers, delegates small jobs, does them as a subagent, and passes on what comes of them."""

from __future__ import annotations

import json
from time import process_time

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pegasus.models import (
    AssistantTurn,
    ModelError,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolResult,
    ToolSpec,
    Turn,
    UserTurn,
)
from pegasus.models.stand_in import StandIn, find_job
from tests.pegasus.models.conftest import REPLY

CLOCK = ToolSpec("current_time", "The time.", {"type": "object"})
HERE = "[channel: web | id: c%7C1 | thread: t1]"
FAR = "[channel: cli | id: main]"
BEFORE: tuple[Turn, ...] = (
    UserTurn(text=f"{FAR}\nhi"),
    AssistantTurn("", (ToolCall("x", "reply", {"text": "Hi!", "channelId": "main"}),)),
)


async def think(*turns: Turn, tools: tuple[ToolSpec, ...] = (REPLY, CLOCK), **fields: object) -> ModelResponse:
    return await StandIn().generate(ModelRequest("sys", turns, tools, **fields))


async def hear(text: str, *, known: bool = True, line: str = HERE) -> ModelResponse:
    """What it answers; known: it has introduced itself before."""
    results = (ToolResult("x", "reply", '{"queued":true}'),)
    new = UserTurn(results, f"{line}\n{text}") if known else UserTurn(text=f"{line}\n{text}")
    return await think(*BEFORE, new) if known else await think(new)


def said(response: ModelResponse) -> list[dict[str, object]]:
    assert all(call.name == "reply" for call in response.calls)
    return [dict(call.arguments) for call in response.calls]


async def test_it_answers_where_it_was_asked() -> None:
    (reply,) = said(await hear("hello there"))
    assert reply == {
        "text": "Hello! What can I do for you?",
        "channelId": "c%7C1",
        "channelType": "web",
        "replyTo": "t1",
    }


async def test_it_answers_where_it_was_asked_when_the_line_names_the_writer() -> None:
    (reply,) = said(await hear("hello there", line=HERE.replace("]", " | user: anna]")))
    assert (reply["channelId"], reply["replyTo"]) == ("c%7C1", "t1")


async def test_without_a_thread_it_gives_none() -> None:
    (reply,) = said(await hear("hello", line=FAR))
    assert "replyTo" not in reply


async def test_its_first_answer_says_what_it_is_and_how_to_get_a_real_model() -> None:
    (reply,) = said(await hear("hello", known=False))
    for word in ("stand-in", "not a language model", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "pegasus.toml", "ollama/"):
        assert word in str(reply["text"])
    assert "stand-in" not in str(said(await hear("hello"))[0]["text"])


async def test_it_says_what_it_is_once_when_its_text_is_the_reply() -> None:
    """Direct speech: there is no tool `reply`."""
    first = await think(UserTurn(text=f"{HERE}\nhello"), tools=())
    assert first.text.count("I am only a stand-in") == 1
    turns = (UserTurn(text=f"{HERE}\nhello"), AssistantTurn(first.text), UserTurn(text=f"{HERE}\nhey"))
    assert (await think(*turns, tools=())).text == "Hey! What can I do for you?"
    clock = await think(*turns[:2], UserTurn(text=f"{HERE}\nwhat time is it?"), tools=(CLOCK,))
    assert "stand-in" not in clock.text


@pytest.mark.parametrize("text", ["👍", "ok", "OK!", "Thanks.", "thank you", "got it", "🙏🙏", "..."])
async def test_an_acknowledgement_needs_no_answer(text: str) -> None:
    response = await hear(text)
    assert response.calls == ()
    assert response.text


@pytest.mark.parametrize("text", ["What time is it?", "do you know what day it is", "tell me the time please"])
async def test_it_looks_at_the_clock_and_then_says_the_time(text: str) -> None:
    first = await hear(text)
    assert [call.name for call in first.calls] == ["current_time"]
    turn = AssistantTurn(first.text, first.calls)
    content = json.dumps({"formatted": "Monday, 12:00:00", "timezone": "UTC", "iso": "x", "timestamp": 1})
    asked = UserTurn((ToolResult("x", "reply", "{}"),), f"{HERE}\n{text}")
    second = await think(*BEFORE, asked, turn, UserTurn((ToolResult(first.calls[0].id, "current_time", content),)))
    (reply,) = said(second)
    assert reply["text"] == "It is Monday, 12:00:00 (UTC)."
    assert reply["channelId"] == "c%7C1"


@pytest.mark.parametrize("text", ["write me a poem", "explain quantum physics", "x" * 5000, "[a", "https://a.b"])
async def test_for_anything_else_it_says_honestly_that_it_cannot(text: str) -> None:
    (reply,) = said(await hear(text))
    assert "beyond my rules" in str(reply["text"])
    assert len(str(reply["text"])) < 700


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("remind me in 10 minutes to drink tea", 600),
        ("please remind me in 1 hour to drink tea", 3600),
        ("remind me in some minutes to drink tea", None),
        ("remind me in \u0661 minutes to drink tea", 60),
    ],
)
async def test_a_reminder_is_asked_for_with_a_number(text: str, delay: int | None) -> None:
    cron = ToolSpec("cron", "Jobs.", {"type": "object"})
    calls = (await think(*BEFORE, UserTurn((), f"{HERE}\n{text}"), tools=(REPLY, cron))).calls
    asked = [dict(call.arguments) for call in calls if call.name == "cron"]
    assert asked == ([] if delay is None else [{"action": "add", "prompt": "drink tea", "delay": delay}])


async def test_of_several_messages_in_one_turn_each_is_answered_where_it_came_from() -> None:
    (reply,) = said(await hear(f"thanks\n\n{FAR}\nhello"))
    assert reply["channelId"] == "main"
    failed = f"[Task ab failed]\nno such file\n\n{FAR}\n[Task cd stopped]\nstopped by the user (web)\n\n{FAR}\nhi"
    told, greeted = said(await hear(failed))
    assert (told["channelId"], told["text"]) == ("c%7C1", "The task failed: no such file")
    assert (greeted["channelId"], greeted["text"]) == ("main", "Hi! What can I do for you?")


async def failed(content: str) -> ModelResponse:
    """After a reply failed."""
    call = ToolCall("c", "reply", {"text": "hi", "channelId": "main"})
    results = (ToolResult("c", "reply", content, is_error=True),)
    return await think(UserTurn(text=f"{FAR}\nhello"), AssistantTurn("", (call,)), UserTurn(results))


async def test_a_reply_that_was_interrupted_is_said_again() -> None:
    (reply,) = said(await failed('{"cancelled":true,"reason":"process restarted"}'))
    assert (reply["text"], reply["channelId"]) == ("hi", "main")


async def test_a_reply_that_cannot_arrive_is_given_up() -> None:
    assert said(await failed("Error: no such channel")) == []


async def test_after_a_reply_that_arrived_it_is_silent() -> None:
    response = await think(*BEFORE, UserTurn((ToolResult("x", "reply", '{"queued":true}'),)))
    assert response.calls == ()


async def test_without_tools_its_text_is_the_answer() -> None:
    assert "Hello!" in (await think(UserTurn(text=f"{FAR}\nhello"), tools=())).text
    assert (await think(UserTurn(text=f"{FAR}\nhello"), tool_choice="none")).calls == ()
    assert "stand-in" in (await think(UserTurn(text="Summarise this."))).text


async def test_the_same_conversation_gives_the_same_answer_and_another_one_other_ids() -> None:
    one, again = await hear("hello"), await hear("hello")
    assert one == again
    assert (await hear("hello again")).calls[0].id != one.calls[0].id


@given(st.text(max_size=80))
def test_no_text_confuses_it(text: str) -> None:
    response = trio.run(hear, text)
    assert response.text
    assert all(str(call.arguments.get("text", "x")).strip() for call in response.calls)


# ------------------------------------------------------------------ jobs

SPAWN = ToolSpec("spawn_subagent", "Delegate.", {"type": "object"})
TASK_TOOLS = tuple(ToolSpec(name, "", {"type": "object"}) for name in ("shell_exec", "notify"))


async def main_agent(text, tools=(REPLY, SPAWN)):
    return await StandIn().generate(ModelRequest("sys", (UserTurn(text=f"[channel: web | id: c1]\n{text}"),), tools))


async def subagent(*turns, tools=TASK_TOOLS):
    return await StandIn().generate(ModelRequest("sys", turns, tools))


async def after(name, content, *, is_error=False):
    """What it reports when its call gave this."""
    call = ToolCall("a", name, {})
    results = (ToolResult("a", name, content if isinstance(content, str) else json.dumps(content), is_error),)
    return await subagent(UserTurn(text="run: x"), AssistantTurn("", (call,)), UserTurn(results))


@pytest.mark.parametrize(
    ("beginning", "middle", "end"),
    [
        ("", "what ", ""),
        ("run ", " ", "x\ny"),
        ("remember ", " ", "x\ny"),
        ("[Task ", "a", ""),
        ("/a ", "b ", ""),
    ],
)
async def test_a_long_message_does_not_stop_the_program(beginning: str, middle: str, end: str) -> None:
    """Nothing else runs while it is matched: no /stop, no other chat."""
    begun = process_time()
    await main_agent(f"{beginning}{middle * 20_000}{end}")
    assert process_time() - begun < 1


@pytest.mark.parametrize(
    ("text", "command"),
    [("run `ls -la`", "ls -la"), ("Please run uname -a | head", "uname -a | head"), ("run: ls", "ls")],
)
def test_a_command_is_understood(text, command):
    assert find_job(text) == command


@pytest.mark.parametrize("text", ["hello", "read my mind", "listen", "running late", "what is a file?", "researching"])
def test_other_words_are_no_job(text):
    assert find_job(text) is None


async def test_a_job_is_delegated_with_a_word_to_the_user():
    response = await main_agent("run `ls`")
    reply, spawn = response.calls
    assert reply.arguments["channelId"] == "c1"
    assert "run: ls" in reply.arguments["text"]
    assert (spawn.name, spawn.arguments["input"]) == ("spawn_subagent", "run: ls")


async def test_a_task_that_was_refused_is_told():
    turns = (
        *BEFORE,
        UserTurn(text=f"{HERE}\nrun ls"),
        AssistantTurn("", (ToolCall("c", "spawn_subagent", {"input": "run: ls"}),)),
    )

    async def after_spawn(content):
        result = ToolResult("c", "spawn_subagent", content, is_error=True)
        return await think(*turns, UserTurn((result,)), tools=(REPLY, SPAWN))

    (reply,) = said(await after_spawn("Error: 9 tasks are waiting already"))
    assert reply["text"] == "That did not work: 9 tasks are waiting already"
    assert not (await after_spawn('{"cancelled":true}')).calls, "whoever has stopped it knows"


async def test_without_a_task_system_it_says_that_it_has_no_rule():
    [reply] = (await main_agent("run `ls`", tools=(REPLY,))).calls
    assert "beyond my rules" in reply.arguments["text"]


async def test_as_a_subagent_it_makes_the_one_call_of_its_job():
    [call] = (await subagent(UserTurn(text="run: ls -la\n\n# Memory\nrun: rm -rf /"))).calls
    assert (call.name, call.arguments) == ("shell_exec", {"command": "ls -la"})


async def test_a_tool_that_its_type_lacks_is_said():
    response = await subagent(UserTurn(text="run: ls"), tools=TASK_TOOLS[1:])
    assert (response.calls, response.text) == ((), "A task of this type may not use shell_exec.")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("shell_exec", {"exitCode": 0, "stdout": "a\nb\n", "stderr": ""}, "a\nb"),
        ("shell_exec", {"exitCode": 0, "stdout": "", "stderr": ""}, "(no output)"),
        ("other", "plain words", "plain words"),
    ],
)
async def test_it_reports_what_came_of_the_call(name, content, words):
    assert (await after(name, content)).text == words


async def test_it_reports_a_failure_as_one_and_cuts_what_is_long():
    with pytest.raises(ModelError, match=r"^That did not work: no$"):
        await after("shell_exec", "Error: no", is_error=True)
    with pytest.raises(ModelError, match=r"^no\n\(exit code 3\)$"):  # the task ends as failed
        await after("shell_exec", {"exitCode": 3, "stdout": "", "stderr": "no"})
    assert (await after("shell_exec", {"exitCode": 0, "stdout": "y" * 9000})).text.endswith("characters in all)")


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
    assert (await main_agent("[Task ab stopped]\nstopped by the user (cli)")).calls == ()
