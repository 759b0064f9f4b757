"""What a thought does: its turn is on disk, then its calls are carried out in order (traps T18, T22)."""

from __future__ import annotations

from typing import Final

import attrs

from pegasus.conversation import Entry
from pegasus.main_agent.progress import UNFINISHED, thinks_again
from pegasus.main_agent.reply_tool import (
    REPLY,
    Unspeakable,
    failure_result,
    post_key,
    post_of,
    result_of,
    spoken,
)
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.session import Session
from pegasus.messages import Json
from pegasus.models import ModelResponse, ToolCall, unfinished
from pegasus.storage import Item, Post, PostResult
from pegasus.tools import ToolContext, cut_result, run_tool

LONGEST: Final = 70_000
"""Characters of a tool's result: the body of the largest skill, and what JSON adds to it; the replay of a task may be megabytes."""


@attrs.frozen
class Acted:
    """again: another thought is due. replies: how many were posted."""

    again: bool
    replies: int


async def act(
    item: Item, response: ModelResponse, session: Session, mind: AgentServices, thoughts: int, replies: int
) -> Acted:
    """Record the thought, carry out its calls in order.

    thoughts: how many the item has had, this one included; replies: how many were posted before.
    What a skill in force does not allow is refused, call by call: one of them may have brought it into force.
    """
    calls = session.own_ids(response.calls)
    said = spoken(response.text, item, thoughts) if mind.habits.direct and not calls else None
    posts = _posts(item, calls, mind.habits.max_replies - replies)
    wanted = tuple(post for post in (said, *posts.values()) if isinstance(post, Post))
    note = _cut_off(response, mind)
    results = await session.commit((turn_of(response, mind.clock(), calls, said), *note), wanted)
    posted = dict(zip((post.key for post in wanted), results, strict=True))
    again, count = bool(note), 0 if said is None else 1
    for call in calls:
        refusal = refusal_of(call, item, session, mind)
        if refusal is not None:
            result = _result(call, mind, f"Error: {refusal}", failed=True)
        else:
            result = await _carry_out(call, posts.get(call.id), posted, item, mind)
        await session.add(result)
        again = again or thinks_again(call.name, result)
        count += call.name == REPLY.name and not result.failed
    return Acted(again, count)


def _cut_off(response: ModelResponse, mind: AgentServices) -> tuple[Entry, ...]:
    """The note after an answer that is not whole, so that the model goes on; on disk with it, for a restart must know."""
    note = unfinished(response)
    return () if note is None else (Entry(mind.clock(), "system", note, metadata={"type": UNFINISHED}),)


def refusal_of(call: ToolCall, item: Item, session: Session, mind: AgentServices) -> str | None:
    """Why a skill that is in force for the item does not allow this call; None if it does, or none is."""
    skilled = mind.make_faculties().skilled
    return None if skilled is None else skilled.in_force(session.of_item(item.n)).refusal(call)


def _posts(item: Item, calls: tuple[ToolCall, ...], room: int) -> dict[str, Post | Unspeakable]:
    """What the reply calls want said, by call id; no more than there is room for."""
    posts: dict[str, Post | Unspeakable] = {}
    for call in calls:
        if call.name != REPLY.name:
            continue
        post = post_of(call, item)
        if isinstance(post, Post):
            if room <= 0:
                post = Unspeakable("this message has had as many replies as it may have; do not reply to it any more")
            room -= 1
        posts[call.id] = post
    return posts


async def _carry_out(
    call: ToolCall, post: Post | Unspeakable | None, posted: dict[str, PostResult], item: Item, mind: AgentServices
) -> Entry:
    if isinstance(post, Post):
        return _result(call, mind, *result_of(posted[post.key]))
    if isinstance(post, Unspeakable):
        return _result(call, mind, failure_result(post), failed=True)
    if call.error is not None:
        return _result(call, mind, f"Error: {call.error}", failed=True)
    tools = mind.make_faculties().tools
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join((REPLY.name, *tools))
        return _result(call, mind, f"Error: there is no tool {call.name!r} here. There are: {known}", failed=True)
    context = ToolContext(
        key=post_key(item.n, call.id), user_id=item.message.channel.user_id, origin=item.message.channel
    )
    outcome = await run_tool(tool, call.arguments, mind.habits.timeout_of(call.name), context)
    return _result(call, mind, cut_result(outcome.content, LONGEST, tool.more), failed=outcome.failed)


def _result(call: ToolCall, mind: AgentServices, content: str, failed: bool = False) -> Entry:
    metadata: dict[str, Json] = {"error": True} if failed else {}
    return Entry(mind.clock(), "tool", content, call_id=call.id, metadata=metadata)


def turn_of(response: ModelResponse, now: int, calls: tuple[ToolCall, ...] = (), said: Post | None = None) -> Entry:
    """The assistant entry of a thought. calls: with their own ids; said: what it says in direct speech."""
    usage = response.usage
    metadata: dict[str, Json] = {
        "usage": {"promptTokens": usage.prompt_tokens, "completionTokens": usage.completion_tokens},
        "stopReason": response.stop_reason,
    }
    if said is not None:
        metadata["spoken"] = True
    if response.thinking:
        metadata |= {"thinking": list(response.thinking), "thinkingOf": response.thinking_of}
    return Entry(now, "assistant", response.text, calls, metadata=metadata)
