"""Payloads of Slack as values: what somebody has written, clicked or commanded. No I/O, and no error for anything that may come.

    read_payload("events_api", payload, identity)    # SlackMessage(channel="C1", user="U1", text="<@U9> hi", …)
    read_payload("interactive", payload, identity)   # SlackClick(user="U1", action="approval:allow", value="a-7f3k", …)

What is none of these is None: kinds of events that nobody asked for, the app's own messages, messages about joining and topics, and
payloads with fields of other types than documented. Such a payload is acknowledged and forgotten.

Sources: https://docs.slack.dev/reference/events/message, https://docs.slack.dev/reference/interaction-payloads
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from pegasus.channels.slack.content import is_written_by_hand, shared_in, text_of_blocks
from pegasus.quotes import THREAD, Quote

TYPE: Final = "slack"
"""The channel type."""
_HEARD: Final = frozenset({"", "file_share", "me_message", "thread_broadcast", "bot_message"})
"""Subtypes of messages that somebody has written."""
_ID: Final = re.compile(r"[A-Z0-9]{2,40}")
"""Id of a user, a bot or a conversation. Ids become keys on disk, so anything else is refused."""
_TS: Final = re.compile(r"\d{1,16}\.\d{1,16}")
"""Timestamp that names a message: seconds, then a number that makes it unique."""
SLACKBOT: Final = "USLACKBOT"
"""User of Slack's own bot, which has no bot_id."""
MOST_FILES: Final = 10
"""Files of one message that are read; Slack's own limit."""
_STRANGE: Final = (LookupError, TypeError, AttributeError, ValueError, OverflowError)
"""Errors of fields that have other types than documented, or numbers that make no sense."""


@attrs.frozen
class SlackIdentity:
    """The app itself, as auth.test says: `SlackIdentity("U0PEGASUS", "B0PEGASUS", "pegasus")`."""

    user: str
    """Id of the app's user, by which it is mentioned."""
    bot: str
    """Id of the app's bot; "" if Slack does not tell. Messages by it are the app's own."""
    name: str = ""
    """Name of the app's user for people."""
    team: str = ""
    """Id of the workspace, "" if Slack does not tell."""

    @property
    def account(self) -> str:
        """The account that messages are numbered for: the app in its workspace."""
        return f"{self.team}.{self.user}"


@attrs.frozen
class SlackFileInfo:
    """A file of a message."""

    name: str
    """Its name, or else its title."""
    mime: str
    """Its MIME type, as Slack has found it."""
    size: int
    """Bytes; 0 if Slack does not say."""
    url: str
    """Its `url_private`; "" if Slack gives none, as for a file that was deleted."""
    is_voice: bool = False
    """A clip that the writer of the message has recorded: their own words."""


@attrs.frozen
class SlackMessage:
    """Something that a person or a bot has written."""

    channel: str
    """Id of the conversation."""
    user: str
    """Id of the writer; for a bot without a user, that of the bot."""
    ts: str
    """Id of the message within the conversation."""
    text: str
    """As mrkdwn."""
    thread_ts: str | None = None
    """The thread that it is in; None for a message in the conversation itself."""
    is_direct: bool = False
    """Only this person and the app read the conversation."""
    is_bot: bool = False
    """A bot has written it, Slack's own one included."""
    names_app: bool = False
    """True if it mentions the app, or answers it."""
    edited_ts: str = ""
    """Id of the edit that has made it what it is, "" for the first text."""
    files: tuple[SlackFileInfo, ...] = ()
    """Its files and those of what it shares, at most MOST_FILES."""
    quotes: tuple[Quote, ...] = ()
    """Messages that it shares. Texts are mrkdwn; an author may be the id of a user."""
    is_typed: bool = True
    """False if its text was made of blocks."""
    root: Mapping[str, Any] | None = None
    """The message that has begun its thread, where Slack sends it along."""

    @property
    def id(self) -> str:
        """Id within the conversation, for one account: the same for `message` and `app_mention` of the same words."""
        return f"{self.ts}/{self.edited_ts}" if self.edited_ts else self.ts

    @property
    def sent(self) -> float:
        """When it was written, or edited: seconds since the epoch."""
        return float(self.edited_ts or self.ts)


@attrs.frozen
class SlackClick:
    """A button that somebody has pressed on a message of the app."""

    user: str
    """Id of who has pressed it, who need not be an owner."""
    channel: str
    """Id of the conversation."""
    ts: str
    """The message."""
    action: str
    """`action_id` of the button."""
    value: str
    """Value that the app has put into the button: the id of an approval, or a code."""
    id: str
    """The same for each delivery of this click."""
    text: str = ""
    """Text of the message, as mrkdwn."""


@attrs.frozen
class SlackCommand:
    """A slash command, as "/pegasus status"."""

    user: str
    """Id of who has given it."""
    channel: str
    """Id of the conversation that it was typed in."""
    text: str
    """Text behind the command."""
    id: str
    """Its `trigger_id`, the same for each delivery of it."""


@attrs.frozen
class AssistantThread:
    """A thread that somebody has opened in the app's assistant view. Only such threads have a typing sign."""

    user: str
    """Id of who has opened it."""
    channel: str
    """Id of the direct conversation with the app."""
    thread_ts: str
    """Id of the thread."""


SlackInput: TypeAlias = SlackMessage | SlackClick | SlackCommand | AssistantThread


def read_payload(kind: str, payload: Mapping[str, Any], identity: SlackIdentity) -> SlackInput | None:
    """Return what a payload stands for, None for what is not for the agent.

    kind: that of the envelope in Socket Mode: "events_api", "interactive" or "slash_commands".
    """
    try:
        if kind == "interactive":
            return _read_click(payload)
        if kind == "slash_commands":
            return _read_command(payload)
        return _read_event(payload["event"], identity)
    except _STRANGE:
        return None


def conversation_of(kind: str, payload: Mapping[str, Any]) -> str:
    """Return the id of the conversation that a payload is about, "" if none: payloads about one are handled in their order."""
    found = payload.get("event") if kind == "events_api" else payload
    if isinstance(found, Mapping):
        channel = found.get("channel") or found.get("channel_id")
        if isinstance(channel, Mapping):
            channel = channel.get("id")
        return channel if isinstance(channel, str) else ""
    return ""


def _read_event(event: Mapping[str, Any], identity: SlackIdentity) -> SlackInput | None:
    """Return what an event of the Events API is about, None for kinds that are not heard."""
    match event.get("type"):
        case "message" if event.get("subtype") == "message_changed":
            return _read_edit(event, identity)
        case "message" | "app_mention" if (event.get("subtype") or "") in _HEARD:
            return _read_message(event, event, identity)
        case "assistant_thread_started":
            thread = event["assistant_thread"]
            return AssistantThread(_id(thread["user_id"]), _id(thread["channel_id"]), _ts(thread["thread_ts"]))
        case _:
            return None


def _read_edit(event: Mapping[str, Any], identity: SlackIdentity) -> SlackMessage | None:
    """Return an edited message. Slack sends the same event when it unfolds a link; then the text is the same."""
    message, before = event["message"], event.get("previous_message") or {}
    if (message.get("subtype") or "") not in _HEARD or "edited" not in message or message["text"] == before.get("text"):
        return None
    return _read_message(message, event, identity, edited_ts=_ts(message["edited"]["ts"]))


def _read_message(
    message: Mapping[str, Any], event: Mapping[str, Any], identity: SlackIdentity, edited_ts: str = ""
) -> SlackMessage | None:
    """Return a message. event: the one that it came with, which has the conversation."""
    bot = message.get("bot_id") or ""
    user = _id(message.get("user") or bot)
    if user == identity.user or (bot and bot == identity.bot) or message.get("hidden"):
        return None
    text, is_typed = _text_of(message)
    shared = tuple(shared_in(message.get("attachments")))
    own = str(message.get("user") or "")
    files = _read_files(message.get("files") or (), own)
    for _, attached in shared:
        files += tuple(attrs.evolve(file, is_voice=False) for file in _read_files(attached, own))
    thread = _ts(message["thread_ts"]) if message.get("thread_ts") else None
    ts = _ts(message["ts"])
    channel = _id(event["channel"])
    named = f"<@{identity.user}>" in text or f"<@{identity.user}|" in text
    return SlackMessage(
        channel,
        user,
        ts,
        text,
        # The message that has opened a thread names itself as its thread.
        thread if thread != ts else None,
        is_direct=event.get("channel_type") == "im" or channel.startswith("D"),
        is_bot=bool(bot) or message.get("subtype") == "bot_message" or user == SLACKBOT,
        names_app=named or message.get("parent_user_id") == identity.user or event.get("type") == "app_mention",
        edited_ts=edited_ts,
        files=files[:MOST_FILES],
        quotes=tuple(quote for quote, _ in shared),
        is_typed=is_typed,
        root=message["root"] if isinstance(message.get("root"), Mapping) else None,
    )


def _text_of(message: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the text of a message, and whether it is what its writer has typed: an app may say in blocks what its text lacks."""
    text = str(message.get("text") or "")
    if text and is_written_by_hand(message.get("blocks")):
        return text, True
    said = text_of_blocks(message.get("blocks"))
    if not said or said in text:
        return text, True
    return said if text in said else f"{text}\n{said}", False


def read_thread(
    messages: Any, before: str, identity: SlackIdentity
) -> tuple[tuple[Quote, ...], tuple[SlackFileInfo, ...]]:
    """Return the messages of a thread before this `ts` as quotes, the oldest first, and the files of its root."""
    quotes: list[Quote] = []
    files: tuple[SlackFileInfo, ...] = ()
    for message in messages if isinstance(messages, list | tuple) else ():
        try:
            if float(_ts(message["ts"])) >= float(before):
                continue
            if message.get("subtype") == "tombstone":
                quotes.append(Quote(THREAD, "", note="it was deleted"))
                continue
            text, _ = _text_of(message)
            shared = tuple(shared_in(message.get("attachments")))
            user, bot = str(message.get("user") or ""), str(message.get("bot_id") or "")
            author = str(message.get("username") or user or bot)
            is_own = user == identity.user or bool(bot and bot == identity.bot)
            attached = _read_files(message.get("files") or (), "")
        except _STRANGE:
            continue
        note = "attached to it: " + ", ".join(file.name for file in attached) if attached else ""
        if text or note:
            quotes.append(Quote(THREAD, text, author, note, is_own=is_own))
        quotes += [quote for quote, _ in shared]
        files = files or attached
    return tuple(quotes), files


def _read_files(files: Sequence[Mapping[str, Any]], writer: str) -> tuple[SlackFileInfo, ...]:
    """Return the files of a message. writer: id of its user; a clip of somebody else is a file, which was passed on."""
    return tuple(
        SlackFileInfo(
            str(file.get("name") or file.get("title") or "file"),
            str(file.get("mimetype") or "application/octet-stream"),
            int(file.get("size") or 0),
            str(file.get("url_private_download") or file.get("url_private") or "") if _is_hosted(file) else "",
            is_voice=file.get("subtype") == "slack_audio" and bool(writer) and file.get("user") == writer,
        )
        for file in files[:MOST_FILES]
    )


def _is_hosted(file: Mapping[str, Any]) -> bool:
    """Return whether Slack has the content: not of a file elsewhere, nor of one that was deleted."""
    return not file.get("is_external") and file.get("mode") not in ("tombstone", "hidden_by_limit", "external")


def _read_click(payload: Mapping[str, Any]) -> SlackClick | None:
    """Return the first button that was pressed; None for other interactions.

    The time of the click and its user make the id.
    """
    if payload.get("type") != "block_actions":
        return None
    action, container, user = payload["actions"][0], payload["container"], _id(payload["user"]["id"])
    return SlackClick(
        user,
        _id(container["channel_id"]),
        _ts(container["message_ts"]),
        str(action["action_id"]),
        str(action.get("value") or ""),
        f"click/{_ts(action['action_ts'])}/{user}",
        str((payload.get("message") or {}).get("text") or ""),
    )


def _read_command(payload: Mapping[str, Any]) -> SlackCommand:
    """Return a slash command. Its text is trimmed, as people type spaces behind a command."""
    text = str(payload.get("text") or "").strip()
    return SlackCommand(_id(payload["user_id"]), _id(payload["channel_id"]), text, str(payload["trigger_id"])[:100])


def _id(value: object) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError("no id")
    return value


def is_ts(value: str) -> bool:
    """Return whether this may name a message or a thread."""
    return _TS.fullmatch(value) is not None


def _ts(value: object) -> str:
    """Return a timestamp that names a message. Raises ValueError for anything else."""
    if not isinstance(value, str) or not _TS.fullmatch(value):
        raise ValueError("no timestamp")
    return value
