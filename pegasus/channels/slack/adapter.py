"""`SlackAdapter`: the actor that connects Slack with the agent.

In: Socket Mode where there is an `app_token` (`socket_mode`), otherwise the Events API, whose requests the HTTP server hands to
`receive`. Either way a delivery is acknowledged only when its message is on disk.

Out: each reply as one message or more, in mrkdwn. A reply to a message outside of a thread goes to the conversation, one to a message
in a thread goes there (`ChannelInfo.reply_to` is the `thread_ts`).

**Hardly ever twice.** Slack takes no id of ours that would make a repeated message the same. But it keeps metadata with each message
and tells what was written last. So where a message may have been posted before, because a call had no answer or the process is
new, the adapter looks first.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from secrets import token_hex
from typing import Any, Final
from urllib.parse import urlsplit

import trio

from pegasus.channels.refusals import CredentialsRefused, NotKept, RateLimited, ReplyRefused, ServiceDown
from pegasus.channels.service import ServiceAdapter
from pegasus.channels.service_context import ServiceContext
from pegasus.channels.slack.api import SlackApi, SlackRefused
from pegasus.channels.slack.buttons import (
    ALLOW,
    ALWAYS,
    APPROVAL,
    DENY,
    PAIR,
    PAIRING,
    approval_blocks,
    pairing_blocks,
    section_blocks,
)
from pegasus.channels.slack.incoming import TYPE, SlackIncoming, assistant_key
from pegasus.channels.slack.markup import escape_mrkdwn, render_mrkdwn
from pegasus.channels.slack.names import SlackNames
from pegasus.channels.slack.reading import SlackClick, SlackIdentity, is_ts
from pegasus.channels.slack.socket_mode import Connect, Delivery, SocketMode, connect_stream
from pegasus.channels.slack.webhook import read_webhook
from pegasus.channels.splitting import split_markdown
from pegasus.channels.webhooks import WebhookAnswer, WebhookRequest
from pegasus.messages import ApprovalNotice, ChannelInfo, Json, Media, OutboundMessage, Progress, Typing
from pegasus.observe import get_logger
from pegasus.policy import end_text
from pegasus.settings import SlackSettings

LONGEST_TEXT: Final = 40_000
"""Characters of a message; Slack cuts longer ones. https://docs.slack.dev/reference/methods/chat.postMessage"""
ANSWER_TIME: Final = 2.5
"""Seconds until a webhook is answered, so that Slack has the answer within its 3. Then it is asked to come again."""
CHECK_PAUSE: Final = 600.0
"""Seconds between two questions whether the token still counts, where no WebSocket would tell."""
MOST_POSTED: Final = 5_000
"""Conversations of which the last post is remembered."""
LOOK_BACK: Final = 86_400.0
"""Seconds of a thread in which a message is looked for that may have been posted."""
STATUS: Final = "is thinking…"
"""Typing sign of an assistant thread; Slack puts the app's name before it."""

_HOME: Final = "home"
"""Key of the fact that has the name of this home."""

_log = get_logger("slack")


class SlackAdapter(ServiceAdapter):
    """The adapter of `[channels.slack]`: `SlackAdapter(settings.channels["slack"], context)`."""

    has_buttons = True
    typing_pause = 90.0  # Slack removes a status after two minutes

    def __init__(self, settings: SlackSettings, context: ServiceContext, connect: Connect = connect_stream) -> None:
        """connect: opens the stream of a WebSocket; another one in tests."""
        super().__init__(TYPE, context)
        self.settings = settings
        self.api = SlackApi(settings.base_url, settings.bot_token, settings.app_token, context.transport)
        self.names = SlackNames(self.api)
        self.incoming = SlackIncoming(self, self.api, self.names, self._click)
        self._connect = connect
        self._background: trio.Nursery | None = None
        """Tasks of webhooks, which go on when Slack was asked to come again; None while the actor does not run."""
        self._posted: dict[str, str] = {}
        """By channelId, the id of the message whose call had no answer yet, "" if the last one had. The oldest first."""
        self._questions: dict[str, str] = {}
        """By the id of an approval, the text of the message that asks. After a restart the answer stands alone."""
        self._home = ""
        """Name of this home in the metadata of its messages: another home with the same tokens numbers its replies likewise."""
        self._may_have_posted = False
        """An earlier process of this home may have posted messages."""

    def connection(self) -> AbstractAsyncContextManager[object]:
        """Open what a run of the actor needs."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        await self._name_home()
        async with trio.open_nursery() as nursery:
            self._background = nursery
            try:
                yield
            finally:
                self._background = None
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    await self.api.aclose()

    async def _name_home(self) -> None:
        """Take over the name of this home, or choose one. It is written at each start, since the log keeps the newest facts only."""
        known = self.log.fact(_HOME)
        if not self._home:
            self._may_have_posted = isinstance(known, str)
            self._home = known if isinstance(known, str) else token_hex(8)
            await self.log.set_fact(_HOME, None)
            await self.log.set_fact(_HOME, self._home)

    # ---------------------------------------------------------------- in

    async def listen(self) -> None:
        """Hear what people write until cancelled; see `ServiceAdapter.listen`."""
        me = await self._ask_identity()
        if self.settings.app_token:
            parts = urlsplit(self.settings.base_url)
            socket = SocketMode(
                self.api,
                self.incoming.enter,
                lambda: self.is_up(f"@{me.name}"),
                connect=self._connect,
                allow_plain=parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1"),
            )
            await socket.run()
        while True:  # the Events API: Slack calls, and nobody would notice that the token was revoked
            self.is_up(f"@{me.name}")
            await trio.sleep(CHECK_PAUSE)
            me = await self._ask_identity()

    async def _ask_identity(self) -> SlackIdentity:
        try:
            me = await self.api.call("auth.test")
        except SlackRefused as error:
            raise CredentialsRefused(str(error)) from None
        found = SlackIdentity(str(me["user_id"]), str(me.get("bot_id") or ""), str(me.get("user") or ""))
        self.incoming.identity = found
        return found

    async def receive(self, request: WebhookRequest) -> WebhookAnswer:
        """Answer a request of the Events API; see `WebhookReceiver`."""
        if self.settings.app_token or not self.settings.signing_secret:
            return WebhookAnswer(404, b"the Events API is not configured")
        found = read_webhook(request, self.settings.signing_secret, self.context.clock() / 1000)
        if isinstance(found, WebhookAnswer):
            return found
        if self._background is None:
            return WebhookAnswer(503, b"not ready")
        delivery = _WebhookDelivery(self.incoming, found)
        self._background.start_soon(delivery.run)
        with trio.move_on_after(ANSWER_TIME):
            await delivery.end.wait()
        return WebhookAnswer(200) if delivery.is_kept else WebhookAnswer(503, b"not on disk yet, come again")

    async def _click(self, click: SlackClick) -> None:
        """Carry out a button for an owner, and show the answer in place of the buttons."""
        if not self.context.is_owner(ChannelInfo(TYPE, click.channel, click.user)):
            await self._try_once(
                "chat.postEphemeral",
                channel=click.channel,
                user=click.user,
                text="Only my owner may decide about that.",
            )
            return
        by = f"{TYPE}:{click.channel} ({click.user})"
        if click.action in (ALLOW, ALWAYS, DENY):
            self._questions.pop(click.value, None)
            await self.log.set_fact(_approval_key(click.value), None)  # so that it is not shown a second time
            answer = await self.context.decide(click.value, click.action != DENY, click.action == ALWAYS, by)
        elif click.action == PAIR:
            answer = await self.context.pair(click.value, by)
        else:
            return
        await self._replace(click.channel, click.ts, click.text, answer)

    async def show_approval(self, notice: ApprovalNotice) -> None:
        """Show an answer that was given elsewhere on the message that asked."""
        found = self.log.fact(_approval_key(notice.id))
        if isinstance(found, list) and len(found) == 2:
            await self.log.set_fact(_approval_key(notice.id), None)
            await self._replace(str(found[0]), str(found[1]), self._questions.pop(notice.id, ""), end_text(notice))

    async def _replace(self, channel: str, ts: str, text: str, answer: str) -> None:
        """Put an answer below the text of a message, and take its buttons away. text: mrkdwn."""
        whole = f"{text}\n\n{escape_mrkdwn(answer)}".strip()
        await self._try_once("chat.update", channel=channel, ts=ts, text=whole, blocks=section_blocks(whole))

    async def _try_once(self, method: str, **params: Any) -> None:
        """Make a call that is not worth holding anything up for."""
        try:
            await self.api.call(method, **params)
        except (SlackRefused, ServiceDown, RateLimited) as error:
            _log.warning("an answer to a button is not shown", reason=str(error))

    # ---------------------------------------------------------------- out

    def pieces(self, reply: OutboundMessage) -> Sequence[str | Media]:
        """Return the texts (Markdown) and files of a reply."""
        texts = split_markdown(reply.text, LONGEST_TEXT, _rendered_length)
        return [*(text for text in texts if render_mrkdwn(text).strip()), *reply.media]

    async def send(self, reply: OutboundMessage, piece: Any, number: int) -> str:
        """Send a text or a file; see `ServiceAdapter.send`."""
        try:
            target = await self.names.resolve(reply.channel.channel_id)
            if isinstance(piece, Media):
                return await self.api.upload(piece.name, b64decode(piece.data), target, _thread_of(reply.channel))
            return await self._send_text(reply, target, piece, number)
        except SlackRefused as error:
            raise ReplyRefused(str(error)) from None

    async def _send_text(self, reply: OutboundMessage, target: str, piece: str, number: int) -> str:
        text = render_mrkdwn(piece)
        thread = _thread_of(reply.channel)
        approval, code = (str(reply.metadata.get(key) or "") for key in (APPROVAL, PAIRING))
        blocks = approval_blocks(text, approval) if approval else pairing_blocks(text, code) if code else None
        id = f"{self._home}/{reply.channel.channel_id}/{reply.seq}/{number}"
        ts = "" if blocks or number else await self._finish_draft(reply, target, text, id)
        if not ts:
            ts = await self._post_once(reply, target, text, blocks, id)
        if approval:
            self._questions[approval] = text
            await self.log.set_fact(_approval_key(approval), [target, ts])
        if thread is not None and not target.startswith("D"):
            await self.incoming.remember_thread(target, thread)
        return ts

    async def _post_once(
        self, reply: OutboundMessage, target: str, text: str, blocks: list[Json] | None, id: str
    ) -> str:
        """Post a message and return its ts, unless it was posted before by a call without an answer, or by a process that has died."""
        name, thread = reply.channel.channel_id, _thread_of(reply.channel)
        content = {"text": text, "blocks": blocks, "metadata": _mark(id)}
        last = self._posted.pop(name, None)
        self._posted[name] = id
        if len(self._posted) > MOST_POSTED:
            del self._posted[next(iter(self._posted))]
        try:
            if last == id or (last is None and self._may_have_posted):
                found, draft = await self._find_posted(target, thread, id)
                if draft == self.log.draft_of(name).partition(" ")[0]:
                    draft = ""  # it is still being written
                if draft and not found:
                    await self.api.call("chat.update", channel=target, ts=draft, **content)
                if found or draft:
                    self._posted[name] = ""
                    return found or draft
            # Slack would fetch each address for a preview, also one that somebody has made the agent write.
            quiet = {"unfurl_links": False, "unfurl_media": False}
            result = await self.api.call("chat.postMessage", channel=target, thread_ts=thread, **quiet, **content)
        except (SlackRefused, RateLimited):
            self._posted[name] = ""
            raise
        self._posted[name] = ""
        return str(result["ts"])

    async def _find_posted(self, target: str, thread: str | None, id: str) -> tuple[str, str]:
        """Return the ts of the message with this id among the last ones, and of a draft that nobody knows of; "" for none."""
        place: dict[str, Any] = {"channel": target, "include_all_metadata": True}
        try:
            if thread is None:
                found = await self.api.call("conversations.history", limit=20, **place)
            else:
                oldest = f"{self.context.clock() / 1000 - LOOK_BACK:.6f}"
                found = await self.api.call("conversations.replies", ts=thread, oldest=oldest, limit=200, **place)
        except (SlackRefused, RateLimited) as error:
            _log.debug("it is not known whether a message was posted", reason=str(error))
            return "", ""
        by_id = {
            ((message.get("metadata") or {}).get("event_payload") or {}).get("id"): str(message["ts"])
            for message in found["messages"]
        }
        return by_id.get(id, ""), by_id.get(f"{self._home}/draft", "")

    # ---------------------------------------------------------------- signs

    async def show_draft(self, draft: Progress) -> None:
        """Show a reply while it is written: a message that is changed, and becomes the reply at last."""
        name, thread = draft.channel.channel_id, _thread_of(draft.channel)
        try:
            target = await self.names.resolve(name)
            shown = self._draft_ts(name, thread)
            if draft.is_withdrawal:
                await self._delete_draft(name, target)
                return
            pieces = split_markdown(draft.text, LONGEST_TEXT, _rendered_length)
            text = render_mrkdwn(pieces[0]) if pieces else ""
            if not text.strip():
                return
            if shown:
                await self.api.call("chat.update", channel=target, ts=shown, text=text)
                return
            await self._delete_draft(name, target)
            options = {"unfurl_links": False, "unfurl_media": False, "metadata": _mark(f"{self._home}/draft")}
            posted = await self.api.call("chat.postMessage", channel=target, text=text, thread_ts=thread, **options)
            await self.log.set_draft(name, f"{posted['ts']} {thread or ''}")
        except SlackRefused as error:
            raise ReplyRefused(str(error)) from None

    def _draft_ts(self, name: str, thread: str | None) -> str:
        """Return the ts of the draft that is shown in this thread, "" if there is none."""
        ts, _, shown_in = self.log.draft_of(name).partition(" ")
        return ts if shown_in == (thread or "") else ""

    async def _finish_draft(self, reply: OutboundMessage, target: str, text: str, id: str) -> str:
        """Make the draft the reply; return its ts, "" if there is none that can be changed."""
        name = reply.channel.channel_id
        shown = self._draft_ts(name, _thread_of(reply.channel))
        if shown:
            try:
                await self.api.call("chat.update", channel=target, ts=shown, text=text, metadata=_mark(id))
            except SlackRefused:  # somebody has deleted it
                shown = ""
        else:
            await self._delete_draft(name, target)
        await self.log.set_draft(name, "")
        return shown

    async def _delete_draft(self, name: str, target: str) -> None:
        """Delete the draft of a conversation, in whatever thread it is."""
        ts = self.log.draft_of(name).partition(" ")[0]
        if ts:
            await self._try_once("chat.delete", channel=target, ts=ts)
            await self.log.set_draft(name, "")

    async def show_typing(self, typing: Typing) -> None:
        """Show that the agent thinks, in a thread of the assistant view. Slack has no such sign elsewhere."""
        channel, thread = typing.channel.channel_id, typing.channel.reply_to
        if thread is not None and self.log.fact(assistant_key(channel, thread)):
            try:
                await self.api.call(
                    "assistant.threads.setStatus",
                    channel_id=channel,
                    thread_ts=thread,
                    status=STATUS if typing.active else "",
                )
            except SlackRefused as error:
                raise ReplyRefused(str(error)) from None


class _WebhookDelivery:
    """A delivery that came by HTTP. It goes on when its request was answered."""

    def __init__(self, incoming: SlackIncoming, delivery: Delivery) -> None:
        self._work = incoming.enter(delivery)
        self.is_kept = False
        self.end = trio.Event()

    async def run(self) -> None:
        """Handle the delivery. Raises nothing that is expected."""
        try:
            await self._work()
            self.is_kept = True
        except NotKept as error:
            _log.warning("a delivery of Slack was not taken", reason=str(error))
        finally:
            self.end.set()


def _thread_of(channel: ChannelInfo) -> str | None:
    """Return the thread_ts that a message goes to. What a model has made up is no thread; the message goes to the conversation."""
    thread = channel.reply_to
    return thread if thread is not None and is_ts(thread) else None


def _rendered_length(markdown: str) -> int:
    """Return the length of the message that a Markdown text becomes."""
    return len(render_mrkdwn(markdown))


def _mark(id: str) -> dict[str, Json]:
    """Return the metadata by which a message of ours is found again: https://docs.slack.dev/messaging/message-metadata."""
    return {"event_type": "pegasus_reply", "event_payload": {"id": id}}


def _approval_key(id: str) -> str:
    """Return the key of the fact that has conversation and ts of the message that asks for an approval."""
    return f"approval/{id}"
