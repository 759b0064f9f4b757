"""Tool calls: a thought is on disk before any of its calls acts, then the calls are carried out in their order.

The order of effects is what makes a crash harmless:

1. One durable step writes the assistant entry with its calls, and posts the replies among them. Each post has a key made of item
   and call, so it cannot be posted twice.
2. Each other call is run, and its result appended behind it, before the next one begins.

A crash after step 1 leaves calls without a result. The next start gives them their true result or marks them as cancelled (see
`session_loading`), and the model decides what to do about those.

What a skill in force does not allow is refused call by call, since one of the calls may have brought the skill into force.
"""

from __future__ import annotations

from typing import Final

import attrs

from pegasus.conversation import Entry
from pegasus.main_agent.progress import UNFINISHED, leads_to_thought
from pegasus.main_agent.reply_tool import REPLY, InvalidReply, direct_reply, parse_reply, reply_key, reply_result
from pegasus.main_agent.services import AgentConfig, AgentServices, AgentToolset
from pegasus.main_agent.session import Session
from pegasus.messages import Json
from pegasus.models import ModelResponse, ToolCall, unfinished
from pegasus.observe import get_logger
from pegasus.storage import Item, Post
from pegasus.tools import ToolContext, cut_result, run_tool

_log = get_logger("main_agent")

LONGEST_RESULT: Final = 70_000
"""Characters of a tool's result: the body of the largest skill, and what JSON adds to it. The replay of a task may be megabytes."""
MOST_CALLS: Final = 64
"""Calls of one answer that are carried out. A model that runs in circles may make thousands in a single answer; each would take
place in the session for ever, and its result in every later request."""

# Text for the model. The limit (`AgentConfig.max_replies`) protects people from a model that sends the same reply again and again.
_TOO_MANY_REPLIES: Final = "this message has had as many replies as it may have; do not reply to it any more"


@attrs.frozen
class CallsOutcome:
    """Outcome of the calls of one thought.

    Example: `CallsOutcome(thinks_again=False, replies=1)` after an answer with a single reply that was posted.
    """

    thinks_again: bool
    """True if another thought is due: a call returned information or failed, or the answer was not whole."""
    replies: int
    """Replies that were posted, the direct one included."""


async def carry_out_calls(
    item: Item,
    response: ModelResponse,
    session: Session,
    services: AgentServices,
    thoughts: int,
    replies: int,
) -> CallsOutcome:
    """Record a thought about an item and carry out its calls in order.

    services: tools and limits. thoughts: how many the item has had, this one included. replies: how many were posted for it before.
    Whether another thought is due is decided by `progress.leads_to_thought`, by the same rules that a restart applies.

    While the disk refuses to write, waits. Cancelled: calls that were carried out keep their results; `close_stopped_item` then closes
    the others. A tool under way is cancelled, and its call counts as not carried out, though its effect may be half done.
    """
    config, toolset, clock = services.config, services.toolset, services.clock
    # Some providers count their ids from 0 in every answer, and the keys of posts and tasks are made of them.
    calls = session.with_unique_ids(response.calls[:MOST_CALLS])
    spoken = direct_reply(response.text, item, thoughts) if config.direct and not response.calls else None
    parsed = _parse_replies(item, calls, config.max_replies - replies)
    posts = tuple(post for post in (spoken, *parsed.values()) if isinstance(post, Post))
    notes = _notes(item, response, clock())
    results = await session.commit((thought_entry(response, clock(), calls, spoken=spoken is not None), *notes), posts)
    posted = dict(zip((post.key for post in posts), results, strict=True))
    thinks_again, count = bool(notes), 0 if spoken is None else 1
    for call in calls:
        # Asked anew for each call, because the one before may have brought a skill into force.
        refusal = None
        if toolset.skills is not None:
            refusal = toolset.skills.active_skills(session.of_item(item.n)).refusal(call)
        if refusal is not None:
            content, failed = f"Error: {refusal}", True
        elif call.id in parsed:
            post = parsed[call.id]
            content, failed = reply_result(posted[post.key] if isinstance(post, Post) else post)
        else:
            content, failed = await _run_call(call, item, toolset, config)
        metadata: dict[str, Json] = {"error": True} if failed else {}
        result = Entry(clock(), "tool", content, call_id=call.id, metadata=metadata)
        await session.add(result)
        thinks_again = thinks_again or leads_to_thought(call.name, result)
        count += call.name == REPLY.name and not failed
    return CallsOutcome(thinks_again, count)


def thought_entry(
    response: ModelResponse, now: int, calls: tuple[ToolCall, ...] = (), *, spoken: bool = False
) -> Entry:
    """Return the assistant entry of a thought. calls: with their unique ids. spoken: its text is the reply (direct speech)."""
    usage = response.usage
    metadata: dict[str, Json] = {
        "usage": {"promptTokens": usage.prompt_tokens, "completionTokens": usage.completion_tokens},
        "stopReason": response.stop_reason,
    }
    if spoken:
        metadata["spoken"] = True
    if response.thinking:
        metadata |= {"thinking": list(response.thinking), "thinkingOf": response.thinking_of}
    return Entry(now, "assistant", response.text, calls, metadata=metadata)


def _notes(item: Item, response: ModelResponse, now: int) -> list[Entry]:
    """Return the notes for the model after an answer that is not whole, or was too much.

    They are written together with the answer, because a restart must know that another thought is due.
    """
    problems = [] if (problem := unfinished(response)) is None else [problem]
    surplus = len(response.calls) - MOST_CALLS
    if surplus > 0:
        _log.warning("left out calls of one answer", item=item.n, calls=len(response.calls), limit=MOST_CALLS)
        problems.append(f"({surplus:,} further calls of this answer were not carried out: {MOST_CALLS} are the limit.)")
    return [Entry(now, "system", problem, metadata={"type": UNFINISHED}) for problem in problems]


def _parse_replies(item: Item, calls: tuple[ToolCall, ...], room: int) -> dict[str, Post | InvalidReply]:
    """Return the posts that the reply calls want, by call id; at most `room` of them are valid.

    They are parsed before the thought is written, since posts and thought go into one durable step.
    """
    parsed: dict[str, Post | InvalidReply] = {}
    for call in calls:
        if call.name == REPLY.name:
            post = parse_reply(call, item)
            if isinstance(post, Post):
                post = post if room > 0 else InvalidReply(_TOO_MANY_REPLIES)
                room -= 1
            parsed[call.id] = post
    return parsed


async def _run_call(call: ToolCall, item: Item, toolset: AgentToolset, config: AgentConfig) -> tuple[str, bool]:
    """Run the tool of a call; return the content of its result, and whether it failed.

    Whatever goes wrong becomes a result: a call that could not be parsed, a tool that does not exist (models invent some), one that
    raises or takes too long. The model reads it and tries something else.
    """
    if call.error is not None:
        return f"Error: {call.error}", True
    tool = toolset.tools.get(call.name)
    if tool is None:
        known = ", ".join((REPLY.name, *toolset.tools))
        return f"Error: there is no tool {call.name!r} here. There are: {known}", True
    channel = item.message.channel
    context = ToolContext(key=reply_key(item.n, call.id), user_id=channel.user_id, origin=channel)
    outcome = await run_tool(tool, call.arguments, config.timeout_of(call.name), context)
    return cut_result(outcome.content, LONGEST_RESULT, tool.more), outcome.failed
