"""From a delivery of Slack to the agent: order, what was heard before, threads, names, files.

* **Order.** What is delivered about one conversation is handled in the order in which it came; conversations do not wait for one
  another.
* **Once.** A message has the app's account and its `ts` as id, which the intake takes once per conversation, over restarts too. So
  `message` and `app_mention` of the same words count once, and so does everything that Slack delivers again.
* **Threads.** Once the agent was named in a thread, or has spoken there, it hears the thread. That is a fact of the delivery log.
  When it first hears of one it reads how that has begun (`_read_root`).
* **Strangers.** Who may write is asked before anything is looked up or read for a message. Of somebody unknown the text is left out.
* **Bots** are heard where they name the agent, some messages in a row; then a person has to write (`ServiceAdapter.bots`).

How the order is kept: `enter` is called in the order of arrival and waits for nothing. It puts an event of its own in the place of the
one before, and what it returns waits for that one. So the deliveries of a conversation form a chain, of which only the end is held
here. A delivery that fails or is cancelled sets its event as well; those behind it go on, and Slack sends the failed one again, later.

A message is noted as seen at the very end. If it could not be kept (`NotKept`) all steps are made again when Slack repeats it. What is
noted is a shortcut that saves reading files twice, and is lost in a restart; that a message counts once is the intake's promise.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import attrs
import trio

from pegasus.access import GROUP, MENTIONED, PairingRequired
from pegasus.channels.account_ids import MessageIds
from pegasus.channels.call_pacing import try_for
from pegasus.channels.series import (
    FILE,
    FORWARD,
    MOST_FILES,
    SPLIT,
    SeriesGatherer,
    SeriesPart,
    join_texts,
    note_left_out,
)
from pegasus.channels.service_adapter import ServiceAdapter
from pegasus.channels.service_contract import NotKept, RateLimited, ServiceDown
from pegasus.channels.slack.api import SlackApi, SlackRefused
from pegasus.channels.slack.markup import (
    ADDRESS_LIKE,
    find_mentions,
    holds_words_of_others,
    read_mrkdwn,
    strip_mention,
)
from pegasus.channels.slack.names import SlackNames
from pegasus.channels.slack.reading import (
    TYPE,
    AssistantThread,
    SlackClick,
    SlackCommand,
    SlackFileInfo,
    SlackIdentity,
    SlackMessage,
    read_payload,
    read_thread,
)
from pegasus.channels.slack.socket_mode import Delivery
from pegasus.conversation import sanitize_name
from pegasus.intake import is_attachment_label
from pegasus.messages import RELAYED, ChannelInfo, InboundMessage, Json, Media
from pegasus.observe import get_logger
from pegasus.quotes import THREAD, Quote, quotes_metadata
from pegasus.retry import retry

MOST_SEEN: Final = 2_000
"""Messages that are remembered as handled, so that a repeated one with a file is not read again."""
MOST_FILE_BYTES: Final = 20 * 1024 * 1024
"""Bytes of the files of one message."""
DOWNLOAD_SECONDS: Final = 5.0
"""Seconds for which a file is tried. Then the message is worth more without it than not at all."""
THREAD_TIME: Final = 1.0
"""Seconds that a message waits for the beginning of its thread. Slack wants its acknowledgement within 3."""
MOST_OF_THREAD: Final = 20
"""Messages of a thread that are read when the agent first hears of it, from its root on."""
USER_ID: Final = re.compile(r"[UW][A-Z0-9]{2,39}")
"""Id of a user in place of a name."""
LONGEST_PART: Final = 4_000
"""Characters of a message, behind which an app splits it."""
LEAST_SPLIT: Final = 3_800
"""Characters of a message that may have been split: an app looks for a blank before the limit."""
FILE_NOTE: Final = "(attached: {name}, {mime}, {size:,} bytes; it could not be read: {reason})"
"""Line of the text in place of a file that could not be read."""

_log = get_logger("slack")


class SlackIncoming:
    """Hands what Slack delivers to the agent.

    The result of `enter` may be run as a task or awaited in place. Cancelled, its delivery may not be on disk,
    and those behind it go on.
    """

    def __init__(
        self,
        adapter: ServiceAdapter,
        api: SlackApi,
        names: SlackNames,
        click: Callable[[SlackClick], Awaitable[None]],
    ) -> None:
        """click: handles a button."""
        self._adapter = adapter
        self._api = api
        self._names = names
        self._click = click
        self.ids = MessageIds(adapter.log, adapter.context.clock)
        """Puts the app and its workspace into the ids of messages."""
        self.series = SeriesGatherer(adapter.log, SlackMessage, self._part_of, join_parts, self._deliver_series)
        """Gathers messages that belong together."""
        self.identity: SlackIdentity | None = None
        """The app; None until Slack has said who it is, and then nothing is taken."""
        self._ends: dict[str, trio.Event] = {}
        """By conversation, the end of the last delivery about it that is under way."""
        self._seen: dict[tuple[str, str], None] = {}
        """Conversation and id of messages that were handled, oldest first."""

    def enter(self, delivery: Delivery) -> Callable[[], Awaitable[None]]:
        """Take a place behind what was delivered before about the same conversation; return what handles the delivery.

        The result must be awaited. It returns when the message is on disk or will never be taken, and raises NotKept.
        """
        key = delivery.conversation
        end = trio.Event()
        before, self._ends[key] = self._ends.get(key), end
        return partial(self._handle_in_order, delivery, before, end)

    async def _handle_in_order(self, delivery: Delivery, before: trio.Event | None, end: trio.Event) -> None:
        try:
            # A slow file of one message holds up the messages behind it in the conversation, and nothing else.
            if before is not None:
                await before.wait()
            await self._handle(delivery)
        finally:
            end.set()
            # Nobody has come behind it: the conversation is forgotten, so that only those under way take
            # memory.
            if self._ends.get(delivery.conversation) is end:
                del self._ends[delivery.conversation]

    async def _handle(self, delivery: Delivery) -> None:
        """Do what a delivery asks for. What is none of the four kinds is acknowledged by returning."""
        if self.identity is None:
            raise NotKept("Slack has not said yet who we are")
        match read_payload(delivery.kind, delivery.payload, self.identity):
            case SlackMessage() as message:
                await self._take_message(message, self.identity)
            case SlackCommand() as command:
                await self._obey(command)
            case SlackClick() as click:
                # Noted before it is carried out: a click that is delivered again after a failure must not
                # decide twice.
                if (click.channel, click.id) not in self._seen:
                    self._note((click.channel, click.id))
                    await self._click(click)
            case AssistantThread(user, channel, thread):
                # A stranger's thread is not remembered; it would be a fact on disk for anybody who opens the
                # view.
                if await self._adapter.refusal_of(ChannelInfo(TYPE, channel, user), {GROUP: False}) is None:
                    await self._adapter.log.set_fact(assistant_key(channel, thread), True)

    # ---------------------------------------------------------------- messages

    async def _take_message(self, message: SlackMessage, identity: SlackIdentity) -> None:
        """Take a message; return when it is on disk or will never be taken. Raises NotKept."""
        seen = message.channel, message.id
        if seen in self._seen:
            return
        if not await self.series.take(message, partial(self._is_for_us, message), self._adapter.background):
            await self._hand_in(message, identity)
        self._note(seen)

    async def _deliver_series(self, message: SlackMessage) -> None:
        """Hand in a series as one message. Slack has forgotten it, so it is tried until it is on disk or will never be taken."""
        while self.identity is None:  # noqa: ASYNC110 the run that is ending has known it, the next one asks for it first
            await trio.sleep(THREAD_TIME)
        await retry(partial(self._hand_in, message, self.identity), NotKept)

    async def _is_for_us(self, message: SlackMessage) -> bool:
        """Return whether a message is for the agent, and its sender may write. Raises NotKept."""
        if not self._is_meant(message) or message.is_bot:
            return False
        return await self._adapter.refusal_of(*self._place_of(message)) is None

    def _part_of(self, message: SlackMessage) -> SeriesPart:
        """Return what decides whether a message is a part of a series."""
        text = strip_mention(message.text, self.identity.user if self.identity else "").strip()
        is_command = text.startswith("/")
        # Several files of one message are one event, so what comes with words and several files is complete.
        is_file = len(message.files) == 1 or (message.files and not text)
        reason = FORWARD if message.quotes and not text else FILE if is_file else ""
        reason = SPLIT if len(text) >= LEAST_SPLIT and not message.files else reason
        return SeriesPart(
            self.ids.of(message.id, message.sent),
            message.channel,
            message.user,
            message.thread_ts,
            "" if message.edited_ts else reason,
            has_text=bool(text),
            is_plain=bool(text) and not (is_command or reason or message.files or message.quotes or message.edited_ts),
            may_begin=not (message.is_bot or is_command or message.edited_ts),
            is_edit=bool(message.edited_ts),
            sent=message.sent,
        )

    def _is_meant(self, message: SlackMessage) -> bool:
        return message.is_direct or message.names_app or self._knows_thread(message)

    def _place_of(self, message: SlackMessage) -> tuple[ChannelInfo, dict[str, Json]]:
        """Return where a message was written and by whom, and the metadata by which it is judged."""
        metadata: dict[str, Json] = {GROUP: not message.is_direct, MENTIONED: self._is_meant(message)}
        return ChannelInfo(TYPE, message.channel, message.user, message.thread_ts), metadata

    async def _hand_in(self, message: SlackMessage, identity: SlackIdentity) -> None:
        """Hand a message to the agent; return when it is on disk or will never be taken. Raises NotKept.

        Whether its sender may write is asked with an empty message first, so that nothing is read or looked up for strangers. A thread
        in which the agent is named is heard from then on.
        """
        channel, metadata = self._place_of(message)
        id = self.ids.of(message.id, message.sent)
        empty = InboundMessage("", channel, id, metadata)
        if not await self._is_let_in(empty, is_bot=message.is_bot) or not self._is_heard(message):
            return
        # From here on the sender may write. Names and files are asked of Slack, which takes time; the place in
        # the order is held meanwhile.
        began, files = await self._read_root(message, identity)
        text, is_typed = await self._read_text(message, identity)
        media, notes = await self._read_files((*message.files, *files))
        metadata = metadata | quotes_metadata(await self._read_quotes((*began, *message.quotes)))
        if notes or not is_typed:  # they name files as whoever made those has called them
            metadata[RELAYED] = True
        whole = InboundMessage("\n".join([text, *notes]).strip(), channel, id, metadata, media)
        [is_kept] = await self._adapter.accept(whole)
        # Counted only now, since a message that could not be kept comes again. Those behind it in the conversation wait for this one.
        self._adapter.note_writer(message.channel, is_bot=message.is_bot)
        # A message outside of threads opens one with its own ts, in which people answer.
        if is_kept and self._is_meant(message) and (not message.is_direct or message.thread_ts is not None):
            await self.remember_thread(message.channel, message.thread_ts or message.ts)

    async def _is_let_in(self, message: InboundMessage, *, is_bot: bool) -> bool:
        """Return whether the sender may write. Somebody unknown gets a code by the intake; the message has no text yet.

        Raises NotKept.
        """
        refusal = await self._adapter.refusal_of(message.channel, message.metadata)
        if isinstance(refusal, PairingRequired) and not is_bot:
            await self._adapter.accept(message)
        return refusal is None

    def _is_heard(self, message: SlackMessage) -> bool:
        """Return whether a message of a bot is heard; one of a person is."""
        if not message.is_bot:
            return True
        return (message.names_app or message.is_direct) and self._adapter.bots.has_room(message.channel)

    def _note(self, seen: tuple[str, str]) -> None:
        """Note something as handled, and forget the oldest.

        After a restart it may be handled a second time, for which the intake has its ids.
        """
        self._seen[seen] = None
        if len(self._seen) > MOST_SEEN:
            del self._seen[next(iter(self._seen))]

    async def _obey(self, command: SlackCommand) -> None:
        """Hand in a slash command: "/pegasus status" is the command /status, and other words are a message."""
        commands = self._adapter.context.commands
        word = command.text.split(maxsplit=1)[0].lower() if command.text else "help"
        text = f"/{command.text or 'help'}" if f"/{word}" in commands else command.text
        channel = ChannelInfo(TYPE, command.channel, command.user)
        metadata: dict[str, Json] = {GROUP: not command.channel.startswith("D"), MENTIONED: True}
        message = InboundMessage("", channel, self.ids.of(f"command/{command.id}"), metadata)
        if await self._is_let_in(message, is_bot=False):
            await self._adapter.accept(InboundMessage(text, channel, message.id, metadata))

    # ---------------------------------------------------------------- threads

    def _knows_thread(self, message: SlackMessage) -> bool:
        """Return whether the agent was named in the thread of a message, or has spoken there."""
        return message.thread_ts is not None and bool(
            self._adapter.log.fact(_thread_key(message.channel, message.thread_ts))
        )

    async def remember_thread(self, channel: str, thread_ts: str) -> None:
        """Hear this thread from now on, over restarts too. Returns when that is on disk."""
        await self._adapter.log.set_fact(_thread_key(channel, thread_ts), True)

    async def _read_root(
        self, message: SlackMessage, identity: SlackIdentity
    ) -> tuple[tuple[Quote, ...], tuple[SlackFileInfo, ...]]:
        """Return how a thread has begun of which the agent has heard nothing so far, and the files of its first message."""
        if message.thread_ts is None or self._knows_thread(message):
            return (), ()
        found: Any = [message.root] if message.root is not None else None
        if found is None:
            page = None
            with trio.move_on_after(THREAD_TIME):
                try:
                    page = await self._api.call(
                        "conversations.replies",
                        channel=message.channel,
                        ts=message.thread_ts,
                        latest=message.ts,
                        limit=MOST_OF_THREAD,
                    )
                except SlackRefused as error:
                    _log.info("the beginning of a thread cannot be read", reason=str(error))
                    gone = error.code in ("thread_not_found", "message_not_found")
                    note = "it was deleted" if gone else f"it cannot be read: {error}"
                    return (Quote(THREAD, "", note=note),), ()
                except (ServiceDown, RateLimited) as error:
                    _log.info("the beginning of a thread cannot be read", reason=str(error))
            if page is None:
                return (Quote(THREAD, "", note="Slack did not deliver it in time"),), ()
            found = page.get("messages")
        return read_thread(found, message.ts, identity)

    # ---------------------------------------------------------------- text and files

    async def _read_quotes(self, quotes: Sequence[Quote]) -> list[Quote]:
        """Return quotes as people see them, with the names of those that their texts and authors are ids of."""
        ids = {quote.author for quote in quotes if USER_ID.fullmatch(quote.author)}
        names = await self._names.names_of(ids.union(*(find_mentions(quote.text) for quote in quotes)))
        return [
            attrs.evolve(
                quote, text=read_mrkdwn(quote.text, names), author=sanitize_name(names.get(quote.author, quote.author))
            )
            for quote in quotes
        ]

    async def _read_text(self, message: SlackMessage, identity: SlackIdentity) -> tuple[str, bool]:
        """Return the text as people see it, without the agent's own mention at its beginning, and whether all of it was typed.

        A command begins the text.
        """
        text = strip_mention(message.text, identity.user)
        # Only mentions without a label need to be looked up.
        names = await self._names.names_of(find_mentions(text) - {identity.user})
        if identity.name:
            names[identity.user] = identity.name
        # Everybody chooses their own name. One that looks like an address must not count as typed by who mentions them.
        is_typed = (
            message.is_typed and not holds_words_of_others(text) and not any(map(ADDRESS_LIKE.search, names.values()))
        )
        text = read_mrkdwn(text, names)
        return f"(edited) {text}" if message.edited_ts else text, is_typed

    async def _read_files(self, files: tuple[SlackFileInfo, ...]) -> tuple[tuple[Media, ...], list[str]]:
        """Return the files that could be read, and a line for each of the others."""
        media: list[Media] = []
        notes: list[str] = []
        room = MOST_FILE_BYTES
        for file in files:
            # Names and types are written by strangers and stand in a line of the prompt.
            name = file.name if is_attachment_label(file.name) else "file"
            mime = file.mime if is_attachment_label(file.mime) else "application/octet-stream"
            try:
                data = await self._download(file, room)
            except (SlackRefused, ServiceDown, RateLimited) as error:
                notes.append(FILE_NOTE.format(name=name, mime=mime, size=file.size, reason=error))
            else:
                room -= len(data)
                media.append(Media(name, mime, b64encode(data).decode(), file.is_voice))
        return tuple(media), notes

    async def _download(self, file: SlackFileInfo, room: int) -> bytes:
        """Return the content of a file."""
        if not file.url or file.size > room:
            raise SlackRefused("files", "too_large" if file.url else "not_on_slack")
        download = partial(self._api.download, file.url, room)
        return await try_for(DOWNLOAD_SECONDS, download, self._adapter.context.random)


def join_parts(parts: Sequence[SlackMessage]) -> SlackMessage:
    """Return the parts of a series as one message, which has the id of the first."""
    text = join_texts((part.text for part in parts), lambda text: len(text) >= LONGEST_PART)
    files = [file for part in parts for file in part.files]
    if len(files) > MOST_FILES:
        text = note_left_out(text, len(files) - MOST_FILES)
    return attrs.evolve(
        parts[0],
        text=text,
        files=tuple(files[:MOST_FILES]),
        quotes=tuple(dict.fromkeys(quote for part in parts for quote in part.quotes)),
        names_app=any(part.names_app for part in parts),
        is_typed=all(part.is_typed for part in parts if part.text) and len(files) <= MOST_FILES,
    )


def _thread_key(channel: str, thread_ts: str) -> str:
    return f"thread/{channel}/{thread_ts}"


def assistant_key(channel: str, thread_ts: str) -> str:
    """Return the key of the fact that a thread belongs to the assistant view, where there is a typing sign."""
    return f"assistant/{channel}/{thread_ts}"
