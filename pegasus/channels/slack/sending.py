"""Messages to Slack: texts, files, buttons, and drafts that become replies.

A draft is a message of its own that is updated while the agent writes, and at last updated to the reply.

Slack takes no id of ours that would make a repeated message the same, but it keeps metadata with each message and lists what was
written. So each attempt (`attempts`) has a mark, which is on disk and in the metadata: where the outcome is not known, the
conversation is searched for that mark. A file has its id before it is shared, which is its mark. A draft has one, too.

What is on record about the draft of a conversation (`DeliveryLog.draft_of`):

    ""                       there is none
    "?<mark> <thread>"       it was sent, and the answer is not known. It is neither changed nor deleted before it is found by its mark
    "<ts> <thread>"          it is shown; the thread is "" outside of one

The record is written before each call that shows a draft, and again behind it. So a crash at any moment leaves a draft that the next
process finds: it becomes the reply, or it is deleted. A draft in another thread than the reply is deleted, since a message cannot be
moved. A reply with buttons is a message of its own and leaves the draft alone.

The search reads at most MOST_PAGES pages. A message that is not among those counts as unknown and not as missing, because a wrong
"missing" would send it a second time.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable
from functools import partial
from secrets import token_hex
from typing import Any, Final

from pegasus.channels.attempts import SendAttempts, undone_unless_sent
from pegasus.channels.delivery_log import UNSURE, DeliveryLog
from pegasus.channels.service_adapter import draft_text
from pegasus.channels.service_contract import ServiceContext
from pegasus.channels.slack.api import SlackApi, SlackRefused
from pegasus.channels.slack.buttons import blocks_of
from pegasus.channels.slack.markup import render_mrkdwn
from pegasus.channels.slack.names import SlackNames
from pegasus.channels.slack.reading import is_ts
from pegasus.markdown import split_markdown
from pegasus.messages import ChannelInfo, Media, OutboundMessage, ReplyDraft
from pegasus.observe import get_logger

LONGEST_TEXT: Final = 40_000
"""Characters of a message; Slack cuts longer ones. https://docs.slack.dev/reference/methods/chat.postMessage"""
LOOK_BACK: Final = 86_400.0
"""Seconds of a conversation in which a message is looked for where no earlier one is on record."""
PAGE: Final = 200
"""Messages of a conversation that are read by one call."""
MOST_PAGES: Final = 5
"""Pages after which a search ends without a result."""
QUIET: Final = {"unfurl_links": False, "unfurl_media": False}
"""Slack would fetch each address for a preview, also one that somebody has made the agent write."""

_NO_THREAD: Final = frozenset(
    {
        "thread_not_found",
        "invalid_thread_ts",
        "cannot_reply_to_message",
        "restricted_action_thread_locked",
        "restricted_action_non_threadable_channel",
    }
)
"""Refusals for a thread that was deleted or locked, or cannot be: the message goes to the conversation itself."""

_log = get_logger("slack")


class SlackSender:
    """Sends pieces and drafts by the Web API."""

    def __init__(self, api: SlackApi, names: SlackNames, log: DeliveryLog, context: ServiceContext) -> None:
        self._api = api
        self._names = names
        self._log = log
        self._clock = context.clock
        self._attempts = SendAttempts(log)

    async def send(self, reply: OutboundMessage, piece: str | Media, number: int) -> str:
        """Send a text or a file; return its id, or UNCONFIRMED. Raises what `SlackApi.call` raises."""
        target = await self._names.resolve(reply.channel.channel_id)
        if isinstance(piece, Media):
            return await self._send_file(reply, target, piece, number)
        return await self._send_text(reply, target, piece, number)

    # ---------------------------------------------------------------- texts

    async def _send_text(self, reply: OutboundMessage, target: str, piece: str, number: int) -> str:
        """Make the draft this text if it is the first piece; otherwise post it, unless an attempt before has. Return its ts.

        target: id of the conversation at Slack. A mark of an attempt before is used again, so that a search finds either message.
        """
        text, name, thread = render_mrkdwn(piece), reply.channel.channel_id, thread_of(reply.channel)
        blocks = blocks_of(reply, text)
        drafts = 0
        # A reply with buttons does not take the place of a draft; see the top of this file.
        if not blocks and not number:
            if ts := await self._finish_draft(name, target, thread, text):
                return ts
            # A draft that could not be found may be there all the same, so it counts as an attempt.
            drafts = int(self._log.draft_of(name).startswith(UNSURE))
        mark = self._log.attempts(reply, number).mark or token_hex(8)
        look_up = partial(self._find_message, name, target, thread, mark)
        content = {"channel": target, "thread_ts": thread, "text": text, "blocks": blocks}
        found = await self._attempts.find(reply, number, look_up, drafts=drafts)
        return found or await self._attempts.make(reply, number, partial(self._post, content, mark), mark)

    async def _post(self, content: dict[str, Any], mark: str) -> str:
        """Post a message that can be found by this mark (https://docs.slack.dev/messaging/message-metadata); return its ts."""
        metadata = {"event_type": "pegasus_reply", "event_payload": {"id": mark}}

        async def post(thread: str | None) -> str:
            place = {**content, "thread_ts": thread}
            return str((await self._api.call("chat.postMessage", **place, metadata=metadata, **QUIET))["ts"])

        return await _in_thread_or_outside(content["thread_ts"], post)

    async def _find_message(self, name: str, target: str, thread: str | None, mark: str) -> str | None:
        """Return the ts of the message with this mark, "" if there is none, None if that cannot be known.

        What is looked for is newer than the last message on record.
        """
        last = self._log.last_id(name)
        place: dict[str, Any] = {"channel": target, "include_all_metadata": True, "limit": PAGE}
        # The last message on record bounds the search, so that it does not read the whole conversation.
        place["oldest"] = last if is_ts(last) else f"{self._clock() / 1000 - LOOK_BACK:.6f}"
        method = "conversations.history"
        if thread is not None:
            method, place["ts"] = "conversations.replies", thread
        for _ in range(MOST_PAGES):
            try:
                page = await self._api.call(method, **place)
            except SlackRefused as error:  # the app may not read this conversation
                _log.info("it is not known whether a message was posted", reason=str(error))
                return None
            for message in page["messages"]:
                payload = (message.get("metadata") or {}).get("event_payload") or {}
                if payload.get("id") == mark:
                    return str(message["ts"])
            place["cursor"] = (page.get("response_metadata") or {}).get("next_cursor")
            if not place["cursor"]:
                return ""
        return None

    # ---------------------------------------------------------------- files

    async def _send_file(self, reply: OutboundMessage, target: str, media: Media, number: int) -> str:
        """Upload a file and share it. Until it is shared nobody sees it."""
        before = self._log.attempts(reply, number).mark
        found = await self._attempts.find(reply, number, partial(self._find_file, before))
        if found:
            return found
        # Uploaded again at each attempt: an upload that was never shared is seen by nobody.
        id = await self._api.upload(media.name, b64decode(media.data))
        to_thread = partial(self._api.share, id, media.name, target)
        share = partial(_in_thread_or_outside, thread_of(reply.channel), to_thread)
        return await self._attempts.make(reply, number, share, id)

    async def _find_file(self, id: str) -> str | None:
        """Return the id of a file if it is shared, "" if it is not, None if that cannot be known.

        A file is shared if it is in at least one conversation. It has been uploaded for this reply only, so it
        need not be asked in which.
        """
        try:
            file = (await self._api.call("files.info", file=id))["file"]
        except SlackRefused as error:
            if error.code in ("file_not_found", "file_deleted"):
                return ""
            _log.info("it is not known whether a file was shared", reason=str(error))
            return None
        return id if any(file.get(kind) for kind in ("channels", "groups", "ims")) else ""

    # ---------------------------------------------------------------- drafts

    async def show_draft(self, draft: ReplyDraft) -> None:
        """Show a draft, or the newer state of the one that is shown; "" withdraws it. Raises as `send`."""
        name, thread = draft.channel.channel_id, thread_of(draft.channel)
        target = await self._names.resolve(name)
        await self._settle_draft(name, target)
        shown, shown_in = self._draft_of(name)
        if draft.is_withdrawal:
            await self._delete_draft(name, target)
            return
        # The first piece only: the reply puts its first piece there, too.
        text = render_mrkdwn(next(iter(split_markdown(draft_text(draft), LONGEST_TEXT, rendered_length)), ""))
        if not text.strip() or shown.startswith(UNSURE):  # one that may be there already cannot be changed
            return
        if shown and shown_in == (thread or ""):
            await self._api.call("chat.update", channel=target, ts=shown, text=text)
            return
        await self._delete_draft(name, target)
        mark = token_hex(8)
        unsure = f"{UNSURE}{mark}"
        # On disk before the call, and taken back if the call is known to have failed.
        await self._set_draft(name, unsure, thread or "")
        async with undone_unless_sent(lambda unsure: self._set_draft(name, unsure, thread or ""), unsure):
            ts = await self._post({"channel": target, "text": text, "thread_ts": thread}, mark)
        await self._set_draft(name, ts, thread or "")

    def _draft_of(self, name: str) -> tuple[str, str]:
        """Return ts and thread of the draft of a conversation, "" for none. UNSURE and its mark for a ts: it may be there."""
        ts, _, thread = self._log.draft_of(name).partition(" ")
        return ts, thread

    async def _set_draft(self, name: str, ts: str, thread: str) -> None:
        """Record the draft of a conversation; "" for none. Returns when that is on disk."""
        await self._log.set_draft(name, f"{ts} {thread}" if ts else "")

    async def _settle_draft(self, name: str, target: str) -> None:
        """Find out whether a draft is shown whose call had no answer, or of which a process has died."""
        shown, thread = self._draft_of(name)
        if shown.startswith(UNSURE):
            found = await self._find_message(name, target, thread or None, shown.removeprefix(UNSURE))
            # "" means that it is not there: the record of it is removed. None leaves the record as it is.
            if found is not None:
                await self._set_draft(name, found, thread)

    async def _finish_draft(self, name: str, target: str, thread: str | None, text: str) -> str:
        """Make the draft the reply; return its ts, "" if there is none that can be changed."""
        await self._settle_draft(name, target)
        shown, shown_in = self._draft_of(name)
        if not shown or shown.startswith(UNSURE):
            return ""
        if shown_in == (thread or ""):
            try:
                await self._api.call("chat.update", channel=target, ts=shown, text=text)
                return shown
            except SlackRefused as error:
                _log.info("a draft cannot become the reply", reason=str(error))
        await self._delete_draft(name, target)
        return ""

    async def _delete_draft(self, name: str, target: str) -> None:
        """Delete the draft of a conversation, in whatever thread it is. It stays on record until it is gone."""
        shown, _ = self._draft_of(name)
        if shown and not shown.startswith(UNSURE):
            try:
                await self._api.call("chat.delete", channel=target, ts=shown)
            except SlackRefused as error:  # somebody has deleted it
                _log.info("a draft cannot be deleted", reason=str(error))
        await self._set_draft(name, "", "")


async def _in_thread_or_outside(thread: str | None, send: Callable[[str | None], Awaitable[str]]) -> str:
    """Return what `send` returns for a thread, or for the conversation itself where Slack does not take it there."""
    try:
        return await send(thread)
    except SlackRefused as error:
        if thread is None or error.code not in _NO_THREAD:
            raise
        _log.info("a thread takes no message; it goes to the conversation itself", reason=str(error))
        return await send(None)


def thread_of(channel: ChannelInfo) -> str | None:
    """Return the thread_ts that a message goes to. What a model has made up is no thread; the message goes to the conversation."""
    thread = channel.reply_to
    return thread if thread is not None and is_ts(thread) else None


def rendered_length(markdown: str) -> int:
    """Return the length of the message that a Markdown text becomes."""
    return len(render_mrkdwn(markdown))
