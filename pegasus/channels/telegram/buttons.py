"""Buttons below messages: a yes or no to a tool call, and letting somebody in. Only owners may click.

What is in a button is what Telegram sends back when it is clicked, at most 64 bytes: `a:<id>:deny` and
`a:<id>:<scope>` (`once`, `tool` and so on) for an approval, `p:<code>` for a person. Somebody could send such a click
without the button, so it is worth no more than the command.

The message of an approval is remembered on disk until it is answered, wherever that happens; then the answer
stands below its text and the buttons are gone.

Telegram does not give the text of a message back in a form that could be edited. So the HTML that was sent is
part of what is remembered, under the beginning that all buttons of the message share (`a:<id>` or `p:<code>`).

A click is carried out first and shown afterwards. A crash in between leaves the buttons; a further click is
then answered with what has become of the approval.
"""

from __future__ import annotations

from html import escape as html_escape
from typing import Final

import attrs

from pegasus.access import PAIRING, end_text, parse_scope
from pegasus.channels.adapter import ReplyRefused
from pegasus.channels.delivery_log import DeliveryLog
from pegasus.channels.service_contract import APPROVAL, ServiceContext, yes_buttons
from pegasus.channels.telegram.api import BotApi
from pegasus.channels.telegram.sending import Buttons, TelegramSender, TextMessage
from pegasus.channels.telegram.updates import TYPE, TelegramClick
from pegasus.formatting import truncate
from pegasus.messages import ApprovalNotice, ChannelInfo, Json, OutboundMessage

LONGEST_TOAST: Final = 200
"""Characters of the answer to a click (https://core.telegram.org/bots/api#answercallbackquery)."""
DENIED: Final = "deny"
"""Decision of the button that refuses."""
_NOT_YOURS: Final = "Only my owner may decide about that."
"""Answer to somebody who may not decide."""


def buttons_of(reply: OutboundMessage) -> Buttons:
    """Return the buttons below a reply, () for none.

    They stand two in a row (`TelegramSender`): the yes and the no for this time first, then each wider yes.
    """
    approval, code = reply.metadata.get(APPROVAL), reply.metadata.get(PAIRING)
    if isinstance(approval, str):
        once, *wider = [(label, f"a:{approval}:{scope}") for scope, label in yes_buttons(reply)]
        return (once, ("Deny", f"a:{approval}:{DENIED}"), *wider)
    return (("Let in", f"p:{code}"),) if isinstance(code, str) else ()


class TelegramButtons:
    """Remembers messages with buttons, and handles clicks."""

    def __init__(self, api: BotApi, sender: TelegramSender, log: DeliveryLog, context: ServiceContext) -> None:
        self._api = api
        self._sender = sender
        self._log = log
        self._context = context

    async def remember(self, reply: OutboundMessage, piece: TextMessage, message_id: str) -> None:
        """Note where a message with buttons is. Returns when that is on disk."""
        key = _key_of(piece)
        place: dict[str, Json] = {"chat": reply.channel.channel_id, "message": message_id, "html": piece.html}
        await self._log.set_fact(key, place)

    async def handle(self, click: TelegramClick) -> None:
        """Carry out a click and answer it. Raises what `BotApi.call` raises."""
        # In a group everybody sees the buttons. An alert is shown to the one who has clicked only.
        if not self._context.is_owner(click.channel):
            await self._answer(click, _NOT_YOURS, is_alert=True)
            return
        # The sentence says what has become of it: an approval may have expired, or somebody else may have
        # answered it.
        sentence = await self._carry_out(click)
        await self._answer(click, sentence or "This button does nothing any more.")
        # A message that is not on record loses its buttons at least.
        if sentence and not await self._close(":".join(click.data.split(":")[:2]), sentence):
            await self._remove_buttons(click)

    async def _carry_out(self, click: TelegramClick) -> str:
        """Do what an owner has clicked; return a sentence about it, "" for a button that is none of ours."""
        by = f"{TYPE}:{click.channel.user_id}"
        match click.data.split(":"):
            case ["a", id, decision] if decision == DENIED or parse_scope(decision) is not None:
                return await self._context.decide(id, decision, by)
            case ["p", code]:
                return await self._context.decide(code, "once", by)
        return ""

    async def show(self, notice: ApprovalNotice) -> None:
        """Show that an approval is not open any more."""
        await self._close(f"a:{notice.id}", end_text(notice))

    async def _close(self, key: str, words: str) -> bool:
        """Write the outcome below the text, without buttons; return False if the message is not known, or was closed before."""
        place = self._log.fact(key)
        match place:
            case {"chat": str(chat), "message": str(message), "html": str(html)}:
                piece = TextMessage(f"{html}\n\n<i>{html_escape(words, quote=False)}</i>")
            case _:
                return False
        # Forgotten before the edit: if the edit fails, the answer is not shown, but it counts. The other way
        # round a crash would show it twice.
        await self._log.set_fact(key, None)
        channel = ChannelInfo(TYPE, chat)
        try:
            await self._sender.edit(channel, message, piece)
        except ReplyRefused:  # no room for one more line
            await self._sender.edit(channel, message, attrs.evolve(piece, html=html))
        return True

    async def _answer(self, click: TelegramClick, words: str, *, is_alert: bool = False) -> None:
        """Answer a click, which ends its waiting sign in the app. is_alert: in a box that has to be closed."""
        params: dict[str, Json] = {"callback_query_id": click.id, "text": truncate(words, LONGEST_TOAST)}
        try:
            await self._api.call("answerCallbackQuery", {**params, "show_alert": is_alert})
        except ReplyRefused:  # the click is too old; what it asked for is done
            return

    async def _remove_buttons(self, click: TelegramClick) -> None:
        """Take the buttons of a message away, whatever it is. One that was deleted has none."""
        chat = self._sender.chat_id(click.channel.channel_id)
        try:
            await self._api.call("editMessageReplyMarkup", {"chat_id": chat, "message_id": int(click.message_id)})
        except ReplyRefused:
            return


def _key_of(piece: TextMessage) -> str:
    """Return the fact by which the message of these buttons is found: the beginning that all its buttons share."""
    return ":".join(piece.buttons[0][1].split(":")[:2])
