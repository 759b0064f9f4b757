"""The stand-in as a person meets it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.models import AssistantTurn, ModelRequest, ModelResponse, ToolCall, ToolResult, ToolSpec, Turn, UserTurn
from pegasus.models.stand_in import StandIn, decide
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


@pytest.mark.parametrize("text", ["👍", "ok", "OK!", "Thanks.", "thank you very much", "got it", "谢谢", "🙏🙏", "..."])
async def test_an_acknowledgement_needs_no_answer(text: str) -> None:
    response = await hear(text)
    assert response.calls == ()
    assert response.text


async def test_a_chinese_greeting_is_answered_in_chinese() -> None:
    assert "你好" in str(said(await hear("你好"))[0]["text"])
    assert "替身" in str(said(await hear("你好", known=False))[0]["text"])


@pytest.mark.parametrize(
    "text", ["What time is it?", "do you know what day it is", "现在几点了？", "tell me the time please"]
)
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


async def test_it_asks_for_the_time_of_a_zone() -> None:
    assert (await hear("what time is it in Asia/Shanghai?")).calls[0].arguments == {"timezone": "Asia/Shanghai"}


@pytest.mark.parametrize(
    ("text", "to", "words"),
    [
        ("say good morning to #general", {"channelId": "#general"}, "good morning"),
        ('please send "dinner is ready" to cli:main', {"channelId": "main", "channelType": "cli"}, "dinner is ready"),
        ("tell main that I am late", {"channelId": "main"}, "I am late"),
    ],
)
async def test_it_passes_words_on_to_another_channel(text: str, to: dict[str, str], words: str) -> None:
    there, here = said(await hear(text))
    assert there == {"text": words, **to}
    assert here["channelId"] == "c%7C1"


@pytest.mark.parametrize("text", ["write me a poem", "explain quantum physics", "x" * 5000, "[a", "https://a.b"])
async def test_for_anything_else_it_says_honestly_that_it_cannot(text: str) -> None:
    (reply,) = said(await hear(text))
    assert "beyond my rules" in str(reply["text"])
    assert len(str(reply["text"])) < 700


async def test_of_a_skill_it_shows_what_a_model_would_be_told() -> None:
    """Also where what the skill says sounds like something that it has a rule for."""
    body = "Make a plan for the day.\n\n- What time is it now? Tell the person that it is late.\n" + "x" * 3000
    (reply,) = said(await hear(f"/plan-day a, b\n\n(The skill plan-day is in force. It says:)\n\n{body}"))
    text = str(reply["text"])
    assert text.startswith("/plan-day is a skill: instructions for a language model, which I am not.")
    assert "\n\nMake a plan for the day.\n\n- What time" in text
    assert len(text) < 1700


async def test_of_several_messages_in_one_turn_the_last_is_answered() -> None:
    (reply,) = said(await hear(f"thanks\n\n{FAR}\nhello"))
    assert reply["channelId"] == "main"


async def failed(text: str, *contents: str, to: str = "#nowhere") -> ModelResponse:
    """After a reply to `to` failed so many times."""
    turns: list[Turn] = [UserTurn(text=f"{FAR}\nsay hi to {to}")]
    for n, content in enumerate(contents):
        channel = to if n == 0 else "main"
        turns.append(AssistantTurn("", (ToolCall(f"c{n}", "reply", {"text": text, "channelId": channel}),)))
        turns.append(UserTurn((ToolResult(f"c{n}", "reply", content, is_error=True),)))
    return await think(*turns)


async def test_after_a_failed_reply_it_tells_the_source_once() -> None:
    (reply,) = said(await failed("hi", "Error: no such channel"))
    assert reply["channelId"] == "main"
    assert "#nowhere" in str(reply["text"])
    assert "no such channel" in str(reply["text"])
    assert said(await failed("hi", "Error: no such channel", "Error: still not")) == []


async def test_a_reply_that_was_interrupted_is_said_again() -> None:
    cancelled = '{"cancelled":true,"reason":"process restarted"}'
    (reply,) = said(await failed("hi", cancelled))
    assert reply == {"text": "hi", "channelId": "#nowhere"}


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
    plan = decide(ModelRequest("s", (UserTurn(text=f"{FAR}\n{text}"),)))
    assert plan.thought
    assert all(str(arguments.get("text", "x")).strip() for _, arguments in plan.calls)
