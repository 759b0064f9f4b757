"""Messages to Telegram: texts, files, buttons, and drafts that become replies.

A draft is a message of its own that is edited while the agent writes, and at last edited to the reply. Its id is on disk, so that
after a crash the same message becomes the reply, and nobody sees a text that was left in the middle of a sentence.

Telegram shows a message once for each call, and cannot be asked for it. So a call without an answer (the process was killed, the
connection broke) is repeated only once; see `attempts`.

What is on record about the draft of a chat is "" (none), UNSURE (sent, and the answer is not known) or its message id. It is UNSURE
while the call is under way. If a process dies then, that draft can neither be changed nor deleted any more; it counts as one of the
two attempts of the reply, and no other draft is shown in that chat before the reply.

Telegram explains its refusals in words only, so some words are looked for: `_SAME`, `_GONE`, `_ABOUT_TOPIC`. A text whose HTML
is refused is sent once more without markup, since a reply without bold words is worth more than none.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

import attrs

from pegasus.channels.adapter import ReplyRefused
from pegasus.channels.attempts import SendAttempts, undone_unless_sent
from pegasus.channels.delivery_log import UNSURE, DeliveryLog
from pegasus.channels.telegram.api import BotApi, FormatRefused, GroupMoved
from pegasus.channels.telegram.markup import plain_text, split_for_telegram
from pegasus.messages import ChannelInfo, Json, Media, OutboundMessage
from pegasus.observe import get_logger

MOST_PHOTO_BYTES: Final = 10 << 20
"""Bytes of a picture that is shown as one; a larger one goes as a file (https://core.telegram.org/bots/api#sendphoto)."""
MOST_SENT_BYTES: Final = 50 << 20
"""Bytes of a file that bots may send."""
_PHOTOS: Final = ("image/jpeg", "image/png", "image/webp")
"""Types of pictures that are shown as such; others go as files."""
_SAME: Final = "message is not modified"
"""Refusal of an edit that changes nothing: the message is as it should be."""
_GONE: Final = (
    "message to edit not found",
    "message can't be edited",
    "message to delete not found",
    "MESSAGE_ID_INVALID",
)
"""Refusals for a message that somebody has deleted, or that is too old to be changed."""
_ABOUT_TOPIC: Final = re.compile("topic|thread", re.IGNORECASE)
"""Words of a refusal for a topic that was closed or deleted, or where there are none: the message goes to the chat itself."""

_log = get_logger("telegram")

ROW: Final = 2
"""Buttons beside each other. A third one would have no room for its label on a phone."""
Buttons: TypeAlias = Sequence[tuple[str, str]]
"""Label of each button and what is sent back when it is clicked (at most 64 bytes)."""


@attrs.frozen
class TextMessage:
    """A text, as Telegram's HTML: `TextMessage("<b>CompleteItem</b>")`."""

    html: str
    """Text in Telegram's HTML, at most LONGEST_TEXT characters without its tags."""
    buttons: tuple[tuple[str, str], ...] = ()
    """Label and data of each button below it."""


@attrs.frozen(eq=False, repr=False)
class FileMessage:
    """A file of a reply."""

    media: Media
    """The file, in base64."""


TelegramPiece: TypeAlias = TextMessage | FileMessage


def telegram_pieces(reply: OutboundMessage, buttons: Buttons = ()) -> list[TelegramPiece]:
    """Return what is sent for a reply: its texts, the buttons below the last of them, then its files."""
    texts = [TextMessage(text) for text in split_for_telegram(reply.text)]
    if buttons:
        # Buttons need a text above them, even where the reply has none that can be seen.
        texts = texts or [TextMessage("?")]
        texts[-1] = attrs.evolve(texts[-1], buttons=tuple(buttons))
    return [*texts, *map(FileMessage, reply.media)]


class TelegramSender:
    """Sends pieces and drafts by the Bot API. Every method raises what `BotApi.call` raises."""

    def __init__(self, api: BotApi, log: DeliveryLog) -> None:
        self._api = api
        self._log = log
        self._attempts = SendAttempts(log)

    # ---------------------------------------------------------------- places

    def chat_id(self, channel_id: str) -> Json:
        """Return the chat as Telegram wants it: a number, or the name of a public channel (`@name`). A group may have moved."""
        moved = self._log.fact(f"moved/{channel_id}")
        if isinstance(moved, str):
            channel_id = moved
        digits = channel_id.removeprefix("-")
        return int(channel_id) if digits.isascii() and digits.isdecimal() else channel_id

    async def note_move(self, old: str, new: str) -> None:
        """Remember that a group has become a supergroup with another id."""
        await self._log.set_fact(f"moved/{old}", new)

    def place(self, channel: ChannelInfo) -> dict[str, Json]:
        """Return the parameters that say where a message goes."""
        place: dict[str, Json] = {"chat_id": self.chat_id(channel.channel_id)}
        if channel.reply_to is not None and channel.reply_to.isascii() and channel.reply_to.isdecimal():
            place["message_thread_id"] = int(channel.reply_to)
        return place

    async def _call_at(self, channel: ChannelInfo, method: str, params: Mapping[str, Json], **options: Any) -> Any:
        """Call a method about a place. A group that has moved is followed; a topic that takes no message is left out."""
        place = self.place(channel)
        # A group that has moved and a topic that is gone can each happen once; a third refusal is about
        # something else.
        for _ in range(3):
            try:
                return await self._api.call(method, {**place, **params}, **options)
            except GroupMoved as move:
                await self.note_move(channel.channel_id, str(move.chat_id))
                place["chat_id"] = move.chat_id
            except ReplyRefused as error:
                if not _ABOUT_TOPIC.search(str(error)) or place.pop("message_thread_id", None) is None:
                    raise
                _log.info("a topic takes no message; it goes to the group itself", reason=str(error))
        raise ReplyRefused("Telegram names another place for this chat each time")

    # ---------------------------------------------------------------- messages

    async def send(self, reply: OutboundMessage, piece: TelegramPiece, number: int) -> str:
        """Send a piece and return its message id, or UNCONFIRMED. The first text takes the place of the draft, if there is one."""
        channel = reply.channel
        # Only the first piece may replace the draft, which stands where the reply begins.
        draft = "" if number else self._log.draft_of(channel.channel_id)
        if isinstance(piece, TextMessage):
            if draft and await self.edit(channel, draft, piece):
                return draft
            send = partial(self._send_text, channel, piece)
        else:
            if draft:
                await self._withdraw(channel, draft)
            send = partial(self._send_file, channel, piece.media)
        # A draft of unknown outcome counts as an attempt, because its message may be there.
        found = await self._attempts.find(reply, number, self._look_up, drafts=int(draft == UNSURE))
        return found or await self._attempts.make(reply, number, send)

    async def _look_up(self) -> None:
        """Find out that Telegram can be reached. It does not tell which messages it has."""
        await self._api.call("getMe")

    async def _send_text(self, channel: ChannelInfo, piece: TextMessage) -> str:
        """Send a text and return its message id; without markup if Telegram refuses its HTML."""
        try:
            result = await self._call_at(channel, "sendMessage", _text_params(piece))
        except FormatRefused:
            result = await self._call_at(channel, "sendMessage", _text_params(piece, is_plain=True))
        return _message_id(result)

    async def edit(self, channel: ChannelInfo, message_id: str, piece: TextMessage) -> bool:
        """Change a text of ours; return False if the message is not there any more."""
        if not message_id.isdecimal():  # Telegram did not say which it was
            return False
        where: dict[str, Json] = {"chat_id": self.chat_id(channel.channel_id), "message_id": int(message_id)}
        # The second round is for a markup that Telegram refuses.
        for is_plain in (False, True):
            try:
                await self._api.call("editMessageText", {**where, **_text_params(piece, is_plain=is_plain)})
                return True
            except FormatRefused:
                continue
            except GroupMoved as move:  # what was written before the move cannot be changed any more
                await self.note_move(channel.channel_id, str(move.chat_id))
                return False
            except ReplyRefused as error:
                # The reply is what the draft has shown last, so there is nothing to change.
                if _SAME in str(error):
                    return True
                if any(words in str(error) for words in _GONE):
                    return False
                raise
        return False

    async def _send_file(self, channel: ChannelInfo, media: Media) -> str:
        """Send a file in the most fitting form and return its message id. Raises ReplyRefused if it is damaged or too large."""
        try:
            content = b64decode(media.data, validate=True)
        except ValueError:
            raise ReplyRefused(f"the file {media.name!r} is damaged") from None
        if len(content) > MOST_SENT_BYTES:
            raise ReplyRefused(f"the file {media.name!r} has more than {MOST_SENT_BYTES:,} bytes")
        kinds = ["document"]
        # Each form that fits best comes first; "document" takes everything.
        if media.mime in _PHOTOS and len(content) <= MOST_PHOTO_BYTES:
            kinds.insert(0, "photo")
        elif media.mime == "audio/ogg" and b"OpusHead" in content[:256]:
            kinds.insert(0, "voice")  # of recordings, only Opus in Ogg is shown as a voice message
        for kind in kinds:
            try:
                files = {kind: (media.name, content, media.mime)}
                result = await self._call_at(channel, f"send{kind.capitalize()}", {}, files=files, timeout=120.0)
                return _message_id(result)
            except ReplyRefused:
                if kind == kinds[-1]:
                    raise  # what cannot be shown as a picture or heard as a voice message can be sent as a file
        raise AssertionError("there is always a last kind")

    # ---------------------------------------------------------------- drafts

    async def show_draft(self, channel: ChannelInfo, text: str) -> None:
        """Show a draft, or the newer state of the one that is shown; "" withdraws it.

        Cancelled or without an answer, the draft stays UNSURE unless Telegram has said that it was not sent.
        """
        channel_id = channel.channel_id
        shown = self._log.draft_of(channel_id)
        pieces = split_for_telegram(text) if text.strip() else []
        if not pieces:
            if shown:
                await self._withdraw(channel, shown)
            return
        # A draft that has got longer than a message shows its end, which is what is being written.
        piece = TextMessage(pieces[-1])
        if shown == UNSURE:  # it may be there already, and cannot be changed
            return
        if not shown or not await self.edit(channel, shown, piece):
            # On disk before the call: a process that dies during it leaves a mark that a message may be there.
            await self._log.set_draft(channel_id, UNSURE)
            async with undone_unless_sent(partial(self._log.set_draft, channel_id)):
                message_id = await self._send_text(channel, piece)
            await self._log.set_draft(channel_id, message_id)

    async def _withdraw(self, channel: ChannelInfo, message_id: str) -> None:
        """Delete a draft. It stays on record until it is gone, so that an outage leaves none behind."""
        if message_id.isdecimal():
            where: dict[str, Json] = {"chat_id": self.chat_id(channel.channel_id), "message_id": int(message_id)}
            with suppress(ReplyRefused):  # its reader has deleted it
                await self._api.call("deleteMessage", where)
        await self._log.set_draft(channel.channel_id, "")


def _message_id(result: Json) -> str:
    """Return the id of a message that was sent. An answer without one is a yes, too: asking again would send it twice."""
    return str(result.get("message_id", UNSURE)) if isinstance(result, Mapping) else UNSURE


def _text_params(piece: TextMessage, *, is_plain: bool = False) -> dict[str, Json]:
    """Return the parameters of a text. Without `reply_markup` an edit removes the buttons."""
    text: dict[str, Json] = {"text": plain_text(piece.html)} if is_plain else {"text": piece.html, "parse_mode": "HTML"}
    if piece.buttons:
        buttons: list[Json] = [{"text": label, "callback_data": data} for label, data in piece.buttons]
        text["reply_markup"] = {"inline_keyboard": [buttons[n : n + ROW] for n in range(0, len(buttons), ROW)]}
    return text
