"""Drafts: the text of a reply, shown while the model is still writing it.

A model speaks by calling `reply`, whose arguments are a JSON object that arrives in pieces. `DraftWriter` listens to the pieces of one
answer and reads the object before it is complete. In direct speech it shows the answer's text itself. Everything else that a model
writes, the monologue above all, is never shown.

A draft is shown only where the reply would go, and only when that is certain:

* In the conversation of the message that is being answered, as soon as `channelId` is known to be its id. Without a `channelId` the
  reply goes there as well, which is known when the object is complete.
* In the same conversation before any recipient is named, if nobody but an owner reads there (`is_private`), or if the agent knows no
  other conversation. The text may come before the recipient, and what is meant for another person may be seen by an owner.
* In another conversation, if that is known to the agent and was named with its type, and the policy need not be asked about a reply
  there. The type may come behind the text and change the recipient, so without it nothing is shown: a text that is meant for one
  person must not appear at another one.

What was shown is withdrawn unless a reply follows it, so no draft outlives the work on it. `DraftBoard` knows what is shown. The
work on an answer ends with `DraftBoard.settle`, any other end with `DraftBoard.withdraw`. Only what a person ends stays visible in
their conversation, marked as cut off (`DraftBoard.cut`); the session has it by then.

Each draft is the whole text so far. Reading and sending it costs time in proportion to the text, so it is done at most every
DRAFT_EVERY seconds, whatever the number of pieces. Several replies of one answer to the same conversation are one draft, in
paragraphs, because they are delivered together when the answer is complete. If the first one were delivered earlier, a crash could
leave a reply without an entry in the session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs
import trio

from actors import ActorError
from pegasus.main_agent.replies import REPLY
from pegasus.main_agent.toolset import may_become_silence
from pegasus.messages import Address, ChannelInfo, ReplyDraft, escape_field
from pegasus.models import AnotherAttempt, CallBegun, CallPiece, ReasoningPiece, StreamPiece, TextPiece

DRAFT_EVERY: Final = 0.25
"""Seconds between two drafts of a conversation. The first one is shown after LOOK_EVERY."""
LOOK_EVERY: Final = 0.02
"""Seconds from a piece of an answer to the look at what can be shown of it: the delay that a reader would notice is far above it."""
LONGEST_DRAFT: Final = 32_768
"""Characters of a draft. A longer reply is shown up to here until it is complete. Even if all are escaped, a frame takes them."""
LONGEST_REASONING: Final = 2_000
"""Characters of the reasoning that are shown, the newest ones. All of it may be a hundred times as long, and nobody reads it again."""

KnownAddresses: TypeAlias = Callable[[], Awaitable[Collection[Address]]]
"""Returns the conversations that the agent knows."""


# ------------------------------------------------------------------ reading the arguments of `reply`


@attrs.frozen
class PartialReply:
    """The arguments of a call of `reply`, as far as they have arrived. An argument is None while it is unknown or cut off.

    Example: `parse_partial_reply('{"text": "Hel')` is `PartialReply(text="Hel")`.
    """

    text: str = ""
    """The text so far; a prefix of the whole one."""
    channel_id: str | None = None
    """Id of the conversation that the reply goes to."""
    channel_type: str | None = None
    """Type of its channel."""
    reply_to: str | None = None
    """Thread that the reply belongs to."""
    is_whole: bool = False
    """The arguments are complete."""


def parse_partial_reply(json: str) -> PartialReply | None:
    """Return the arguments that stand in the beginning of a JSON object; None if it is no beginning of one.

    The last value may be cut off anywhere. Half an escape or half a character at its end is left out.

    >>> parse_partial_reply('{"channelId": "main", "text": "Hel')
    PartialReply(text='Hel', channel_id='main', channel_type=None, reply_to=None, is_whole=False)
    """
    content = json.encode("utf-8", "replace")
    fields = _parse(content, "trailing-strings")
    if not isinstance(fields, dict):
        return None
    is_whole = json.rstrip().endswith("}") and _parse(content, "off") is not None
    cut_off = None if is_whole else next(reversed(fields), None)

    def value(name: str) -> str | None:
        """Return an argument that is complete."""
        found = fields.get(name)
        return found if isinstance(found, str) and found and name != cut_off else None

    text = fields.get("text")
    text = text if isinstance(text, str) else ""
    return PartialReply(text, value("channelId"), value("channelType"), value("replyTo"), is_whole)


def _parse(content: bytes, partial_mode: Literal["off", "trailing-strings"]) -> object:
    """Return the value that the JSON stands for; None if it is none, or, with "off", if it is not complete."""
    from jiter import from_json

    try:
        return from_json(content, partial_mode=partial_mode)
    except ValueError:
        return None


def draft_channel(reply: PartialReply, source: ChannelInfo, known: Collection[Address]) -> ChannelInfo | None:
    """Return the conversation in which a draft may be shown; None while its recipient is uncertain.

    source: of the message that is being answered. known: the conversations that the agent knows. The rules are at the top of this
    file; they show less than `pegasus.storage.directory` would deliver.
    """
    given_id, given_type = reply.channel_id, reply.channel_type
    shown = source.address.escaped
    is_source_type = given_type is None or escape_field(given_type) == shown.type
    if given_id is None:
        return source if reply.is_whole and is_source_type else None
    if is_source_type and escape_field(given_id) == shown.channel_id:
        return attrs.evolve(source, reply_to=_thread(reply, source))
    if given_type is not None and Address(given_type, given_id) in known:
        return ChannelInfo(given_type, given_id, reply_to=reply.reply_to)
    return None


def _thread(reply: PartialReply, source: ChannelInfo) -> str | None:
    """Return the thread of a reply to the source. The model has seen the source's own thread in its escaped form."""
    if reply.reply_to is not None and source.reply_to and reply.reply_to == escape_field(source.reply_to):
        return source.reply_to
    return reply.reply_to


# ------------------------------------------------------------------ what people are shown


@attrs.define(eq=False, repr=False)
class DraftBoard:
    """The drafts that people see at this moment. It outlives the answers of the model, so none of them is forgotten.

    Example:
        board = DraftBoard(show)
        board.put({channel: ReplyDraft(channel, "Once")})
        board.put({channel: ReplyDraft(channel, "Once upon")})
        board.settle({channel.address})   # the reply follows
        board.withdraw()                  # nothing is shown: sends nothing
    """

    _show: Callable[[ReplyDraft], None]
    """Sends a draft; never waits, never fails."""
    _shown: dict[ChannelInfo, ReplyDraft] = attrs.field(factory=dict, init=False)
    """The last draft of each conversation and thread that has one."""

    def put(self, drafts: Mapping[ChannelInfo, ReplyDraft]) -> bool:
        """Show these drafts and no others. Return whether anything has changed for anybody."""
        gone = [channel for channel in self._shown if channel not in drafts]
        news = [draft for channel, draft in drafts.items() if self._shown.get(channel) != draft]
        self._shown = dict(drafts)
        for channel in gone:  # before the new ones, which may be for another thread of the same conversation
            self._show(ReplyDraft(channel, ""))
        for draft in news:
            self._show(draft)
        return bool(gone or news)

    def settle(self, replied: Collection[Address]) -> None:
        """Withdraw all drafts but those of conversations that a reply is on its way to: the reply ends them."""
        self._shown = {channel: draft for channel, draft in self._shown.items() if channel.address not in replied}
        self.withdraw()

    def withdraw(self) -> None:
        """Withdraw all drafts that are shown, in every conversation."""
        self.put({})

    def text_at(self, address: Address) -> str:
        """Return the text that is shown in a conversation, "" if none is."""
        texts = (draft.text for channel, draft in self._shown.items() if channel.address == address)
        return "\n\n".join(text for text in texts if text)

    def cut(self, address: Address) -> None:
        """Leave what is shown in a conversation as it is, marked as cut off. Drafts elsewhere are withdrawn."""
        for channel, draft in list(self._shown.items()):
            if channel.address == address and draft.text:
                del self._shown[channel]
                self._show(ReplyDraft(channel, draft.text, cut=True))
        self.withdraw()


@attrs.define(eq=False, repr=False)
class DraftWriter:
    """Listener of one model call (`ModelRequest.on_pieces`). It puts drafts of the replies on a board, from the first piece on.

    Example:
        writer = DraftWriter(board, known, nursery, message.channel, is_direct=True)
        await model.generate(ModelRequest(…, on_pieces=writer))
        nursery.cancel_scope.cancel()

    Reasoning and calls that the model writes as text do not come as TextPiece: `pegasus.models` has taken them out.
    """

    _board: DraftBoard
    """Shows the drafts, and withdraws them."""
    _ask_known: KnownAddresses
    """Asked only when a reply names another conversation than the source."""
    _nursery: trio.Nursery
    """The drafts are shown in there, until it is cancelled."""
    _source: ChannelInfo
    """Channel of the message that is being answered."""
    _is_direct: bool = False
    """The answer's text is the reply, unless it contains calls."""
    _shows_from: int = 0
    """Characters of this text from which on it is shown."""
    _max_replies: int = 200
    """Calls of `reply` that may still be carried out; later ones are refused."""
    _is_private: bool = False
    """Nobody but an owner reads the source's conversation."""
    _shows_reasoning: bool = False
    """The setting `agent.show_reasoning`."""
    _may_leave: Callable[[ChannelInfo], bool] = lambda channel: True
    """Returns whether a reply may go to this other conversation without anybody being asked."""
    _is_running: bool = attrs.field(default=False, init=False)
    """True when the task that shows drafts has been started, which the first piece does."""
    _known: Collection[Address] | None = attrs.field(default=None, init=False)
    """The answer of `_ask_known`, once it was asked."""
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when a piece has come; replaced by each look."""
    _text: list[str] = attrs.field(factory=list, init=False)
    """Pieces of the text (direct speech only)."""
    _reasoning: str = attrs.field(default="", init=False)
    """Newest part of the reasoning, if it is shown."""
    _activity: str = attrs.field(default="", init=False)
    """Words for people about a delay of the answer."""
    _has_calls: bool = attrs.field(default=False, init=False)
    """True if the answer calls a tool, so that its text is not the reply."""
    _replies: dict[int, _StreamedReply] = attrs.field(factory=dict, init=False)
    """Calls of `reply` by their number, as many as may be carried out."""

    def __call__(self, pieces: Sequence[StreamPiece | None]) -> None:
        """Take pieces of the answer, and show what changes by them. None: all before is void, because the model is asked again."""
        changes = [self._take(piece) for piece in pieces]
        if not any(changes):
            return
        self._news.set()
        if not self._is_running:
            self._is_running = True
            self._nursery.start_soon(self._run)

    def _take(self, piece: StreamPiece | None) -> bool:
        """Add a piece to the text, the reasoning or a reply. Return whether it may change what is shown."""
        match piece:
            case AnotherAttempt(activity):
                self._activity = activity
            case TextPiece(text):
                if not self._is_direct:
                    return False
                self._text.append(text)
            case CallPiece(number, json):
                if number not in self._replies:
                    return False
                self._replies[number].add(json)
            case CallBegun(number, name):
                self._has_calls = True
                if name == REPLY.name and len(self._replies) < self._max_replies:
                    self._replies[number] = _StreamedReply()
            case ReasoningPiece(text):
                if not self._shows_reasoning:
                    return False
                self._reasoning = (self._reasoning + text)[-LONGEST_REASONING:]
            case None:
                self._text.clear()
                self._replies.clear()
                self._reasoning, self._activity, self._has_calls = "", "", False
        return True

    async def _run(self) -> None:
        """Show drafts until cancelled: the first one LOOK_EVERY seconds after a piece, then one every DRAFT_EVERY seconds at most."""
        while True:
            # An answer that is complete by then needs no draft, and its reply does not wait for one to be made.
            await trio.sleep(LOOK_EVERY)
            self._news = trio.Event()
            drafts = await self._drafts()
            has_changed = self._board.put(drafts)
            if has_changed or drafts:
                await trio.sleep(DRAFT_EVERY - LOOK_EVERY)
            await self._news.wait()

    async def _drafts(self) -> dict[ChannelInfo, ReplyDraft]:
        """Return the drafts of the answer so far."""
        texts: dict[ChannelInfo, str] = {}
        if self._is_direct and not self._has_calls:
            text = "".join(self._text).strip()
            if len(text) >= self._shows_from and not may_become_silence(text):
                texts[self._source] = text
        for streamed in list(self._replies.values()):
            reply = streamed.read()
            channel = await self._channel_of(reply) if reply.text.strip() else None
            if channel is not None:
                texts[channel] = f"{texts[channel]}\n\n{reply.text}" if channel in texts else reply.text
        drafts = {channel: ReplyDraft(channel, text[:LONGEST_DRAFT]) for channel, text in texts.items()}
        if self._reasoning or self._activity:
            here = self._source
            channel = next((channel for channel in drafts if channel.address == here.address), here)
            draft = drafts.get(channel, ReplyDraft(channel, ""))
            drafts[channel] = attrs.evolve(draft, reasoning=self._reasoning, activity=self._activity)
        return drafts

    async def _channel_of(self, reply: PartialReply) -> ChannelInfo | None:
        """Return the conversation in which a reply may be shown. The agent's own are looked up if it is not the source's."""
        channel = draft_channel(reply, self._source, self._known or ())
        is_unnamed = reply.channel_id is None and reply.channel_type is None
        if is_unnamed and self._is_private:
            return self._source
        if channel is None and self._known is None and (is_unnamed or reply.channel_type is not None):
            try:
                self._known = await self._ask_known()
            except ActorError:  # the journal ends, and the agent with it
                self._known = ()
            channel = draft_channel(reply, self._source, self._known)
        if is_unnamed and self._known is not None and set(self._known) <= {self._source.address}:
            return self._source
        is_shown = channel is None or channel.address == self._source.address or self._may_leave(channel)
        return channel if is_shown else None


@attrs.define(eq=False, repr=False)
class _StreamedReply:
    """A call of `reply` whose arguments are arriving."""

    _pieces: list[str] = attrs.field(factory=list)
    """The JSON of the arguments so far, in pieces that are joined when they are read."""
    _read: PartialReply = attrs.field(factory=PartialReply)
    """The arguments as they were read last."""
    _has_news: bool = False
    """True if a piece has come since the arguments were read."""

    def add(self, json: str) -> None:
        """Take a piece of the arguments."""
        self._pieces.append(json)
        self._has_news = True

    def read(self) -> PartialReply:
        """Return the arguments so far. What cannot be read changes nothing: it is repaired, or refused, when it is complete."""
        if self._has_news:
            self._has_news = False
            self._pieces = ["".join(self._pieces)]
            self._read = parse_partial_reply(self._pieces[0]) or self._read
        return self._read
