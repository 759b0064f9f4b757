"""`TelegramAdapter`: the actor that connects Telegram with the agent.

In: by polling (`getUpdates`), or by a webhook. An update is confirmed to Telegram (by the offset of the next poll, or by the answer to
the webhook) only when its message is on disk. Telegram keeps what is not confirmed for a day and gives it again, in order; the inbox
knows the ids, so that a message is handled once.

Out: see `sending`. Everything else about conversations is `ServiceAdapter`.

**Polling.** One poll is open at a time, and the next one confirms what the last one has brought. So updates are handled batch after
batch, and a batch whose messages cannot be kept (a full queue, a full disk) is handled again until they are: nothing is read behind it
meanwhile. In a batch, moves of groups and clicks are handled at once; messages follow together, which share their write to disk.

**Held messages.** While the file of people cannot be read, it is not known whether somebody whom the settings do not name may write;
while it cannot be written, a stranger cannot get a code. Only their messages are held (`MessageIntake` says for how long): the next
poll confirms what stands before the first of them, and asks for all others again together with what is new. What was handled behind a
held message is remembered by its number and not handled again.

**Webhook.** Telegram makes one request at a time (`max_connections`), so updates come in order here, too. A request that cannot be
answered within WEBHOOK_SECONDS gets 503, and its update is worked on further: when Telegram repeats it, the request waits for the same
work. Path and header carry a secret each; both are HMACs of the bot's token, so nothing has to be kept for them.

**Files** are fetched before their message is handed in, since a message is handed in once. Messages with files hold back only their
own conversations, and for FETCH_SECONDS at most; what has not come by then is named in the text instead.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from typing import Any, Final

import attrs
import trio

from pegasus.access import GROUP, MENTIONED
from pegasus.channels.account_ids import MessageIds
from pegasus.channels.adapter import ReplyRefused
from pegasus.channels.series import SeriesGatherer
from pegasus.channels.service_adapter import DRAFT_PAUSE, ServiceAdapter, WebhookWork, draft_text
from pegasus.channels.service_contract import (
    NotKept,
    RateLimited,
    ServiceContext,
    ServiceDown,
    WebhookAnswer,
    WebhookRequest,
)
from pegasus.channels.telegram.api import BotApi
from pegasus.channels.telegram.buttons import TelegramButtons, buttons_of
from pegasus.channels.telegram.parts import join_parts, part_of
from pegasus.channels.telegram.sending import TelegramPiece, TelegramSender, TextMessage, telegram_pieces
from pegasus.channels.telegram.updates import (
    ALLOWED,
    TYPE,
    BotName,
    FileRef,
    GroupMove,
    TelegramClick,
    TelegramMessage,
    read_update,
)
from pegasus.formatting import truncate
from pegasus.messages import RELAYED, ApprovalNotice, InboundMessage, Json, Media, OutboundMessage, ReplyDraft, Typing
from pegasus.observe import get_logger
from pegasus.retry import retry
from pegasus.settings import TelegramSettings
from pegasus.wire import decode_object

POLL_SECONDS: Final = 50
"""Seconds that Telegram holds a poll open while there is nothing."""
MOST_FAILED_POLLS: Final = 3
"""Failed polls in a row after which everything is asked anew: another program may have set a webhook."""
FAILED_POLL_PAUSE: Final = 1.0
"""Seconds until the next poll before that."""
KEEP_DELAY: Final = 2.0
"""Seconds until a message is handed in again that could not be kept."""
WEBHOOK_SECONDS: Final = 2.5
"""Seconds within which a webhook is answered. What takes longer is answered with 503, and Telegram asks again."""
CHECK_SECONDS: Final = 300.0
"""Seconds between two looks at whether Telegram still takes the token, where nothing is polled."""
FETCH_SECONDS: Final = 60.0
"""Seconds that the files of a batch of messages may take. Messages behind them in their conversations wait so long."""
MOST_FETCHES: Final = 4
"""Messages whose files are fetched at the same time."""
MOST_KEPT_BYTES: Final = 16 << 20
"""Bytes of the files of one message. They travel through the inbox with it."""
GROUP_DRAFT_PAUSE: Final = 4.0
"""Seconds between two states of a draft in a group, where Telegram allows 20 messages a minute
(https://core.telegram.org/bots/faq#my-bot-is-hitting-limits-how-do-i-avoid-this)."""
COMMAND_LENGTH: Final = 256
"""Characters of a command's description."""
PATH: Final = "/channels/telegram/"
"""Path of the webhook, before its secret."""

_log = get_logger("telegram")


class TelegramAdapter(ServiceAdapter):
    """The adapter of `[channels.telegram]`: `TelegramAdapter(settings.channels["telegram"], context)`."""

    has_buttons = True
    typing_pause = 4.5  # a sign is shown for 5 s (https://core.telegram.org/bots/api#sendchataction)

    def __init__(self, settings: TelegramSettings, context: ServiceContext) -> None:
        super().__init__(TYPE, context)
        self.settings = settings
        self.api = BotApi(settings.base_url, settings.bot_token, context.transport)
        self.bot = BotName(0, "")
        """Id and name of the bot, known once `listen` has asked."""
        self.sender = TelegramSender(self.api, self.log)
        self.buttons = TelegramButtons(self.api, self.sender, self.log, context)
        self.ids = MessageIds(self.log, context.clock)
        self.series = SeriesGatherer(self.log, TelegramMessage, part_of, join_parts, self._deliver_series)
        self._under_way: dict[int, WebhookWork] = {}
        """Updates of webhooks that are being handled, by their number."""
        self._handled: set[int] = set()
        """Numbers of updates that are handled and not confirmed yet, because one before them is held."""

    def connection(self) -> AbstractAsyncContextManager[object]:
        """Return the connections of a run of the actor."""
        return aclosing(self.api.http)

    # ---------------------------------------------------------------- in

    async def listen(self) -> None:
        """Poll for updates, or keep the webhook, until cancelled."""
        me = await self._ask("getMe")
        bot = _bot_name(me)
        await self.ids.use(str(bot.id))
        self.bot = bot
        if self.background is not None:
            self.series.resume(self.background)
        await self._list_commands()
        if self.settings.mode == "webhook":
            await self._keep_webhook()
        # The mode may have been "webhook" before, or another program may have set one.
        await self._ask("deleteWebhook")  # Telegram refuses to be polled while there is one
        self.is_up(f"@{self.bot.username}")
        await self._poll()

    async def _ask(self, method: str, params: Mapping[str, Json] | None = None) -> Any:
        """Return the result of a call, tried again until Telegram is there. Raises what else `BotApi.call` raises."""
        return await self.pacing.call(partial(self.api.call, method, params))

    async def _poll(self) -> None:
        """Ask for updates until cancelled. Raises ServiceDown when that has failed MOST_FAILED_POLLS times in a row."""
        offset: int | None = None
        failures = 0
        while True:
            # Without `allowed_updates` Telegram would use those of the last call, which may be of another
            # program.
            params: dict[str, Json] = {"timeout": POLL_SECONDS, "allowed_updates": list(ALLOWED)}
            if offset is not None:
                params["offset"] = offset
            try:
                # Not through `pacing`: a poll that fails now and then is no outage. Only several in a row
                # are reported as one.
                updates = await self.api.call("getUpdates", params, timeout=POLL_SECONDS + 10.0)
            except ServiceDown:
                failures += 1
                if failures >= MOST_FAILED_POLLS:
                    raise
                await trio.sleep(FAILED_POLL_PAUSE)
                continue
            failures = 0
            self.is_up()
            if isinstance(updates, list):
                # The offset moves only behind this. A crash before it makes Telegram give the same updates
                # again.
                held = await self._take(updates)
                offset = _next_offset(updates, held, offset)
                self._handled = {number for number in self._handled if number >= (offset or 0)}
                if held:
                    await trio.sleep(KEEP_DELAY)

    async def _list_commands(self) -> None:
        """Tell Telegram the commands, which it offers to people who type a slash.

        A refusal is logged and no more: commands work without the list.
        """
        commands: list[Json] = [
            {"command": name.removeprefix("/"), "description": truncate(meaning, COMMAND_LENGTH)}
            for name, meaning in self.context.commands.items()
        ]
        try:
            await self._ask("setMyCommands", {"commands": commands})
        except (ReplyRefused, RateLimited) as error:
            _log.warning("Telegram does not take the list of commands", reason=str(error))

    async def _take(self, updates: Sequence[Json]) -> Sequence[Json]:
        """Handle updates in order, but for those that were handled before; return those that are held, to be handled again.

        On return the messages of the others are on disk, however long that takes.
        """
        found: list[TelegramMessage] = []
        taken: set[int] = set()
        held: list[Json] = []
        writers: set[tuple[str, str | None]] = set()
        fresh = [
            (number, each) for each in updates if (number := _number(each)) is not None and number not in self._handled
        ]
        read = [read_update(update, self.bot, self._has_spoken_in) for _, update in fresh]
        for place, (number, update) in enumerate(fresh):
            # Moves and clicks are carried out in their place among the messages, which are gathered.
            match read[place]:
                case TelegramMessage() as heard:
                    heard = self._identified(heard)
                    writer = heard.message.channel.channel_id, heard.message.channel.user_id
                    # Behind a held message further ones of its writer are held without asking, so that their order stays.
                    if writer in writers:
                        held.append(update)
                        continue
                    following = _next_of(heard, read[place + 1 :])
                    if await self.series.take(heard, partial(self._begins, heard, found), self.background, following):
                        taken.add(number)
                        continue
                    if not await self._admit(heard, found):
                        writers.add(writer)
                        held.append(update)
                    else:
                        taken.add(number)
                    continue
                case GroupMove(old, new):
                    await self.sender.note_move(old, new)
                case TelegramClick() as click:
                    await self._click(click)
            self._handled.add(number)
        await self._hand_in(found)
        self._handled |= taken
        return held

    async def _hand_in(self, found: Sequence[TelegramMessage]) -> None:
        """Fetch the files of messages and hand them in, in order; return when they are on disk."""
        # Files take their time. Conversations without any in this batch do not wait for them.
        slow = {heard.message.channel.channel_id for heard in found if heard.files}
        await self._keep([heard.message for heard in found if heard.message.channel.channel_id not in slow])
        await self._keep(await self._fetch_all([each for each in found if each.message.channel.channel_id in slow]))

    async def _begins(self, heard: TelegramMessage, found: list[TelegramMessage]) -> bool:
        """Return whether a series may begin with a message. Messages before it in the chat, of those found, are handed in first."""
        message = heard.message
        # A part of an album is named by the caption of another one, so that is not asked of each part.
        metadata = {**message.metadata, MENTIONED: True} if message.metadata.get(GROUP) is True else message.metadata
        try:
            if await self.refusal_of(message.channel, metadata) is not None:
                return False
        except NotKept:
            return False
        if any(each.message.channel.channel_id == message.channel.channel_id for each in found):
            await self._hand_in(found)
            found.clear()
        return True

    async def _deliver_series(self, heard: TelegramMessage) -> None:
        """Hand in a series as one message. Its updates are confirmed, so it is tried until it is on disk or will never be taken."""
        found: list[TelegramMessage] = []
        while not await self._admit(heard, found):  # noqa: ASYNC110 nobody tells when the file of people can be read
            await trio.sleep(KEEP_DELAY)
        await self._hand_in(found)

    def _identified(self, heard: TelegramMessage) -> TelegramMessage:
        """Return a message with the bot in its id."""
        message = heard.message
        return attrs.evolve(heard, message=attrs.evolve(message, id=self.ids.of(message.id, heard.sent)))

    async def _keep(self, messages: Sequence[InboundMessage]) -> None:
        """Hand messages in until they are on disk, however long that takes. Telegram keeps them meanwhile."""

        def log(error: Exception, seconds: float) -> None:
            _log.warning(
                "messages cannot be kept at the moment; Telegram keeps them", reason=str(error), seconds=seconds
            )

        await retry(partial(self.accept, *messages), NotKept, log)

    async def _admit(self, heard: TelegramMessage, found: list[TelegramMessage]) -> bool:
        """Add a message to those that were found, unless nobody will hear it; return False if it is to be held.

        Files of strangers are not fetched, and a bot is heard some times in a row only.
        """
        message, chat = heard.message, heard.message.channel.channel_id
        try:
            if await self.refusal_of(message.channel, message.metadata) is not None:
                # The intake decides about it, and may offer to let its writer in. For that it needs a text. It is handed in by
                # itself, so that a code that cannot be written holds up nobody else.
                await self.accept(attrs.evolve(message, text=message.text or "(a file)"))
                return True
        except NotKept as error:
            _log.warning("a message is held; Telegram keeps it", reason=str(error))
            return False
        if heard.is_bot and not self.bots.has_room(chat):
            _log.info("another bot is not heard any more until a person writes", chat=chat)
        else:
            self.note_writer(chat, is_bot=heard.is_bot)
            found.append(heard)
        return True

    async def _click(self, click: TelegramClick) -> None:
        """Carry out a click.

        It takes WEBHOOK_SECONDS at most, so that it holds up no messages. What it asked for may be done all the
        same.
        """
        try:
            with trio.move_on_after(WEBHOOK_SECONDS):
                await self.buttons.handle(click)
        except (ServiceDown, RateLimited, ReplyRefused) as error:
            _log.warning("a click could not be answered", reason=str(error))

    def _has_spoken_in(self, channel_id: str, thread: str) -> bool:
        """Return whether a reply of ours is in this topic; on record since `send`."""
        return self.log.fact(f"topic/{channel_id}/{thread}") is not None

    # ---------------------------------------------------------------- files

    async def _fetch_all(self, found: Sequence[TelegramMessage]) -> list[InboundMessage]:
        """Return the messages with their files, in order. Files that have not come within FETCH_SECONDS are named."""
        # The list has a place for each message, so that the order stays whichever files come first.
        messages = [heard.message for heard in found]
        limiter, deadline = trio.CapacityLimiter(MOST_FETCHES), trio.current_time() + FETCH_SECONDS

        async def fetch(index: int, heard: TelegramMessage) -> None:
            """Replace a message by the one with its files, when it is its turn."""
            async with limiter:
                messages[index] = await self._with_files(heard.message, heard.files, deadline)

        async with trio.open_nursery() as nursery:
            for index, heard in enumerate(found):
                if heard.files:
                    nursery.start_soon(fetch, index, heard)
        return messages

    async def _with_files(self, message: InboundMessage, files: Sequence[FileRef], deadline: float) -> InboundMessage:
        """Return the message with its files. One that cannot be had is named in the text. deadline: Trio's clock."""
        media: list[Media] = []
        notes: list[str] = []
        room = MOST_KEPT_BYTES
        with trio.move_on_at(deadline):
            for file in files:
                try:
                    content = await self._fetch(file, room)
                except (ReplyRefused, RateLimited) as error:
                    notes.append(f"(attached: {file.name}, {file.mime}; I could not get it: {error})")
                    continue
                room -= len(content)
                media.append(Media(file.name, file.mime, b64encode(content).decode(), file.is_voice))
        # Files are fetched one after the other, so those that are missing are the last ones.
        late = files[len(media) + len(notes) :]
        notes += [f"(attached: {file.name}, {file.mime}; Telegram did not deliver it in time)" for file in late]
        if notes:  # they name files as whoever made those has called them
            text, metadata = "\n".join(filter(None, [message.text, *notes])), {**message.metadata, RELAYED: True}
            message = attrs.evolve(message, text=text, metadata=metadata)
        return attrs.evolve(message, media=tuple(media))

    async def _fetch(self, file: FileRef, room: int) -> bytes:
        """Return the content of a file. Raises ReplyRefused if it is too large or Telegram does not have it."""
        # Telegram says the size with the message, so a file that is too large is not even asked for.
        if file.size > room:
            raise ReplyRefused(f"it has {file.size:,} bytes, of which a message may have {MOST_KEPT_BYTES:,}")
        found = await self.pacing.call(partial(self.api.call, "getFile", {"file_id": file.file_id}))
        path = found.get("file_path") if isinstance(found, Mapping) else None
        if not isinstance(path, str):
            raise ReplyRefused("Telegram does not say where it is")
        content = await self.pacing.call(partial(self.api.download, path))
        # The size that was announced may be missing (0) or wrong.
        if len(content) > room:
            raise ReplyRefused(f"it has {len(content):,} bytes, of which a message may have {MOST_KEPT_BYTES:,}")
        return content

    # ---------------------------------------------------------------- the webhook

    async def _keep_webhook(self) -> None:
        """Tell Telegram where to call, and look now and then whether it still takes the token."""
        address = f"{self.context.public_url.rstrip('/')}{PATH}{self._secret('path')}"
        params: dict[str, Json] = {
            "url": address,
            "secret_token": self._secret("header"),
            "allowed_updates": list(ALLOWED),
            "max_connections": 1,  # so that updates come in order
        }
        try:
            await self._ask("setWebhook", params)
        # What Telegram dislikes about the address (its name, its certificate) may change without us, so it
        # counts as an outage and is tried again.
        except ReplyRefused as error:
            raise ServiceDown(str(error)) from None
        while True:
            self.is_up(f"@{self.bot.username}")
            await trio.sleep(CHECK_SECONDS)
            await self._ask("getMe")

    def _secret(self, purpose: str) -> str:
        """Return a secret that only Telegram and we know. It follows from the token, so that it needs no place on disk."""
        return hmac.digest(self.settings.bot_token.encode(), f"pegasus webhook {purpose}".encode(), "sha256").hex()

    async def receive(self, request: WebhookRequest) -> WebhookAnswer:
        """Take an update from Telegram; see `WebhookReceiver`."""
        if self.settings.mode != "webhook" or not request.path.startswith(PATH):
            return WebhookAnswer(404)
        given = request.headers.get("x-telegram-bot-api-secret-token", "")
        is_path_right = hmac.compare_digest(request.path[len(PATH) :].encode(), self._secret("path").encode())
        # The path alone is not enough, since proxies log paths.
        if not (is_path_right and hmac.compare_digest(given.encode(), self._secret("header").encode())):
            return WebhookAnswer(401, b"wrong secret")
        try:
            update = decode_object(request.body)
        except ValueError:
            return WebhookAnswer(400, b"no JSON object")
        number = update.get("update_id")
        if not isinstance(number, int):
            return WebhookAnswer(400, b"no update_id")
        if self.background is None or not self.bot.id:
            return WebhookAnswer(503, b"not connected yet")
        # A repeated request waits for the work of the first one.
        if number not in self._under_way:
            self._under_way[number] = self.start_work(partial(self._take_update, number, update))
        is_kept = await self._under_way[number].is_kept_within(WEBHOOK_SECONDS)
        return WebhookAnswer(200 if is_kept else 503)

    async def _take_update(self, number: int, update: Json) -> None:
        """Handle an update of a webhook to its end, also when its request does not wait any longer."""
        held: Sequence[Json] = [update]
        try:
            while held := await self._take(held):  # noqa: ASYNC110 nobody tells when the file of people can be read
                await trio.sleep(KEEP_DELAY)
        finally:  # cancelled at the end of a run, it was not confirmed, and Telegram makes its request again
            del self._under_way[number]
            self._handled.discard(number)

    # ---------------------------------------------------------------- out

    def pieces(self, reply: OutboundMessage) -> Sequence[TelegramPiece]:
        """Return the texts and files of a reply."""
        return telegram_pieces(reply, buttons_of(reply))

    async def send(self, reply: OutboundMessage, piece: TelegramPiece, number: int) -> str:
        """Send a piece; see `ServiceAdapter.send`."""
        channel = reply.channel
        id = await self.sender.send(reply, piece, number)
        if isinstance(piece, TextMessage) and piece.buttons:
            await self.buttons.remember(reply, piece, id)
        # From now on messages in this topic are meant for the agent; see `read_update`.
        if channel.reply_to is not None:
            await self.log.set_fact(f"topic/{channel.channel_id}/{channel.reply_to}", True)
        return id

    async def show_typing(self, typing: Typing) -> None:
        """Show that the agent thinks."""
        await self.api.call("sendChatAction", {**self.sender.place(typing.channel), "action": "typing"})

    async def show_draft(self, draft: ReplyDraft) -> None:
        """Show a reply while it is written."""
        await self.sender.show_draft(draft.channel, draft_text(draft))

    def draft_pause(self, channel_id: str) -> float:
        """Return the seconds between two states of a draft.

        Ids of groups are negative; in private chats Telegram is not as strict.
        """
        return GROUP_DRAFT_PAUSE if channel_id.startswith("-") else DRAFT_PAUSE

    async def show_approval(self, notice: ApprovalNotice) -> None:
        """Show the answer to an approval in place of its buttons."""
        await self.buttons.show(notice)


def _bot_name(me: Json) -> BotName:
    """Return id and name of the bot, from the answer to `getMe`. Raises ServiceDown for an answer that is none of Telegram's."""
    match me:
        case {"id": int(id), "username": str(username)}:
            return BotName(id, username)
    raise ServiceDown("what answers is not Telegram: getMe names no bot")


def _next_of(heard: TelegramMessage, read: Sequence[object]) -> TelegramMessage | None:
    """Return the next message of the same writer in the same chat among what was read, None if there is none."""
    channel = heard.message.channel
    return next((each for each in read if isinstance(each, TelegramMessage) and each.message.channel == channel), None)


def _number(update: Json) -> int | None:
    """Return the number of an update, None if it has none."""
    number = update.get("update_id") if isinstance(update, Mapping) else None
    return number if isinstance(number, int) else None


def _next_offset(updates: Sequence[Json], held: Sequence[Json], offset: int | None) -> int | None:
    """Return the offset that confirms these updates, or those before the first that is held."""
    waiting = [number for number in map(_number, held) if number is not None]
    beyond = [number + 1 for number in map(_number, updates) if number is not None]
    return min(waiting) if waiting else max(beyond, default=offset)
