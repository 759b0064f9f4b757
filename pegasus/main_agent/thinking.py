"""The think loop: what one queue item makes the agent think and do, until there is nothing more to think about it.

A thought is one model call. Its turn (monologue and calls) is on disk before any of its calls acts. Outward calls that succeed lead
to no further thought; information, and every failure, does (seed 000; traps T18, T22, T23).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from pegasus.conversation.entry import Entry
from pegasus.conversation.sanitize import user_content
from pegasus.main_agent.notices import content_of, is_notice, metadata_of
from pegasus.main_agent.progress import OUTWARD, Next, progress_of
from pegasus.main_agent.session import Session
from pegasus.main_agent.speaking import REPLY, Unspeakable, answer_to, failure_result, post_key, post_of, result_of
from pegasus.messages import Json, Media
from pegasus.models.base import LanguageModel, ModelError, ModelRequest, ModelResponse, ToolCall, ToolSpec
from pegasus.observe import get_logger
from pegasus.storage.messages import Item, Post, PostResult
from pegasus.tools import Tool, ToolContext, run_tool

_log = get_logger("main_agent")

_TOLD = "(I told the user: "


@attrs.frozen(eq=False)
class Faculties:
    """The prompt, and the tools beside reply by their names. aliases: names that are accepted but not shown."""

    system: str
    tools: Mapping[str, Tool]
    aliases: frozenset[str] = frozenset()

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is shown."""
        return (REPLY, *(tool.spec for name, tool in self.tools.items() if name not in self.aliases))


@attrs.frozen(eq=False)
class Mind:
    """What stays the same over all thoughts: the model, prompt and tools, the limits. clock: wall clock, ms.

    make_faculties: called for every thought and gives the same each time; made at the first one, for that takes a while.
    """

    model: LanguageModel
    make_faculties: Callable[[], Faculties]
    clock: Callable[[], int]
    max_thoughts: int = 20
    tool_timeout: float = 60.0
    tool_timeouts: Mapping[str, float] = attrs.field(factory=dict)

    def timeout_of(self, tool: str) -> float:
        """Seconds that one call of this tool may take."""
        return self.tool_timeouts.get(tool, self.tool_timeout)

    def request(self, session: Session) -> ModelRequest:
        """The next call: the whole session as turns, behind a prompt and tools that never change (prefix caching)."""
        faculties = self.make_faculties()
        return ModelRequest(faculties.system, tuple(session.projection.turns), faculties.specs)


async def work_on(item: Item, session: Session, mind: Mind) -> None:
    """Do all that the item still needs; what was done before a crash is not done again.

    Cancelled: what had been said and done stays; `close_open_calls` then makes the session well-formed.
    """
    progress = progress_of(session.entries, item.n)
    if progress.next is Next.RECORD:
        await session.add(_user_entry(item, mind.clock()))
    elif progress.next is Next.NOTHING:
        await _repeat_apology(item, progress.end, session)
        return
    thoughts, replied = progress.thoughts, progress.replied
    while True:
        if thoughts >= mind.max_thoughts:
            await _give_up(item, session, mind, thoughts, replied=replied)
            return
        try:
            response = await mind.model.generate(mind.request(session))
        except ModelError as error:
            await apologise(item, session, mind.clock(), _model_failure(error))
            return
        thoughts += 1
        again, spoke = await _act(item, response, session, mind)
        replied = replied or spoke
        if not again:
            return


async def _act(item: Item, response: ModelResponse, session: Session, mind: Mind) -> tuple[bool, bool]:
    """Record the thought, carry out its calls in order. Gives: whether another thought is due, whether it spoke."""
    calls = session.own_ids(response.calls)
    posts = {call.id: post_of(call, item) for call in calls if call.name == REPLY.name}
    wanted = tuple(post for post in posts.values() if isinstance(post, Post))
    turn = Entry(mind.clock(), "assistant", response.text, calls, metadata=_turn_metadata(response))
    results = await session.commit((turn,), wanted)
    posted = dict(zip((post.key for post in wanted), results, strict=True))
    again = spoke = False
    for call in calls:
        content, failed = await _carry_out(call, posts.get(call.id), posted, item, mind)
        metadata: dict[str, Json] = {"error": True} if failed else {}
        await session.add(Entry(mind.clock(), "tool", content, call_id=call.id, metadata=metadata))
        again = again or failed or call.name not in OUTWARD
        spoke = spoke or (call.name == REPLY.name and not failed)
    return again, spoke


async def _carry_out(
    call: ToolCall, post: Post | Unspeakable | None, posted: Mapping[str, PostResult], item: Item, mind: Mind
) -> tuple[str, bool]:
    if isinstance(post, Post):
        return result_of(posted[post.key])
    if isinstance(post, Unspeakable):
        return failure_result(post), True
    if call.error is not None:
        return f"Error: {call.error}", True
    tools = mind.make_faculties().tools
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join((REPLY.name, *tools))
        return f"Error: there is no tool {call.name!r} here. There are: {known}", True
    context = ToolContext(key=post_key(item.n, call.id), origin=item.message.channel)
    outcome = await run_tool(tool, call.arguments, mind.timeout_of(call.name), context)
    return outcome.content, outcome.failed


async def apologise(item: Item, session: Session, now: int, text: str) -> None:
    """Tell the sender honestly that nothing will come of the message, and end the item."""
    note = Entry(now, "assistant", f"{_TOLD}{text})", metadata={"type": "apology", "ends": True})
    entries: tuple[Entry, ...] = (note,)
    if progress_of(session.entries, item.n).next is Next.RECORD:
        entries = (Entry(now, "user", "(a message that could not be taken up)", metadata={"item": item.n}), note)
    await session.commit(entries, (answer_to(item, text, "apology"),))


async def _repeat_apology(item: Item, note: Entry | None, session: Session) -> None:
    """A crash may have come between its note and the apology itself; one that was posted is not posted again."""
    if note is not None and note.metadata.get("type") == "apology":
        text = note.content.removeprefix(_TOLD).removesuffix(")")
        await session.commit((), (answer_to(item, text, "apology"),))


async def close_open_calls(session: Session, item: Item, now: int, by: str, told: Mapping[str, Json]) -> None:
    """After a thought was cut short by `by`: give the calls without a result one, and note the end of the item.

    told: goes into the note, for a /stop that a crash cuts off from its answer.
    """
    answered: set[str] = set()
    closing: list[Entry] = []
    for entry in reversed(session.entries):
        if entry.item is not None:
            break
        if entry.role == "tool":
            answered.add(entry.call_id or "")
        for call in entry.calls:
            if call.id not in answered:
                content = f'{{"cancelled":true,"reason":"stopped by {by}"}}'
                closing.append(Entry(now, "tool", content, call_id=call.id, metadata={"error": True}))
    metadata = {"type": "stopped", "ends": True, **told}
    note = Entry(now, "system", f"(Work on the message above was stopped by {by}.)", metadata=metadata)
    recorded = progress_of(session.entries, item.n).next is not Next.RECORD
    await session.commit((*closing, note) if recorded else ())


async def _give_up(item: Item, session: Session, mind: Mind, thoughts: int, *, replied: bool) -> None:
    _log.warning("too many thoughts about one message", item=item.n, thoughts=thoughts)
    text = f"I thought {thoughts} times about your message without coming to an end, so I stopped there."
    if replied:
        note = f"({thoughts} thoughts about one message: stopped here.)"
        await session.commit((Entry(mind.clock(), "assistant", note, metadata={"type": "limit", "ends": True}),))
    else:
        await apologise(item, session, mind.clock(), text)


def _user_entry(item: Item, now: int) -> Entry:
    message = item.message
    if is_notice(item):
        return Entry(now, "user", content_of(message), metadata={"item": item.n, **metadata_of(message)})
    content = user_content(message.text, message.channel, tuple(map(_attachment, message.media)))
    return Entry(now, "user", content, metadata={"item": item.n, "messageId": message.id})


def _attachment(media: Media) -> str:
    return f"(attached: {media.name}, {media.mime}, {len(media.data) * 3 // 4:,} bytes; this version cannot open it)"


def _turn_metadata(response: ModelResponse) -> dict[str, Json]:
    usage = response.usage
    metadata: dict[str, Json] = {
        "usage": {"promptTokens": usage.prompt_tokens, "completionTokens": usage.completion_tokens},
        "stopReason": response.stop_reason,
    }
    if response.thinking:
        metadata |= {"thinking": list(response.thinking), "thinkingOf": response.thinking_of}
    return metadata


_HINTS: Mapping[str, str] = {
    "auth": "The key for the model is missing or wrong; whoever runs me can set it.",
    "request": "Sending the same again will not help; /new begins a fresh conversation.",
}


def _model_failure(error: ModelError) -> str:
    hint = _HINTS.get(error.kind, "Please send it again in a while.")
    return f"Sorry, I could not think about your message: {error}. {hint}"


def names(tools: Sequence[Tool]) -> Mapping[str, Tool]:
    """The tools by their names."""
    return {tool.spec.name: tool for tool in tools}
