"""How the work on an item ends before its time: with an apology, by /stop, or at the limit of thoughts."""

from __future__ import annotations

from collections.abc import Mapping

from pegasus.conversation import Entry
from pegasus.main_agent.notices import is_notice
from pegasus.main_agent.progress import Next
from pegasus.main_agent.reply_tool import answer_to
from pegasus.main_agent.session import Session
from pegasus.messages import Json
from pegasus.models import ModelError
from pegasus.observe import get_logger
from pegasus.storage import Item

_log = get_logger("main_agent")

STOPPED_ELSEWHERE = (
    "I was stopped from another chat while I was thinking about your message. Send it again if it still matters."
)
_TOLD = "(I told the user: "


def content_of_note(text: str) -> str:
    """The content of the note that ends an item with a text that was not the model's."""
    return f"{_TOLD}{text})"


async def apologise(item: Item, session: Session, now: int, text: str) -> None:
    """Tell the sender honestly that nothing will come of the message, and end the item."""
    note = Entry(now, "assistant", content_of_note(text), metadata={"type": "apology", "ends": True})
    entries: tuple[Entry, ...] = (note,)
    if session.progress(item.n, item.message.id).next is Next.RECORD:
        entries = (Entry(now, "user", "(a message that could not be taken up)", metadata={"item": item.n}), note)
    await session.commit(entries, (answer_to(item, text, "apology"),))


async def repeat_apology(item: Item, note: Entry | None, session: Session) -> None:
    """A crash may have come between its note and the apology itself; one that was posted is not posted again."""
    if note is not None and note.metadata.get("type") == "apology":
        text = note.content.removeprefix(_TOLD).removesuffix(")")
        await session.commit((), (answer_to(item, text, "apology"),))


async def close_open_calls(
    session: Session, item: Item, now: int, by: str, told: Mapping[str, Json], *, elsewhere: bool = False
) -> bool:
    """After a thought was cut short by `by`: give the calls without a result one, and note the end of the item.

    told: goes into the note, for a /stop that a crash cuts off from its answer. elsewhere: it was said on another chat than the
    item's; then who waits for an answer is told, and what no person has said (a task's result) does not end: False.
    """
    ends = not (elsewhere and is_notice(item))
    answered: set[str] = set()
    closing: list[Entry] = []
    for entry in reversed(session.of_item(item.n)):
        if entry.role == "tool":
            answered.add(entry.call_id or "")
        for call in entry.calls:
            if call.id not in answered:
                content = f'{{"cancelled":true,"reason":"stopped by {by}"}}'
                closing.append(Entry(now, "tool", content, call_id=call.id, metadata={"error": True}))
    metadata: dict[str, Json] = {"type": "stopped", **({"ends": True} if ends else {}), **told}
    note = Entry(now, "system", f"(Work on the message above was stopped by {by}.)", metadata=metadata)
    recorded = session.progress(item.n, item.message.id).next is not Next.RECORD
    posts = (answer_to(item, STOPPED_ELSEWHERE, "stopped"),) if elsewhere and ends else ()
    await session.commit((*closing, note) if recorded else (), posts)
    return ends


async def give_up(item: Item, session: Session, now: int, thoughts: int, *, replied: bool) -> None:
    """The item has had all the thoughts it may have; who got no reply is told."""
    _log.warning("too many thoughts about one message", item=item.n, thoughts=thoughts)
    text = f"I thought {thoughts} times about your message without coming to an end, so I stopped there."
    if replied:
        note = f"({thoughts} thoughts about one message: stopped here.)"
        await session.commit((Entry(now, "assistant", note, metadata={"type": "limit", "ends": True}),))
    else:
        await apologise(item, session, now, text)


_HINTS: Mapping[str, str] = {
    "auth": "The key for the model is missing or wrong; whoever runs me can set it.",
    "request": "Sending the same again will not help; /new begins a fresh conversation.",
    "overflow": "The conversation has become too long for the model; /new begins a fresh one.",
    "budget": "",
}


def model_failure(error: ModelError) -> str:
    """What the sender is told when the model cannot be asked."""
    hint = _HINTS.get(error.kind, "Please send it again in a while.")
    return f"Sorry, I could not think about your message: {error}. {hint}".rstrip()
