"""`SlackAdapter`: the actor that connects Slack with the agent.

In: Socket Mode where there is an `app_token` (`socket_mode`), otherwise the Events API, whose requests the HTTP server hands to
`receive`. Either way a delivery is acknowledged only when its message is on disk.

Out: each reply as one message or more, in mrkdwn (`sending`). A reply to a message outside of a thread goes to the conversation, one
to a message in a thread goes there (`ChannelInfo.reply_to` is the `thread_ts`).

**Acknowledging late.** Slack wants an answer to a webhook within 3 seconds, and tries again after a failure: at once, after a minute,
after five (https://docs.slack.dev/apis/events-api#errors). So a request is answered with 503 when its message is not on disk in time,
but its work goes on (`_WebhookDelivery`). When Slack comes again, `SlackIncoming` knows the message, and the answer is 200. The place
in the order of the conversation is taken when the request arrives, before any task is started.

**Buttons.** The message that asks for an approval is a fact of the delivery log until the answer is there, so the buttons disappear
wherever the answer is given. The text of the question is in memory only. Who clicks is looked at with each click: people other than
owners see the buttons, too.

Stopped, the adapter first refuses webhooks (503), then ends those under way and closes its connections. What was not on disk was
not acknowledged, so Slack sends it to the next run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import trio

from pegasus.channels.adapter import ReplyRefused
from pegasus.channels.service_adapter import ServiceAdapter
from pegasus.channels.service_contract import (
    CredentialsRefused,
    NotKept,
    RateLimited,
    ServiceContext,
    ServiceDown,
    WebhookAnswer,
    WebhookRequest,
)
from pegasus.channels.slack.api import SlackApi, SlackRefused
from pegasus.channels.slack.buttons import (
    ALLOW,
    ALWAYS,
    APPROVAL,
    DENY,
    PAIR,
    section_blocks,
)
from pegasus.channels.slack.incoming import TYPE, SlackIncoming, assistant_key
from pegasus.channels.slack.markup import escape_mrkdwn, render_mrkdwn
from pegasus.channels.slack.names import SlackNames
from pegasus.channels.slack.reading import SlackClick, SlackIdentity
from pegasus.channels.slack.sending import LONGEST_TEXT, SlackSender, rendered_length, thread_of
from pegasus.channels.slack.socket_mode import Connect, Delivery, SocketMode, connect_stream
from pegasus.channels.slack.webhook import read_webhook
from pegasus.channels.splitting import split_markdown
from pegasus.loopback import is_loopback
from pegasus.messages import ApprovalNotice, ChannelInfo, Media, OutboundMessage, Progress, Typing
from pegasus.observe import get_logger
from pegasus.policy import end_text
from pegasus.settings import SlackSettings

ANSWER_TIME: Final = 2.5
"""Seconds until a webhook is answered, so that Slack has the answer within its 3. Then it is asked to come again."""
CHECK_PAUSE: Final = 600.0
"""Seconds between two questions whether the token still counts, where no WebSocket would tell."""
STATUS: Final = "is thinking…"
"""Typing sign of an assistant thread; Slack puts the app's name before it."""

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
        self.sender = SlackSender(self.api, self.names, self.log, context)
        self.incoming = SlackIncoming(self, self.api, self.names, self._click)
        self._connect = connect
        self._background: trio.Nursery | None = None
        """Tasks of webhooks, which go on when Slack was asked to come again; None while the actor does not run."""
        self._questions: dict[str, str] = {}
        """By the id of an approval, the text of the message that asks. After a restart the answer stands alone."""

    def connection(self) -> AbstractAsyncContextManager[object]:
        """Open what a run of the actor needs."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            self._background = nursery
            try:
                yield
            finally:
                self._background = None
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    await self.api.aclose()

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
                allow_plain=parts.scheme == "http" and is_loopback(parts.hostname or ""),
            )
            await socket.run()
        while True:  # the Events API: Slack calls, and nobody would notice that the token was revoked
            self.is_up(f"@{me.name}")
            await trio.sleep(CHECK_PAUSE)
            me = await self._ask_identity()

    async def _ask_identity(self) -> SlackIdentity:
        """Return who the token stands for. Raises CredentialsRefused if it does not count, ServiceDown and RateLimited."""
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
        texts = split_markdown(reply.text, LONGEST_TEXT, rendered_length)
        return [*(text for text in texts if render_mrkdwn(text).strip()), *reply.media]

    async def send(self, reply: OutboundMessage, piece: Any, number: int) -> str:
        """Send a text or a file; see `ServiceAdapter.send`."""
        id = await self.sender.send(reply, piece, number)
        target, thread = await self.names.resolve(reply.channel.channel_id), thread_of(reply.channel)
        if isinstance(piece, str) and (approval := str(reply.metadata.get(APPROVAL) or "")):
            self._questions[approval] = render_mrkdwn(piece)
            await self.log.set_fact(_approval_key(approval), [target, id])
        if thread is not None and not target.startswith("D"):
            await self.incoming.remember_thread(target, thread)
        return id

    async def show_draft(self, draft: Progress) -> None:
        """Show a reply while it is written."""
        await self.sender.show_draft(draft)

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
        """What handles it. Its place behind earlier deliveries is taken here."""
        self.is_kept = False
        """Its message is on disk, or will never be taken: Slack need not come again."""
        self.end = trio.Event()
        """Set when the work has ended, also by a failure."""

    async def run(self) -> None:
        """Handle the delivery. Raises nothing that is expected."""
        try:
            await self._work()
            self.is_kept = True
        except NotKept as error:
            _log.warning("a delivery of Slack was not taken", reason=str(error))
        finally:
            self.end.set()


def _approval_key(id: str) -> str:
    """Return the key of the fact that has conversation and ts of the message that asks for an approval."""
    return f"approval/{id}"
