"""Endings of an item that the model did not choose: apologies, /stop, /new, and the limits of thoughts and of repeated calls.

Each leaves a note in the session with `"ends": true`, which is how a restart knows that the item needs nothing more. The note and the
text for the sender are one `Session.commit`, so a cancel while the disk refuses to write leaves neither. A power failure meanwhile may
leave the note alone (see `think_loop`); the next start then posts the text of the note again (`repeat_replies`).

The texts are short. They give the reason in the words of the provider or the tool that failed, and say what the sender can do about
it, if there is anything. They are not written by a model, because the model is what has just failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pegasus.conversation import ERROR_LENGTH, Entry, cancelled_result, find_loop, is_repeatedly_truncated
from pegasus.formatting import truncate
from pegasus.intake import alias_note
from pegasus.main_agent.replies import REPLY, direct_reply, files_alone, queued_result, reply_key, reply_to_sender
from pegasus.main_agent.session import (
    CUT,
    SENT,
    ItemProgress,
    NextStep,
    Session,
    files_sent_by,
    is_begun_by,
    note_of,
    opening_entry,
    text_of_end_note,
)
from pegasus.messages import Json
from pegasus.models import ModelError
from pegasus.observe import get_logger
from pegasus.schedule import SCHEDULED
from pegasus.storage import Item, Post

_log = get_logger("main_agent")

STOPPED_ELSEWHERE: Final = (
    "I was stopped from another chat while I was thinking about your message. Send it again if it still matters."
)
"""Text for the sender of a message whose thought was ended from another chat."""
MODEL_DECLINED: Final = "Sorry, the model that thinks for me declined to answer this."
"""Text for the sender of a message that the provider's safety filter refused. Asking again would be refused again."""
NEW_TAKES_NO_WORDS: Final = "I have not read what stood behind /new; send it as a message of its own."
"""Added to the answer to a /new with more words."""
APOLOGY: Final = "apology"
"""`metadata.type` of the note about an apology, and last part of its idempotency key. Stored, so it must not change."""
_HINTS: Final[Mapping[str, str]] = {
    "auth": "The key for the model is missing or wrong; whoever runs me can set it.",
    "request": "Sending the same again will not help; /new begins a fresh conversation.",
    "overflow": "The conversation has become too long for the model; /new begins a fresh one.",
    "budget": "",
    "silent": "",
    "window": "",
    "tools": "",
}
"""By kind of ModelError, what the sender can do about it."""
_GUESTS_HINTS: Final[Mapping[str, str]] = {
    "auth": "Whoever runs me has to look at that.",
    "request": "Sending the same again will not help.",
    "overflow": "The conversation has become too long.",
    "budget": "I have done as much as I may for now; please try again later.",
}
"""The same for a guest, who is told nothing about model, keys and costs."""


async def apologise(item: Item, session: Session, now: int, text: str, thought: Entry | None = None) -> None:
    """Post an apology to the sender and end the item. thought: the answer of the model, if there is one; it is written with the note.

    Of a scheduled job that fails again and again only the first apology is posted.

    An item that is not in the session yet gets a placeholder there instead of its text: the text may be what makes the agent fail.
    """
    if session.progress(item.n, item.message.id).next is NextStep.RECORD:
        # No thought was lost here: the model is asked about recorded items only.
        first = Entry(now, "user", "(a message that could not be taken up)", item=item.n)
        before: tuple[Entry, ...] = (first,)
    else:
        before = (thought,) if thought is not None else ()
    is_repeated = _failed_before(item, session)
    # A job that runs every minute must not write to its owner every minute.
    content = f"(The scheduled job has failed again. Nobody was told: {text})" if is_repeated else note_of(text)
    note = Entry(now, "assistant", content, metadata={"type": APOLOGY, "ends": True})
    await session.commit((*before, note), () if is_repeated else (reply_to_sender(item, text, APOLOGY),))


def _failed_before(item: Item, session: Session) -> bool:
    """Return whether an item is a run of a scheduled job whose run before ended with an apology, too: people were told then."""
    metadata = item.message.metadata
    if metadata.get("type") != SCHEDULED:
        return False
    for entry in reversed(session.entries):
        if entry.item not in (None, item.n) and entry.metadata.get("jobId") == metadata.get("jobId"):
            return any(later.metadata.get("type") == APOLOGY for later in session.of_item(entry.item))
    return False


def log_set_aside(item: Item, attempts: int) -> str:
    """Log that an item is set aside, and return the apology for its sender. attempts: that have failed.

    It is the `CompleteItem` of the caller that takes the item out of the queue.
    """
    _log.error("set a message aside: it failed too often", item=item.n, attempts=item.attempt - 1)
    return (
        f"Sorry, an internal error occurred: work on your message failed {attempts} times, so I have set it aside. "
        "It is kept, and the details are in my log."
    )


async def repeat_replies(item: Item, session: Session) -> None:
    """Post the texts again that the entries of an item hold: replies in direct speech, apologies and other notes to the sender.

    A power failure may leave an entry without its post (see `think_loop`). The entry says that nothing more is to be done, so nobody
    would ever read the text. One that was posted is not posted twice. Calls of the reply tool need no such repetition: at load they
    have no result, and the model decides (see `session.loading`).
    """
    posts: list[Post | None] = []
    thoughts = 0
    for entry in session.of_item(item.n):
        # The entries of a later item follow, which has taken this one along.
        if entry.item not in (None, item.n):
            break
        thoughts += entry.role == "assistant"
        files = files_sent_by(entry)
        if entry.metadata.get("spoken") is True:
            # The number of the thought is part of the key, as it was when the text was posted first.
            posts.append(direct_reply(entry.content, item, thoughts, files))
        elif entry.metadata.get("type") == SENT and files:
            posts.append(files_alone(files, item, thoughts))
        elif (text := text_of_end_note(entry)) is not None:
            posts.append(reply_to_sender(item, text, str(entry.metadata.get("type"))))
        elif entry.metadata.get("elsewhere") is True:
            posts.append(reply_to_sender(item, STOPPED_ELSEWHERE, "stopped"))
    if wanted := tuple(post for post in posts if post is not None):
        await session.commit((), wanted)


async def close_stopped_item(
    session: Session,
    item: Item,
    now: int,
    by: str,
    facts: Mapping[str, Json],
    *,
    from_elsewhere: bool = False,
    shown: str = "",
    tasks_go_on: bool = False,
) -> bool:
    """Make the session well-formed after a /stop or an interrupt, and note the end of the item. Return whether the item has ended.

    Calls without a result get one: the true one for a reply that was posted, for any other call one that says it was cancelled. A
    reply goes out with the thought, before the tools run, and a model that took it for cancelled would give it again.

    by: author of the /stop. facts: metadata of the note, from which a /stop whose answer was lost in a crash is answered later.
    from_elsewhere: the /stop came from another chat. The sender, who waits for an answer, then gets STOPPED_ELSEWHERE. An internal
    item does not end in that case but is worked on again, because the person who wrote /stop meant another chat, and the result of a
    task would be lost. shown: draft that the sender sees and keeps, which becomes an entry of the assistant. tasks_go_on: nothing else
    was ended.
    """
    ends = not (from_elsewhere and item.message.is_internal)
    answered: set[str] = set()
    # Backwards, so that the results of a call are seen before the call itself.
    closing: list[Entry] = []
    for entry in reversed(session.of_item(item.n)):
        if entry.role == "tool":
            # Read backwards, a result comes before its call. What has no result when its call is met was never answered.
            answered.add(entry.call_id or "")
        for call in entry.calls:
            reply = session.replies.get(reply_key(item.n, call.id))
            if reply is not None and call.id not in answered:
                closing.append(Entry(now, "tool", queued_result(reply), call_id=call.id))
            elif call.id not in answered:
                result = cancelled_result(f"stopped by {by}")
                closing.append(Entry(now, "tool", result, call_id=call.id, failed=True))
    posts = (reply_to_sender(item, STOPPED_ELSEWHERE, "stopped"),) if from_elsewhere and ends else ()
    metadata: dict[str, Json] = {"type": "stopped", **facts}
    metadata |= {"ends": True} if ends else {}
    metadata |= {"elsewhere": True} if posts else {}
    if shown and ends:
        closing.append(Entry(now, "assistant", shown, metadata={"type": CUT}))
    note = Entry(
        now, "system", _stopped_note(by, has_text=bool(shown and ends), tasks_go_on=tasks_go_on), metadata=metadata
    )
    await session.commit((*closing, note), posts)
    return ends


def _stopped_note(by: str, *, has_text: bool, tasks_go_on: bool) -> str:
    """Return the note about an end, for the model. has_text: the draft stands above it."""
    what = f"Work on the message above was {'interrupted' if tasks_go_on else 'stopped'} by {by}."
    cut = " The answer was cut off where the text above ends; that much of it was seen." if has_text else ""
    return f"({what}{cut}{' Background tasks go on.' if tasks_go_on else ''})"


async def begin_session(item: Item, session: Session, now: int) -> None:
    """Carry out the /new in an item: archive the session and answer with the archive's name.

    Called again after a crash, it finds in the first entry that this item has begun the session, and only answers. The answer has
    an idempotency key, so it is sent once. An empty session is not archived.
    """
    answer = " ".join(filter(None, ["This is a fresh conversation.", alias_note(item.message.text)]))
    if len(item.message.text.split(None, 1)) > 1:
        answer = f"{answer} {NEW_TAKES_NO_WORDS}"
    # There is nothing to archive; the first entry still says that this item was the /new.
    if not session.entries:
        await session.commit((opening_entry(now, item, ""),), (reply_to_sender(item, answer, "new"),))
        return
    if not is_begun_by(session.entries, item.n, item.message.id):
        # One step archives the old session and begins the new one. A crash behind it is recognised by the first entry.
        archive = await session.restart(lambda archive: (opening_entry(now, item, archive),), now)
        answer += f" The one before is kept in {session.files.file(archive)}."
    await session.commit((), (reply_to_sender(item, answer, "new"),))


async def end_if_stuck(
    item: Item, session: Session, progress: ItemProgress, max_thoughts: int, clock: Callable[[], int]
) -> bool:
    """End an item whose calls go in circles, or that has had all the thoughts it may have. Return whether it has ended.

    progress: of the item. clock: returns the wall clock, ms. A sender who got no reply gets an apology with the reason. A sender who
    got one gets nothing more: the note in the session is for the model, which sees in later requests why it stopped.
    """
    entries, thoughts = session.of_item(item.n), progress.thoughts
    if (circle := find_loop(entries)) is not None:
        _log.warning("calls go in circles", item=item.n, tool=circle.tool, reason=circle.reason)
        text = f"I gave up: the tool {circle.tool} {circle.reason}"
        # If the repeated call is a reply that went out, the person has an answer.
        was_heard, note = circle.tool == REPLY.name and not circle.failed, f"({text})"
    elif thoughts >= max_thoughts or is_repeatedly_truncated(entries):
        _log.warning("too many thoughts about one message", item=item.n, thoughts=thoughts)
        error = _last_error(entries)
        reason = f"; the last one failed with: {error}" if error else " without coming to an end."
        # A person who has had a reply is told no more; the model reads the note.
        was_heard, note = bool(progress.replies), f"({thoughts} thoughts about one message: stopped here.)"
        text = f"I gave up after {thoughts} attempts{reason}"
    else:
        return False
    now = clock()
    if was_heard:
        await session.commit((Entry(now, "assistant", note, metadata={"type": "limit", "ends": True}),))
    else:
        await apologise(item, session, now, text)
    return True


def _last_error(entries: Sequence[Entry]) -> str:
    """Return the error of the last tool call that failed, "" if the last answer had none."""
    for entry in reversed(entries):
        if entry.failed:
            return truncate(entry.content.removeprefix("Error: "), ERROR_LENGTH)
        if entry.role == "assistant":
            break
    return ""


def model_failure(error: ModelError, *, is_owner: bool = True) -> str:
    """Return the text for the sender of a message that the model did not answer. Which model that is, and why, is for owners."""
    if not is_owner:
        return f"The model did not answer. {_GUESTS_HINTS.get(error.kind, 'Please send it again in a while.')}"
    hint = _HINTS.get(error.kind, "Please send it again in a while.")
    if str(error).endswith("]"):  # its text says what to do: about a key, an unknown model, an account without credit
        hint = ""
    return f"The model did not answer: {error}. {hint}".rstrip()
