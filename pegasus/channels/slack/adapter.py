"""`SlackAdapter`: the actor that connects Slack with the agent.

In: Socket Mode where there is an `app_token` (`socket_mode`), otherwise the Events API, whose requests the HTTP server hands to
`receive` (`webhook`). Either way a delivery is acknowledged only when its message is on disk.

Out: each reply as one message or more, in mrkdwn (`sending`). A reply to a message outside of a thread goes to the conversation, one
to a message in a thread goes there (`ChannelInfo.reply_to` is the `thread_ts`).

Stopped, the adapter first refuses webhooks (503), then ends those under way and closes its connections. What was not on disk was
not acknowledged, so Slack sends it to the next run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Final
from urllib.parse import urlsplit

import trio

from pegasus.channels.service_adapter import ServiceAdapter
from pegasus.channels.service_contract import CredentialsRefused, ServiceContext, WebhookAnswer, WebhookRequest
from pegasus.channels.slack.api import SlackApi, SlackRefused
from pegasus.channels.slack.buttons import SlackButtons
from pegasus.channels.slack.incoming import SlackIncoming, assistant_key
from pegasus.channels.slack.markup import render_mrkdwn
from pegasus.channels.slack.names import SlackNames
from pegasus.channels.slack.reading import TYPE, SlackIdentity
from pegasus.channels.slack.sending import LONGEST_TEXT, SlackSender, rendered_length, thread_of
from pegasus.channels.slack.socket_mode import Connect, SocketMode, connect_stream
from pegasus.channels.slack.webhook import ANSWER_TIME, read_webhook
from pegasus.loopback import is_loopback
from pegasus.markdown import split_markdown
from pegasus.messages import ApprovalNotice, Media, OutboundMessage, ReplyDraft, Typing
from pegasus.settings import SlackSettings

CHECK_PAUSE: Final = 600.0
"""Seconds between two questions whether the token still counts, where no WebSocket would tell."""
STATUS: Final = "is thinking…"
"""Typing sign of an assistant thread; Slack puts the app's name before it."""


class SlackAdapter(ServiceAdapter):
    """The adapter of `[channels.slack]`: `SlackAdapter(settings.channels["slack"], context)`.

    Its parts: `names` looks ids up, `sender` delivers, `buttons` carries out clicks, `incoming` hears. What
    must survive a crash is in the adapter's delivery log.
    """

    has_buttons = True
    typing_pause = 90.0  # Slack removes a status after two minutes

    def __init__(self, settings: SlackSettings, context: ServiceContext, connect: Connect = connect_stream) -> None:
        """connect: opens the stream of a WebSocket; another one in tests."""
        super().__init__(TYPE, context)
        self.settings = settings
        self.api = SlackApi(settings.base_url, settings.bot_token, settings.app_token, context.transport)
        self.names = SlackNames(self.api)
        self.sender = SlackSender(self.api, self.names, self.log, context)
        self.buttons = SlackButtons(self.api, self.log, context)
        self.incoming = SlackIncoming(self, self.api, self.names, self.buttons.handle)
        self._connect = connect

    def connection(self) -> AbstractAsyncContextManager[object]:
        """Return the connections of a run of the actor."""
        return aclosing(self.api.http)

    # ---------------------------------------------------------------- in

    async def listen(self) -> None:
        """Hear what people write until cancelled; see `ServiceAdapter.listen`."""
        me = await self._ask_identity()
        if self.background is not None:
            self.incoming.series.resume(self.background)
        # `run` never returns: it ends with an exception, after which `listen` is called again.
        if self.settings.app_token:
            parts = urlsplit(self.settings.base_url)
            socket = SocketMode(
                self.api,
                self.incoming.enter,
                lambda: self.is_up(f"@{me.name}"),
                connect=self._connect,
                # Only a service on this machine, as in tests, may be spoken to without encryption.
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
        # Until this is known nothing is taken: whether a message names the agent, or is its own, could not be
        # told.
        found = SlackIdentity(
            str(me["user_id"]), str(me.get("bot_id") or ""), str(me.get("user") or ""), str(me.get("team_id") or "")
        )
        await self.incoming.ids.use(found.account)
        self.incoming.identity = found
        return found

    async def receive(self, request: WebhookRequest) -> WebhookAnswer:
        """Answer a request of the Events API; see `WebhookReceiver`."""
        # With Socket Mode, or without a secret to check it by, a request can only come from somebody else.
        if self.settings.app_token or not self.settings.signing_secret:
            return WebhookAnswer(404, b"the Events API is not configured")
        found = read_webhook(request, self.settings.signing_secret, self.context.clock() / 1000)
        if isinstance(found, WebhookAnswer):
            return found
        if self.background is None:
            return WebhookAnswer(503, b"not ready")
        # Its place behind earlier deliveries is taken here, before any task is started.
        is_kept = await self.start_work(self.incoming.enter(found)).is_kept_within(ANSWER_TIME)
        return WebhookAnswer(200) if is_kept else WebhookAnswer(503, b"not on disk yet, come again")

    async def show_approval(self, notice: ApprovalNotice) -> None:
        """Show an answer that was given elsewhere on the message that asked."""
        await self.buttons.show(notice)

    # ---------------------------------------------------------------- out

    def pieces(self, reply: OutboundMessage) -> Sequence[str | Media]:
        """Return the texts (Markdown) and files of a reply."""
        # What is measured is the text in Slack's markup, escapes included.
        texts = split_markdown(reply.text, LONGEST_TEXT, rendered_length)
        return [*(text for text in texts if render_mrkdwn(text).strip()), *reply.media]

    async def send(self, reply: OutboundMessage, piece: Any, number: int) -> str:
        """Send a text or a file; see `ServiceAdapter.send`."""
        id = await self.sender.send(reply, piece, number)
        target, thread = await self.names.resolve(reply.channel.channel_id), thread_of(reply.channel)
        if isinstance(piece, str):
            await self.buttons.remember(reply, render_mrkdwn(piece), target, id)
        # From now on the agent hears this thread without being named. In direct messages it hears everything
        # anyway.
        if thread is not None and not target.startswith("D"):
            await self.incoming.remember_thread(target, thread)
        return id

    async def show_draft(self, draft: ReplyDraft) -> None:
        """Show a reply while it is written."""
        await self.sender.show_draft(draft)

    async def show_typing(self, typing: Typing) -> None:
        """Show that the agent thinks, in a thread of the assistant view. Slack has no such sign elsewhere."""
        channel, thread = typing.channel.channel_id, typing.channel.reply_to
        # Asked only where it can work: elsewhere Slack refuses it, and a refusal would be logged for each sign.
        if thread is not None and self.log.fact(assistant_key(channel, thread)):
            status = STATUS if typing.active else ""
            await self.api.call("assistant.threads.setStatus", channel_id=channel, thread_ts=thread, status=status)
