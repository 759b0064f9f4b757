"""Replies: everything that is sent to people, and the endings of an item that the model did not choose.

A call of the reply tool becomes a post for the outbox. The journal stores the post as a reply or refuses it, and the result of the
call says which of the two happened. The result says "queued": the reply is kept for delivery. It does not say "delivered", since that
is not known yet.

Each post has an idempotency key, made of the queue item and the call. A crash between the call and its result may lead to the same
post twice; the journal then answers with the reply that it has stored already.

Where a reply goes is decided by the journal, which knows all channels: a known channelId of the given type; the only known type with
that channelId; the type of the message being answered, if the id is its own; or a new id, if a bridge for the given type is present.
Anything else is refused with a list of the known channels, and nothing is sent. A wrong guess would send private text to strangers,
while a refusal costs one more thought.

An item may also end with an apology, a /stop, or the limit of thoughts. Each leaves a note in the session with `"ends": true`,
which is how a restart knows that the item needs nothing more. The note and the text for the sender are one `Session.commit`, so a
cancel while the disk refuses to write leaves neither. A power failure may leave the note alone, since the journal writes the outbox
last; the next start then posts the text of the note again (`repeat_replies`). The texts are short. They give the reason in the
words of the provider or the tool that failed, and say what the sender can do about it, if there is anything. They are not written
by a model, because the model is what has just failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from pegasus.conversation import ERROR_LENGTH, Entry, cancelled_result, find_circle, is_cut_again_and_again
from pegasus.formatting import truncate
from pegasus.identity import SILENCE
from pegasus.main_agent.session import (
    REPLY_NAME,
    SENT,
    ItemProgress,
    NextStep,
    Session,
    files_sent_by,
    is_begun_by,
    note_of,
    opening_entry,
    told_in,
)
from pegasus.messages import Address, Json, Metadata, OutboundMessage, StoredFile
from pegasus.models import ModelError, ToolCall, ToolSpec
from pegasus.observe import get_logger
from pegasus.schedule import SCHEDULED
from pegasus.storage import Item, Post, PostResult
from pegasus.tools import ToolOutcome, prepare_arguments
from pegasus.wire import encode_json

_log = get_logger("main_agent")

REPLY: Final = ToolSpec(
    REPLY_NAME,
    "Speak. The only way anybody hears you. Give back the channel of the message you answer, or choose another known one.",
    {
        "type": "object",
        "properties": {
            "channelId": {"type": "string", "description": "The id from the message's metadata line"},
            "channelType": {"type": "string", "description": "The channel type from the metadata line"},
            "replyTo": {"type": "string", "description": "The thread from the metadata line, if there is one"},
            "text": {"type": "string", "description": "What to say"},
            "media": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Paths of files in the workspace to send with it, such as one that a task has made",
            },
        },
        "required": ["channelId", "text"],
    },
)
"""The tool as the model is shown it. The address comes before the text, and `channelId` is required, so that a draft can be addressed
early; a call without it is accepted all the same (see `_parse_reply`)."""
_ACCEPTED: Final[Metadata] = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("channelId", "channelType", "replyTo", "text")},
        "media": {"type": ["array", "string"], "items": {"type": "string"}},
    },
}
"""Schema that calls of `reply` are checked against."""
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
IN_REPLY_TO: Final = "inReplyTo"
"""Key of a reply's metadata: the id of the message that it answers."""
QUESTION: Final = "question"
"""Key of a reply's metadata: the beginning of that message, if it came from the conversation that the reply goes to."""
QUESTION_LENGTH: Final = 200
"""Characters of a message that its replies repeat in their metadata, enough for people to recognise it."""

_TOO_MANY_REPLIES: Final = "this message has had as many replies as it may have; do not reply to it any more"
"""Text for the model. The setting `agent.max_replies` protects people from a model that sends the same reply again and again."""
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


# ------------------------------------------------------------------ posts


def reply_key(item: int | None, call_id: str) -> str:
    """Return the idempotency key of a post: item numbers are unique over all sessions, call ids within one session.

    call_id: of the call; for a text that no call has asked for, a word for its purpose, such as "apology" or "text-1". Call ids come
    from models, which do not know these words.
    """
    return f"main/{item or 0}/{call_id}"


def item_of_key(key: str) -> int:
    """Return the number of the item that a reply with this key came of; 0 if it came of none.

    >>> item_of_key(reply_key(12, "call_1"))
    12
    """
    head, _, rest = key.partition("/")
    number = rest.partition("/")[0]
    return int(number) if head == "main" and number.isascii() and number.isdigit() else 0


@attrs.frozen(eq=False, repr=False)
class WantedReply:
    """A reply as a call wants it: `WantedReply(post, ("chart.png",))`, or `WantedReply(refusal="text is empty")`."""

    post: Post | None = None
    """The post, None if it is refused."""
    paths: tuple[str, ...] = ()
    """Paths of the files that it is to send and does not have yet."""
    refusal: str = ""
    """Why there is no post, in words for the model."""


def parse_replies(item: Item, calls: tuple[ToolCall, ...], room: int) -> dict[str, WantedReply]:
    """Return the replies that the calls want, by call id; at most `room` of them have a post.

    They are parsed before the thought is written, since posts and thought go into one durable step.
    """
    parsed: dict[str, WantedReply] = {}
    for call in calls:
        if call.name == REPLY.name:
            wanted = _parse_reply(call, item)
            if wanted.post is not None:
                wanted = wanted if room > 0 else WantedReply(refusal=_TOO_MANY_REPLIES)
                room -= 1
            parsed[call.id] = wanted
    return parsed


def _parse_reply(call: ToolCall, item: Item) -> WantedReply:
    """Return the reply that a call wants; it is refused for wrong or empty arguments.

    item: the message being worked on. Its channel decides between channels of the same id, and gets a reply without a channelId.
    """
    if call.error:
        return WantedReply(refusal=call.error)
    arguments, problem = prepare_arguments(_ACCEPTED, call.arguments)
    if problem is not None:
        return WantedReply(refusal=problem)
    text, paths = str(arguments.get("text") or ""), _media_paths(call)
    if not text.strip() and not paths:
        return WantedReply(refusal="text is empty" if "text" in arguments else "text is required")
    channel_id, kind, thread = (
        str(arguments.get(name) or "").strip() or None for name in ("channelId", "channelType", "replyTo")
    )
    source = item.message.channel
    if channel_id is None and kind not in (None, source.type, source.address.escaped.type):
        return WantedReply(refusal=f"channelId is missing, and channelType {kind!r} is not that of the message")
    if channel_id is None:
        channel_id, kind, thread = source.channel_id, source.type, source.reply_to
    return WantedReply(_post(item, text, call.id, channel_id, kind, thread), paths)


def _media_paths(call: ToolCall) -> tuple[str, ...]:
    """Return the paths of the files that a call of `reply` sends, each once. A model may give a single path instead of a list."""
    media = call.arguments.get("media")
    paths = [media] if isinstance(media, str) else media if isinstance(media, list) else []
    return tuple(dict.fromkeys(path for path in paths if isinstance(path, str) and path.strip()))


def reply_to_sender(item: Item, text: str, purpose: str) -> Post:
    """Return the post of a text to the sender of an item: the answer to a command, an apology.

    purpose: makes the key unique within the item.
    """
    channel = item.message.channel
    return _post(item, text, purpose, channel.channel_id, channel.type, channel.reply_to)


def direct_reply(text: str, item: Item, thought: int, files: tuple[StoredFile, ...] = ()) -> Post | None:
    """Return the post of a text that is the reply itself (direct speech); None if the model chose silence.

    thought: number of the thought within the item, for the key. files: they go out behind the text.
    """
    text = text.strip()
    if not text or text == SILENCE:
        return None
    return attrs.evolve(reply_to_sender(item, text, f"text-{thought}"), files=files)


def files_alone(files: tuple[StoredFile, ...], item: Item, thoughts: int) -> Post:
    """Return the post of gathered files after a turn that has ended without a text. thoughts: that it had, for the key."""
    return attrs.evolve(reply_to_sender(item, "", f"{SENT}-{thoughts}"), files=files)


def _post(item: Item, text: str, purpose: str, channel_id: str, channel_type: str | None, reply_to: str | None) -> Post:
    """Return a post about an item. Its metadata names the message that it answers; an internal item is nobody's message.

    In the conversation of that message, the metadata has its beginning as well: only one of the clients there has sent it, and the
    others could not tell what is being answered. No other conversation is told.
    """
    message, key = item.message, reply_key(item.n, purpose)
    metadata: dict[str, Json] = {} if message.is_internal else {IN_REPLY_TO: message.id}
    given = Address(channel_type or message.channel.type, channel_id)
    is_same = given == message.channel.address or given.escaped == message.channel.address.escaped
    if metadata and is_same and (question := truncate(message.text[: 4 * QUESTION_LENGTH], QUESTION_LENGTH)):
        metadata[QUESTION] = question
    return Post(
        key=key,
        text=text,
        channel_id=channel_id,
        source=message.channel,
        channel_type=channel_type,
        reply_to=reply_to,
        metadata=metadata,
    )


def queued_result(message: OutboundMessage) -> str:
    """Return the tool result (JSON) of a reply that is in the outbox."""
    channel = message.channel
    facts: dict[str, Json] = {"queued": True, "channelType": channel.type, "channelId": channel.channel_id}
    facts["seq"] = message.seq
    if message.files:
        facts["files"] = [file.name for file in message.files]
    return encode_json(facts)


def reply_outcomes(
    replies: Mapping[str, WantedReply], posted: Mapping[str, PostResult], only: Address | None = None
) -> dict[str, ToolOutcome]:
    """Return what the model is told about each of these replies, by call id.

    posted: results of the journal by the key of the post. only: the one channel that may be named; None: all that are known.
    """
    return {
        call_id: _refused(reply.refusal) if reply.post is None else _post_outcome(posted[reply.post.key], only)
        for call_id, reply in replies.items()
    }


def _post_outcome(result: PostResult, only: Address | None) -> ToolOutcome:
    """Return the outcome of a reply that had a post."""
    if isinstance(result, OutboundMessage):
        return ToolOutcome(queued_result(result), failed=False)
    known = ", ".join(
        f"channelType {address.type} channelId {address.channel_id}"
        for address in result.known
        if only in (None, address)
    )
    return _refused(f"{result.reason}. Known channels: {known or 'none yet'}")


def _refused(reason: str) -> ToolOutcome:
    """Return the outcome of a reply that is not sent. It says so, so that the model does not assume that the text was sent."""
    return ToolOutcome.failure(f"nothing was said: {reason}")


# ------------------------------------------------------------------ endings


async def apologise(item: Item, session: Session, now: int, text: str, *before: Entry) -> None:
    """Post an apology to the sender and end the item. before: entries that come before the note about it, in the same step.

    Of a scheduled job that fails again and again only the first apology is posted.

    An item that is not in the session yet gets a placeholder there instead of its text: the text may be what makes the agent fail.
    """
    if session.progress(item.n, item.message.id).next is NextStep.RECORD:
        before = (Entry(now, "user", "(a message that could not be taken up)", metadata={"item": item.n}),)
    is_repeated = _failed_before(item, session)
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


def set_aside(item: Item, attempts: int) -> str:
    """Log that an item is set aside, and return the apology for its sender. attempts: that have failed."""
    _log.error("set a message aside: it failed too often", item=item.n, attempts=item.attempt - 1)
    return (
        f"Sorry, an internal error occurred: work on your message failed {attempts} times, so I have set it aside. "
        "It is kept, and the details are in my log."
    )


async def repeat_replies(item: Item, session: Session) -> None:
    """Post the texts again that the entries of an item hold: replies in direct speech, apologies and other notes to the sender.

    A power failure may leave an entry without its post, since the journal writes the outbox last. The entry says that nothing more is
    to be done, so nobody would ever read the text. One that was posted is not posted twice. Calls of the reply tool need no such
    repetition: at load they have no result, and the model decides (see `session.loading`).
    """
    posts: list[Post | None] = []
    thoughts = 0
    for entry in session.of_item(item.n):
        if entry.item not in (None, item.n):
            break
        thoughts += entry.role == "assistant"
        files = files_sent_by(entry)
        if entry.metadata.get("spoken") is True:
            posts.append(direct_reply(entry.content, item, thoughts, files))
        elif entry.metadata.get("type") == SENT and files:
            posts.append(files_alone(files, item, thoughts))
        elif (text := told_in(entry)) is not None:
            posts.append(reply_to_sender(item, text, str(entry.metadata.get("type"))))
        elif entry.metadata.get("elsewhere") is True:
            posts.append(reply_to_sender(item, STOPPED_ELSEWHERE, "stopped"))
    if wanted := tuple(post for post in posts if post is not None):
        await session.commit((), wanted)


async def close_stopped_item(
    session: Session, item: Item, now: int, by: str, facts: Mapping[str, Json], *, from_elsewhere: bool = False
) -> bool:
    """Make the session well-formed after a /stop, and note the end of the item. Return whether the item has ended.

    Calls without a result get one: the true one for a reply that was posted, for any other call one that says it was cancelled. A
    reply goes out with the thought, before the tools run, and a model that took it for cancelled would give it again.

    by: author of the /stop. facts: metadata of the note, from which a /stop whose answer was lost in a crash is answered later.
    from_elsewhere: the /stop came from another chat. The sender, who waits for an answer, then gets STOPPED_ELSEWHERE. An internal
    item does not end in that case but is worked on again, because the person who wrote /stop meant another chat, and the result of a
    task would be lost.
    """
    ends = not (from_elsewhere and item.message.is_internal)
    answered: set[str] = set()
    # Backwards, so that the results of a call are seen before the call itself.
    closing: list[Entry] = []
    for entry in reversed(session.of_item(item.n)):
        if entry.role == "tool":
            answered.add(entry.call_id or "")
        for call in entry.calls:
            reply = session.replies.get(reply_key(item.n, call.id))
            if reply is not None and call.id not in answered:
                closing.append(Entry(now, "tool", queued_result(reply), call_id=call.id))
            elif call.id not in answered:
                result = cancelled_result(f"stopped by {by}")
                closing.append(Entry(now, "tool", result, call_id=call.id, metadata={"error": True}))
    posts = (reply_to_sender(item, STOPPED_ELSEWHERE, "stopped"),) if from_elsewhere and ends else ()
    metadata: dict[str, Json] = {"type": "stopped", **facts}
    metadata |= {"ends": True} if ends else {}
    metadata |= {"elsewhere": True} if posts else {}
    note = Entry(now, "system", f"(Work on the message above was stopped by {by}.)", metadata=metadata)
    is_recorded = session.progress(item.n, item.message.id).next is not NextStep.RECORD
    await session.commit((*closing, note) if is_recorded else (), posts)
    return ends


async def begin_session(item: Item, session: Session, now: int) -> None:
    """Carry out the /new in an item: archive the session and answer with the archive's name.

    Called again after a crash, it finds in the first entry that this item has begun the session, and only answers. The answer has
    an idempotency key, so it is sent once. An empty session is not archived.
    """
    answer = "This is a fresh conversation."
    if len(item.message.text.split(None, 1)) > 1:
        answer = f"{answer} {NEW_TAKES_NO_WORDS}"
    if not session.entries:
        await session.commit((opening_entry(now, item, ""),), (reply_to_sender(item, answer, "new"),))
        return
    if not is_begun_by(session.entries, item.n, item.message.id):
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
    entries, thoughts = progress.entries, progress.thoughts
    if (circle := find_circle(entries)) is not None:
        _log.warning("calls go in circles", item=item.n, tool=circle.tool, reason=circle.reason)
        text = f"I gave up: the tool {circle.tool} {circle.reason}"
        # If the repeated call is a reply that went out, the person has an answer.
        was_heard, note = circle.tool == REPLY.name and not circle.failed, f"({text})"
    elif thoughts >= max_thoughts or is_cut_again_and_again(entries):
        _log.warning("too many thoughts about one message", item=item.n, thoughts=thoughts)
        error = _last_error(entries)
        reason = f"; the last one failed with: {error}" if error else " without coming to an end."
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


def model_failure(error: ModelError) -> str:
    """Return the text for the sender of a message that the model did not answer."""
    hint = _HINTS.get(error.kind, "Please send it again in a while.")
    if str(error).endswith("]"):  # its text says what to do: about a key, an unknown model, an account without credit
        hint = ""
    return f"The model did not answer: {error}. {hint}".rstrip()
