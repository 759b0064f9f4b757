"""Endings of an item that the model did not choose: an apology, a /stop, the limit of thoughts.

Each leaves a note in the session with `"ends": true`, which is how a restart knows that the item needs nothing more. The note and the
text for the sender are written in one durable step, so that an item never ends in silence because of a crash in between.

The texts are short. They give the reason in the words of the provider or the tool that failed, and say what the sender can do about
it, if there is anything. They are not written by a model, because the model is what has just failed.

Each ending is a single `Session.commit`. Cancelled while the disk refuses to write, it leaves nothing behind, and the next attempt at
the item makes it again. After the commit a restart sees from the note that the item has ended. The idempotency key of the post
("apology", "stopped") is a second guard, so that a sender never gets the same apology twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pegasus.conversation import Entry, cancelled_result
from pegasus.formatting import truncate
from pegasus.intake import is_internal
from pegasus.main_agent.progress import NextStep
from pegasus.main_agent.reply_tool import reply_to_sender
from pegasus.main_agent.session import Session
from pegasus.messages import Json
from pegasus.models import ModelError
from pegasus.observe import get_logger
from pegasus.storage import Item

_log = get_logger("main_agent")

STOPPED_ELSEWHERE: Final = (
    "I was stopped from another chat while I was thinking about your message. Send it again if it still matters."
)
"""Text for the sender of a message whose thought was ended from another chat."""
MODEL_DECLINED: Final = "Sorry, the model that thinks for me declined to answer this."
"""Text for the sender of a message that the provider's safety filter refused. Asking again would be refused again."""
ERROR_LENGTH: Final = 200
"""Characters of a tool's error that the sender of a message is shown."""

_NOTE_PREFIX: Final = "(I told the user: "
"""Beginning of a note's content. It stands in session files, so `repeat_apology` depends on it after an update as well."""
_HINTS: Final[Mapping[str, str]] = {
    "auth": "The key for the model is missing or wrong; whoever runs me can set it.",
    "request": "Sending the same again will not help; /new begins a fresh conversation.",
    "overflow": "The conversation has become too long for the model; /new begins a fresh one.",
    "budget": "",
}
"""By kind of ModelError, what the sender can do about it."""


def note_of(text: str) -> str:
    """Return the content of the note about a text that was not the model's."""
    return f"{_NOTE_PREFIX}{text})"


async def apologise(item: Item, session: Session, now: int, text: str) -> None:
    """Post an apology to the sender and end the item.

    An item that is not in the session yet gets a placeholder there instead of its text: the text may be what makes the agent fail.
    """
    note = Entry(now, "assistant", note_of(text), metadata={"type": "apology", "ends": True})
    entries: tuple[Entry, ...] = (note,)
    if session.progress(item.n, item.message.id).next is NextStep.RECORD:
        placeholder = "(a message that could not be taken up)"
        entries = (Entry(now, "user", placeholder, metadata={"item": item.n}), note)
    await session.commit(entries, (reply_to_sender(item, text, "apology"),))


async def repeat_apology(item: Item, note: Entry | None, session: Session) -> None:
    """Post the apology of a note again, in case a crash came between the two. One that was posted is not posted twice."""
    if note is not None and note.metadata.get("type") == "apology":
        text = note.content.removeprefix(_NOTE_PREFIX).removesuffix(")")
        await session.commit((), (reply_to_sender(item, text, "apology"),))


async def close_stopped_item(
    session: Session, item: Item, now: int, by: str, facts: Mapping[str, Json], *, from_elsewhere: bool = False
) -> bool:
    """Make the session well-formed after a /stop, and note the end of the item. Return whether the item has ended.

    Calls without a result get one that says they were cancelled. by: author of the /stop. facts: metadata of the note, from which a
    /stop whose answer was lost in a crash is answered later. from_elsewhere: the /stop came from another chat. The sender, who waits
    for an answer, then gets STOPPED_ELSEWHERE. A notice does not end in that case but is worked on again, because the person who
    wrote /stop meant another chat, and the result of a task would be lost.
    """
    ends = not (from_elsewhere and is_internal(item.message))
    answered: set[str] = set()
    # Backwards, so that the results of a call are seen before the call itself.
    closing: list[Entry] = []
    for entry in reversed(session.of_item(item.n)):
        if entry.role == "tool":
            answered.add(entry.call_id or "")
        for call in entry.calls:
            if call.id not in answered:
                result = cancelled_result(f"stopped by {by}")
                closing.append(Entry(now, "tool", result, call_id=call.id, metadata={"error": True}))
    metadata: dict[str, Json] = {"type": "stopped", **({"ends": True} if ends else {}), **facts}
    note = Entry(now, "system", f"(Work on the message above was stopped by {by}.)", metadata=metadata)
    is_recorded = session.progress(item.n, item.message.id).next is not NextStep.RECORD
    posts = (reply_to_sender(item, STOPPED_ELSEWHERE, "stopped"),) if from_elsewhere and ends else ()
    await session.commit((*closing, note) if is_recorded else (), posts)
    return ends


async def give_up(item: Item, session: Session, now: int, thoughts: int, *, replied: bool) -> None:
    """End an item that has had all the thoughts it may have.

    A sender who got no reply gets an apology with the last error of a tool. A sender who got a reply gets nothing more: the note in
    the session is for the model, which sees in later requests why it stopped.
    """
    _log.warning("too many thoughts about one message", item=item.n, thoughts=thoughts)
    if replied:
        note = f"({thoughts} thoughts about one message: stopped here.)"
        await session.commit((Entry(now, "assistant", note, metadata={"type": "limit", "ends": True}),))
        return
    error = _last_error(session.of_item(item.n))
    reason = f"; the last one failed with: {error}" if error else " without coming to an end."
    await apologise(item, session, now, f"I gave up after {thoughts} attempts{reason}")


def _last_error(entries: Sequence[Entry]) -> str:
    """Return the error of the last tool call that failed, "" if the last answer had none."""
    for entry in reversed(entries):
        if entry.failed:
            return truncate(entry.content.removeprefix("Error: "), ERROR_LENGTH)
        if entry.role == "assistant":
            break
    return ""


def model_failure(error: ModelError) -> str:
    """Return the text for the sender of a message that the model did not answer."""
    hint = _HINTS.get(error.kind, "Please send it again in a while.")
    return f"The model did not answer: {error}. {hint}".rstrip()
