"""Updates of Telegram: from JSON to a message for the agent, a click on a button, or the move of a group.

Everything in an update is written by strangers or by a version of Telegram that does not exist yet. Fields that are not understood
are passed over; an update of which nothing is understood is None.

Ids: the channelId is the chat's id, the userId the writer's, replyTo the id of a forum's topic. The message's id is the one of
Telegram, which is unique in the chat of one bot. The adapter puts the bot before it (`account_ids`), so that an update that comes
twice is one message, and one to another bot is none of those before.

In groups the metadata of a message says `group` and `mentioned`, from which the intake decides whether it is heard. A message is meant
for the agent if it names the bot, answers it, is a command that is not another bot's, or is in a topic where the bot has spoken.

Three things change the text of a message before the agent sees it:

* Of a forwarded one the text is a quote with its author, and never a command: somebody else may have written `/stop`.
* An edited one is marked and has the time of the edit in its id, so that each edit is a message of its own. It is no command either:
  the command was carried out when it was written.
* In a command the name of the bot is left out, and `/start`, which Telegram's apps send by themselves, becomes `/pair` or `/help`.

What a message answers or quotes comes with it, pictures and files included (`_answered`).

Example: `read_update({"update_id": 1, "message": {…}}, BotName(123, "pegasus_bot"), lambda channel_id, thread: False)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from pegasus.access import GROUP, MENTIONED
from pegasus.channels.series import ALBUM, FILE, FORWARD, SPLIT
from pegasus.conversation import sanitize_name
from pegasus.markdown import utf16_length
from pegasus.messages import RELAYED, ChannelInfo, InboundMessage, Json
from pegasus.quotes import ANSWERS, FORWARDS, MARKS, Quote, quotes_metadata

TYPE: Final = "telegram"
"""The channel type."""
ALLOWED: Final = ("message", "edited_message", "channel_post", "edited_channel_post", "callback_query")
"""Kinds of updates that are asked for."""
LONGEST_NAME: Final = 64
"""Characters of a person's name."""
_START: Final = "/start"
"""Command that Telegram's apps send when somebody opens the chat with the bot."""
_PAIR_PAYLOAD: Final = re.compile(r"(?:pair[_-])?([A-HJ-NP-Z2-9]{8})\Z")
"""Text behind `/start` when somebody has followed a link with a code (https://core.telegram.org/bots/features#deep-linking)."""
_COMMAND: Final = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@([A-Za-z0-9_]{3,32}))?(?=\s|\Z)")
"""A command at the beginning of a text, with the name of the bot that it is meant for if there is one."""
_LEAST_SPLIT: Final = 3_900
"""UTF-16 code units of a text that may have been split: an app looks for a blank before the limit."""
_GROUP_BOT: Final = 1087968824
"""The user that stands for administrators who write anonymously, in the name of the group."""


@attrs.frozen
class BotName:
    """Name of the agent on Telegram: `BotName(123, "pegasus_bot")`."""

    id: int
    """Number of the bot. Messages of this user are our own."""
    username: str
    """Name without "@", by which it is mentioned."""


@attrs.frozen
class FileRef:
    """A file that is fetched by its id: `FileRef("AgAC…", "photo.jpg", "image/jpeg", 52113)`."""

    file_id: str
    """Telegram's id of the file, which is valid for this bot only."""
    name: str
    """Name as the sender's app has given it, else one by its kind."""
    mime: str
    """MIME type as Telegram has given it, else one by its kind."""
    size: int
    """Bytes, 0 if Telegram does not say."""
    is_voice: bool = False
    """A voice message that was not forwarded: the writer's own words."""


@attrs.frozen
class TelegramMessage:
    """A message of somebody."""

    message: InboundMessage
    """The message for the agent, without its files."""
    files: tuple[FileRef, ...] = ()
    """Files to be fetched before the message is handed on."""
    is_bot: bool = False
    """Another bot has written it."""
    sent: int = 0
    """When it was written, or edited: seconds since the epoch."""
    series: str = ""
    """Reason why further parts of it may follow (`series`): ALBUM and its id, FORWARD, FILE or SPLIT; "" for none."""
    is_edit: bool = False
    """True for a later state of a message."""


@attrs.frozen
class TelegramClick:
    """A click on a button below a message of ours."""

    id: str
    """Id by which the click is answered."""
    channel: ChannelInfo
    """The chat, and who has clicked."""
    message_id: str
    """Message that the button is below."""
    data: str
    """Data that the adapter has put into the button."""
    name: str
    """Name of who has clicked."""


@attrs.frozen
class GroupMove:
    """A group has become a supergroup with another id.

    Example: `GroupMove("-42", "-1001234")`. Replies to the old id go to the new one from then on.
    """

    old: str
    """Id of the group before, which replies that wait still have."""
    new: str
    """Id of the supergroup, for Telegram."""


InThread: TypeAlias = Callable[[str, str], bool]
"""Returns whether the agent has spoken in a topic: (channelId, replyTo)."""


def read_update(update: Json, bot: BotName, in_thread: InThread) -> TelegramMessage | TelegramClick | GroupMove | None:
    """Return what an update says, None if nothing of it concerns us. Never raises, whatever the update holds."""
    match update:
        case {"message": dict(message)} | {"channel_post": dict(message)}:
            return _read_message(message, bot, in_thread, is_edit=False)
        case {"edited_message": dict(message)} | {"edited_channel_post": dict(message)}:
            return _read_message(message, bot, in_thread, is_edit=True)
        case {"callback_query": dict(query)}:
            return _read_click(query)
    return None


# ------------------------------------------------------------------ messages


def _read_message(
    message: Mapping[str, Any], bot: BotName, in_thread: InThread, *, is_edit: bool
) -> TelegramMessage | GroupMove | None:
    """Return a message of somebody, or the move of a group; None for the bot's own words and for what has neither text nor file.

    Both the old and the new group get a message about a move, each of which names the other.
    """
    match message:
        case {"chat": {"id": int(old)}, "migrate_to_chat_id": int(new)}:
            return GroupMove(str(old), str(new))
        case {"chat": {"id": int(new)}, "migrate_from_chat_id": int(old)}:
            return GroupMove(str(old), str(new))
        case {"chat": {"id": int(chat_id)} as chat, "message_id": int(message_id)}:
            pass
        case _:
            return None
    # The bot's own messages are passed over, in whatever way they come back.
    writer = _writer(message)
    text, quotes = _text_of(message), tuple(_answered(message, bot))
    own, answered = tuple(_files(message)), tuple(_answered_files(message))
    if writer is None or writer.id == str(bot.id) or not (text or own):
        return None
    # Replies in a group without topics have a thread id, too, which is no place to send to.
    thread = _number(message.get("message_thread_id")) if message.get("is_topic_message") is True else None
    is_group = chat.get("type") != "private"
    channel = ChannelInfo(TYPE, str(chat_id), writer.id, None if thread is None else str(thread))
    is_named = (
        not is_group or _is_meant(message, text, bot) or (thread is not None and in_thread(str(chat_id), str(thread)))
    )
    metadata: dict[str, Json] = {GROUP: is_group}
    if is_group:
        metadata[MENTIONED] = is_named
    if writer.name:
        metadata["name"] = writer.name
    id, sent = f"{message_id}", _number(message.get("date")) or 0
    if _is_forwarded(message) or _holds_words_of_others(message, text):
        metadata[RELAYED] = True
    if _is_forwarded(message):
        # Nothing that somebody else has written is a command.
        quotes, text = (*quotes, _forwarded(message, text, bot)), ""
    elif is_edit:
        # Several edits within one second count as one: the time is in seconds.
        sent = _number(message.get("edit_date")) or 0
        id = f"{message_id}.{sent}"
        text = f"(This message was edited. It now reads:)\n{text}"
    else:
        text = _plain_command(text, bot, is_group=is_group)
    metadata |= quotes_metadata(quotes)
    series = "" if is_edit else _series_of(message)
    heard = InboundMessage(text, channel, id, metadata)
    return TelegramMessage(heard, (*own, *answered), writer.is_bot, sent, series, is_edit)


def _series_of(message: Mapping[str, Any]) -> str:
    """Return why further parts of a message may follow, "" if none can."""
    match message:
        case {"media_group_id": str(album)} if album:
            return f"{ALBUM}{album}"
        case {"text": str(text)} if utf16_length(text) >= _LEAST_SPLIT:
            return SPLIT
        case _ if _is_forwarded(message):
            return FORWARD
        # What is said in a voice message is said; a picture or a document is often the first of several.
        # One with a caption is complete.
        case _ if not message.get("caption") and any(key in message for key in ("photo", "document", "video", "audio")):
            return FILE
    return ""


@attrs.frozen
class _Writer:
    """Author of a message: a user, a bot, or a chat in whose name somebody writes."""

    id: str
    """Id of the user or chat."""
    name: str
    """Name for people, in one line; "" if there is none."""
    is_bot: bool
    """Another bot. An anonymous administrator, who writes by a user that is a bot, is none."""


def _writer(message: Mapping[str, Any]) -> _Writer | None:
    """Return who has written a message, None if that cannot be known.

    A channel or an anonymous group stands in `sender_chat`, and its `from` is a user that stands for all of
    them.
    """
    match message:
        case {"sender_chat": {"id": int(id)} as chat}:
            return _Writer(str(id), _name(chat.get("title")), is_bot=False)
        case {"from": {"id": int(id)} as user}:
            return _Writer(str(id), _person_name(user), is_bot=user.get("is_bot") is True and id != _GROUP_BOT)
    return None


def _person_name(user: Mapping[str, Any]) -> str:
    """Return the name of a user in one line, without characters that cannot be seen."""
    parts = (user.get("first_name"), user.get("last_name"))
    return _name(" ".join(part for part in parts if isinstance(part, str))) or _name(user.get("username"))


def _name(value: Any) -> str:
    """Return a name without what could pass for something else in the prompt, "" for anything but a text."""
    return sanitize_name(value)[:LONGEST_NAME].strip() if isinstance(value, str) else ""


def _is_meant(message: Mapping[str, Any], text: str, bot: BotName) -> bool:
    match message:
        # In a forum every message of a topic answers the message that has opened it, which may be the bot's.
        case {"reply_to_message": {"from": {"id": bot.id}} as answered} if "forum_topic_created" not in answered:
            return True
    command = _COMMAND.match(text)
    # A command without a name is for all bots of the group.
    if command is not None:
        return command[2] is None or command[2].lower() == bot.username.lower()
    for kind, named, entity in _entities(message, text):
        match kind, entity:
            case "mention", _ if named.lower() == f"@{bot.username}".lower():
                return True
            case "text_mention", {"user": {"id": bot.id}}:
                return True
    return False


def _entities(message: Mapping[str, Any], text: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield kind, text and JSON of each entity. Offsets count UTF-16 code units."""
    entities = message.get("entities") or message.get("caption_entities")
    units = text.encode("utf-16-le", "surrogatepass") if entities else b""
    for entity in entities if isinstance(entities, list) else ():
        match entity:
            case {"offset": int(offset), "length": int(length), "type": str(kind)} if offset >= 0 and length > 0:
                yield kind, units[2 * offset : 2 * (offset + length)].decode("utf-16-le", "replace"), entity


def _plain_command(text: str, bot: BotName, *, is_group: bool) -> str:
    """Return a command without the bot's name, and what follows a link to the bot as the command that it means."""
    command = _COMMAND.match(text)
    if command is None or (command[2] is not None and command[2].lower() != bot.username.lower()):
        return text
    rest = text[command.end() :]
    if f"/{command[1].lower()}" == _START:
        code = _PAIR_PAYLOAD.match(rest.strip())
        return f"/pair {code[1]}" if code else "/help"
    return f"/{command[1]}{rest}"


# ------------------------------------------------------------------ content


def _text_of(message: Mapping[str, Any]) -> str:
    """Return the text or caption of a message, with links that the text hides; what is neither text nor file in words."""
    text = message.get("text") if isinstance(message.get("text"), str) else message.get("caption")
    if isinstance(text, str) and text:
        links = [
            f"{shown} ({entity['url']})"
            for kind, shown, entity in _entities(message, text)
            if kind == "text_link" and isinstance(entity.get("url"), str) and entity["url"] != shown
        ]
        return "\n".join([text, "", "Links:", *links]) if links else text
    return "\n".join(_words_of(message))


def _words_of(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield in words what of a message is neither text nor file."""
    match message:
        case {"venue": {"title": str(title), "address": str(address)}}:
            yield f"(place: {title}, {address})"
        case {"location": {"latitude": float() | int() as latitude, "longitude": float() | int() as longitude}}:
            yield f"(location: {latitude}, {longitude})"
        case {"contact": {"phone_number": str(phone), "first_name": str(name)}}:
            yield f"(contact: {name}, {phone})"
        case {"poll": {"question": str(question)} as poll}:
            options = poll.get("options")
            texts = [_text_in(each) for each in options] if isinstance(options, list) else []
            yield "\n- ".join([f"(poll: {question})", *texts])
        case {"checklist": {"title": str(title)} as checklist}:
            tasks = checklist.get("tasks")
            texts = [_text_in(each) for each in tasks] if isinstance(tasks, list) else []
            yield "\n- ".join([f"(checklist: {title})", *texts])
        case {"dice": {"emoji": str(emoji), "value": int(value)}}:
            yield f"({emoji} shows {value})"
        case {"story": {"chat": dict(chat)}}:
            yield f"(a story of {_chat_name(chat) or 'somebody'}, which cannot be seen here)"


def _text_in(value: Any) -> str:
    """Return the text of an object, "" if it has none."""
    match value:
        case {"text": str(text)}:
            return text
    return ""


# ------------------------------------------------------------------ what a message refers to


def _answered(message: Mapping[str, Any], bot: BotName) -> Iterator[Quote]:
    """Yield what a message answers, also in another chat, and the part of it that its writer has marked."""
    part = _text_in(message.get("quote"))
    match message:
        # In a forum every message of a topic answers the one that has opened it, which says nothing.
        case {"reply_to_message": dict(answered)} if "forum_topic_created" not in answered:
            writer, text = _writer(answered), _text_of(answered)
            author = _origin_name(answered.get("forward_origin")) or (writer.name if writer else "")
            is_own = writer is not None and writer.id == str(bot.id)
            files = ", ".join(file.name for file in _files(answered))
            note = f"attached to it: {files}" if files else ""
            if answered.get("date") == 0:
                note = "it was deleted or cannot be seen any more"
            if text or note:
                yield Quote(ANSWERS, text, author, note, is_own=is_own)
            if part and part != text:
                yield Quote(MARKS, part, author, is_own=is_own)
        case {"external_reply": dict(answered)}:
            files = ", ".join(file.name for file in _files(answered))
            note = f"attached to it: {files}" if files else "" if part else "its text is not shown to you"
            place = _chat_name(answered.get("chat"))
            author = _origin_name(answered.get("origin")) or "somebody"
            yield Quote(ANSWERS, part or _text_of(answered), f"{author} in {place}" if place else author, note)
        case {"reply_to_story": {"chat": dict(chat)}}:
            yield Quote(ANSWERS, "", _chat_name(chat), "it is a story, which cannot be seen here")
        case _ if part:  # what it was taken from was deleted
            yield Quote(ANSWERS, part, note="the rest of it cannot be seen any more")


def _answered_files(message: Mapping[str, Any]) -> Iterator[FileRef]:
    """Yield the files of what a message answers. None of them is the writer's own voice."""
    answered = message.get("reply_to_message") or message.get("external_reply")
    if isinstance(answered, Mapping):
        for file in _files(answered):
            yield attrs.evolve(file, name=f"answered {file.name}", is_voice=False)


def _forwarded(message: Mapping[str, Any], text: str, bot: BotName) -> Quote:
    """Return a forwarded message as a quote with its author."""
    files = ", ".join(file.name for file in _files(message))
    note = f"attached to it: {files}" if files else ""
    author = _origin_name(message.get("forward_origin"))
    is_own = False
    match message:
        case {"forward_origin": {"type": "user", "sender_user": {"id": bot.id}}}:
            is_own = True
        # Fields of versions of the Bot API before 7.0, which a server of one's own may have.
        case {"forward_from": dict(user)}:
            author = author or _person_name(user)
        case {"forward_from_chat": dict(chat)}:
            author = author or _chat_name(chat)
        case {"forward_sender_name": str(name)}:
            author = author or _name(name)
    return Quote(FORWARDS, text, author, note, is_own=is_own)


def _origin_name(origin: Any) -> str:
    """Return who has written a message that was forwarded or answered elsewhere, "" if that is not said."""
    match origin:
        case {"sender_user": dict(user)}:
            return _person_name(user)
        case {"sender_user_name": str(name)}:
            return _name(name)
        case {"sender_chat": dict(chat)} | {"chat": dict(chat)}:
            signature = origin.get("author_signature")
            names = (_chat_name(chat), _name(signature))
            return ", ".join(name for name in names if name)
    return ""


def _chat_name(chat: Any) -> str:
    """Return the title of a group or channel, or the name of the person of a private chat; "" if there is none."""
    if not isinstance(chat, Mapping):
        return ""
    return _name(chat.get("title")) or _person_name(chat)


# ------------------------------------------------------------------ files


_PASTED: Final = ("blockquote", "expandable_blockquote", "pre", "text_link")
"""Kinds of entities whose text or address stands for something that its writer has not typed."""
_FILE_KINDS: Final = (
    ("document", "file", "application/octet-stream"),
    ("video", "video.mp4", "video/mp4"),
    ("audio", "audio.mp3", "audio/mpeg"),
    ("voice", "voice.ogg", "audio/ogg"),
    ("video_note", "video.mp4", "video/mp4"),
    ("sticker", "sticker.webp", "image/webp"),
)
"""Fields of a message that are a file, with its name and type where Telegram does not say them."""


def _files(message: Mapping[str, Any]) -> Iterator[FileRef]:
    """Yield the files of a message. Of a photo, which comes in several sizes, the largest."""
    sizes = message.get("photo")
    photos = (
        [size for size in sizes if isinstance(size, dict) and isinstance(size.get("file_id"), str)]
        if isinstance(sizes, list)
        else []
    )
    if photos:
        yield from _file(max(photos, key=lambda size: _number(size.get("width")) or 0), "photo.jpg", "image/jpeg")
    for kind, name, mime in _FILE_KINDS:
        match message.get(kind):
            case {"is_animated": True} | {"is_video": True} as file if kind == "sticker":
                yield from _file(file, "sticker.webm", "video/webm")
            case file:
                yield from _file(file, name, mime, is_voice=kind == "voice" and not _is_forwarded(message))


def _file(file: Any, name: str, mime: str, *, is_voice: bool = False) -> Iterator[FileRef]:
    """Yield a file, if it is one. name, mime: where Telegram does not say them."""
    match file:
        case {"file_id": str(id)}:
            # Names and types are the sender's word. What the file is really is found out when it is read.
            given = file.get("file_name"), file.get("mime_type")
            name, mime = (
                said if isinstance(said, str) and said else usual
                for said, usual in zip(given, (name, mime), strict=True)
            )
            yield FileRef(id, name, mime, _number(file.get("file_size")) or 0, is_voice)


def _is_forwarded(message: Mapping[str, Any]) -> bool:
    """Return whether somebody else may have made what the message holds."""
    return isinstance(message.get("forward_origin"), Mapping) or "forward_date" in message


def _holds_words_of_others(message: Mapping[str, Any], text: str) -> bool:
    """Return whether a part of a text is quoted or hidden in it, or another bot, a contact or a place has given it."""
    is_made = isinstance(message.get("via_bot"), Mapping) or any(key in message for key in ("venue", "contact"))
    return is_made or any(kind in _PASTED for kind, _, _ in _entities(message, text))


# ------------------------------------------------------------------ clicks


def _read_click(query: Mapping[str, Any]) -> TelegramClick | None:
    """Return a click; None for one without a message in a chat, or that its user cannot have made.

    Its message must be there, since the chat is known by it alone.
    """
    match query:
        case {
            "id": str(id),
            "from": {"id": int(user_id)} as user,
            "message": {"chat": {"id": int(chat_id)}, "message_id": int(message_id)},
            "data": str(data),
        } if chat_id <= 0 or chat_id == user_id:  # in a private chat nobody else can click, whatever the update says
            channel = ChannelInfo(TYPE, str(chat_id), str(user_id))
            return TelegramClick(id, channel, str(message_id), data, _person_name(user))
    return None


def _number(value: Any) -> int | None:
    """Return a whole number, None for anything else. True and False are integers in Python and no ids."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
