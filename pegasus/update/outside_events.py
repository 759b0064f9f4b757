"""Events from outside, in their order: messages, edits by hand, what owners did at other doors, and the starts of the process.

**Order.** Whatever was accepted has a number, and the numbers are kept: a message is handed in when everything with a smaller number
is there. A message that joined a turn was there before the answer that was thought without it; one that did not join it came after.
That is read from the conversation, where clocks cannot tell it: both may have happened within a millisecond.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from actors import Ref
from pegasus.access import AnswerApproval, AnswerScope, ApprovalMessage, Principal, Role, parse_scope
from pegasus.memory import Author
from pegasus.messages import Address, InboundMessage
from pegasus.schedule import AddJob, Job, ScheduleMessage
from pegasus.storage import Accept
from pegasus.update.beginning import NOTES, added_jobs
from pegasus.update.record import (
    Line,
    Record,
    facts_of,
    is_internal,
    message_id,
    time_of,
)
from pegasus.update.recorded_answers import STOPPED, own_lines
from pegasus.update.replay_world import EVERYBODY, ReplayWorld, Stage
from pegasus.wire import from_wire

_PRODUCED_WITHIN: Final = 0.3
"""Seconds in which the product must have put an item of its own into the inbox that the record has there."""
_NEAR: Final = 2_000
"""Time within which what a message asks for is done, ms."""
_FED: Final = ("heartbeat", "reply_undelivered")
"""Kinds of items of the program itself that depend on what is not replayed."""


@attrs.frozen(eq=False)
class OutsideEvent:
    """Something that came from outside."""

    at: float
    """Time of it, ms."""
    what: str
    """The thing, for the report."""
    act: Callable[[ReplayWorld], Awaitable[None]]
    """Lets it happen."""


def events_of(stage: Stage, since: int) -> list[OutsideEvent]:
    """Return everything that came from outside since a time, in its order."""
    record = stage.answers.record
    found = [*_messages(stage, record, since), *_edits(stage, record, since), *_answers_of_owners(record, since)]
    found += [*_interrupts(record, since), *_added_jobs(record, since)]
    return sorted(found, key=lambda event: event.at)


def starts_of(copy: Path, record: Record, since: int) -> list[int]:
    """Return the times at which the process was started since a time, but the first, as its log tells them; ms."""
    try:
        starts = json.loads((copy / "starts.json").read_bytes())
    except (OSError, ValueError):
        starts = []
    first = min((time_of(line, "at") for line in record.messages if time_of(line, "at") >= since), default=since)
    return sorted(at for at in set(starts) if at > first)


# ------------------------------------------------------------------ messages


def _messages(stage: Stage, record: Record, since: int) -> Iterator[OutsideEvent]:
    for line in record.messages:
        if time_of(line, "at") < since:
            continue
        if is_internal(line):
            kind = (line["message"].get("metadata") or {}).get("type")
            act = partial(_expect, stage, line, is_own=kind in _FED)
        else:
            act = partial(_submit, stage, line)
        yield OutsideEvent(stage.answers.times[line["n"]], f"message {message_id(line)}", act)


async def _submit(stage: Stage, line: Line, world: ReplayWorld) -> None:
    """Hand in a message, when all items with smaller numbers are there."""
    await _wait_for_number(stage, line["n"] - 1)
    message = from_wire(line["message"], InboundMessage)
    answer = await world.intake.send(message, EVERYBODY)
    await answer.get()


async def _expect(stage: Stage, line: Line, world: ReplayWorld, *, is_own: bool) -> None:
    """Check that the product has put an item of its own into the inbox. One that is missing is handed in, so that the rest goes on."""
    id = message_id(line)
    if not is_own:
        with trio.move_on_after(_PRODUCED_WITHIN):
            while not stage.has(id):  # noqa: ASYNC110 virtual time: the journal has no notification of this
                await trio.sleep(0.001)
        if stage.has(id):
            return
        stage.found.add(f"item {id}", line["message"], None)
    message = from_wire(line["message"], InboundMessage)
    await world.tree.journal.ask(
        Accept, message, line.get("lane", "main"), line.get("rank", 0), line.get("owner", False)
    )


async def _wait_for_number(stage: Stage, number: int) -> None:
    with trio.move_on_after(_PRODUCED_WITHIN):
        while stage.number_of_items() < number:  # noqa: ASYNC110 as above
            await trio.sleep(0.0005)


# ------------------------------------------------------------------ other doors


def _edits(stage: Stage, record: Record, since: int) -> Iterator[OutsideEvent]:
    """Yield changes of memory that people have made, with an editor or at another door."""
    for line in record.changes:
        by = line.get("by") or {}
        if time_of(line) < since or "n" not in line or not isinstance(line.get("path"), str):
            continue
        path = line["path"]
        if by.get("kind") == "hand" and isinstance(line.get("text"), str):
            yield OutsideEvent(time_of(line) - 0.5, f"edit of {path}", partial(_edit, stage, path, line["text"]))
        elif (
            by.get("kind") == "user"
            and line.get("how") == "undo"
            and not _was_said(record, line, str(by.get("channel")))
        ):
            act = partial(_undo, line)
            yield OutsideEvent(time_of(line), f"undo of change {line.get('undoes')}", act)
        elif by.get("kind") == "reflection" and isinstance(line.get("text"), str):
            # A reflection records what it has changed, and not the calls that it has made for it.
            yield OutsideEvent(time_of(line), f"reflection on {by.get('task')}", partial(_change, line))


def _was_said(record: Record, line: Line, channel: str) -> bool:
    """Return whether a change of memory comes of a message, which is replayed by itself."""
    near = [item for item in record.messages if 0 <= time_of(line) - time_of(item, "at") < _NEAR]
    return any(_address(item["message"]) == channel for item in near)


async def _edit(stage: Stage, path: str, text: str, world: ReplayWorld) -> None:
    await trio.lowlevel.checkpoint()
    place = path if path == NOTES else f"memory/{path}"
    stage.disk.put(place, text.encode("utf-8", "surrogateescape"))


async def _undo(line: Line, world: ReplayWorld) -> None:
    await world.tree.services.memory.undo(int(line.get("undoes", 0)), _author(line))


async def _change(line: Line, world: ReplayWorld) -> None:
    content = line["text"].encode("utf-8", "surrogateescape")
    await world.tree.services.memory.write_as_it_is(line["path"], content, _author(line), str(line.get("how")))


def _author(line: Line) -> Author:
    known = {field.name for field in attrs.fields(Author)}
    return Author(**{key: str(value) for key, value in line["by"].items() if key in known})


def _answers_of_owners(record: Record, since: int) -> Iterator[OutsideEvent]:
    """Yield the answers to approvals that did not come as a message."""
    said = [(_address(line["message"]), str(line["message"].get("text", ""))) for line in record.messages]
    for line in record.approvals:
        id, at, by = str(line.get("id")), time_of(line, "at"), str(line.get("by", ""))
        if at < since or line.get("state") not in ("allowed", "denied"):
            continue
        if not any(address == by and id in text for address, text in said):
            yield OutsideEvent(at - 0.5, f"answer to {id}", partial(_answer, line))


def _address(message: Line) -> str:
    channel = message.get("channel") or {}
    return f"{channel.get('type')}:{channel.get('channelId')}"


async def _answer(line: Line, world: ReplayWorld) -> None:
    allowed = line.get("allowed")
    keeper: Ref[ApprovalMessage] = world.tree.root.ref("approvals/keeper")
    await keeper.ask(
        partial(
            AnswerApproval,
            id=str(line["id"]),
            is_allowed=line.get("state") == "allowed",
            by=str(line.get("by", "")),
            scope=parse_scope(str(line.get("scope", "once"))) or AnswerScope.ONCE,
            reason=str(line.get("reason", "")),
            calls=tuple(allowed) if isinstance(allowed, list) else None,
            is_own_door=True,
        )
    )


def _interrupts(record: Record, since: int) -> Iterator[OutsideEvent]:
    """Yield the ends of answers that people have asked for without a message."""
    accepted = {line["n"]: line for line in record.messages}
    for parts in record.sessions.values():
        item = 0
        for line in own_lines(parts):
            facts = facts_of(line)
            if isinstance(facts.get("item"), int):
                item = facts["item"]
            if facts.get("type") != STOPPED or time_of(line) < since or "stop" in facts or item not in accepted:
                continue
            by = re.search(r"\bby (.*?)\.(?: |\)|$)", str(line.get("content", "")))
            channel = accepted[item]["message"].get("channel") or {}
            act = partial(
                _end,
                Address(str(channel.get("type")), str(channel.get("channelId"))),
                by[1] if by else "a person",
                is_interrupt="interrupted" in str(line.get("content", "")),
            )
            yield OutsideEvent(time_of(line) - 0.5, f"end of the answer to item {item}", act)


async def _end(address: Address, by: str, world: ReplayWorld, *, is_interrupt: bool) -> None:
    if not is_interrupt:
        await world.tree.main_agent.stop(by)
        return
    await world.tree.main_agent.interrupt(address, Principal(Role.OWNER, None), by)


def _added_jobs(record: Record, since: int) -> Iterator[OutsideEvent]:
    """Yield the jobs with an interval that were made at another door."""
    for at, row in added_jobs(record, since):
        yield OutsideEvent(at, f"job {row.get('id')}", partial(_add_job, row))


async def _add_job(row: Line, world: ReplayWorld) -> None:
    keeper: Ref[ScheduleMessage] = world.tree.root.ref("schedule/keeper")
    draft = attrs.evolve(from_wire(row, Job), enabled=True, last=None, runs=0, failures=0, judged=None)
    await keeper.ask(AddJob, draft)
