"""`ServiceAdapter`: the base class of the adapters of chat services (Telegram, Slack, SMS).

`Adapter` delivers one reply after the other for the whole channel type. A service has thousands of conversations, some of which are
slow, full or blocked, so here each conversation has a queue and a task of its own (`ChatSender`):

* **Order within a conversation.** A reply is sent when the service has taken all of the one before it, however often that was tried.
* **Nobody waits for another conversation**, neither for its rate limit nor for its refusal. Calls of all conversations share
  some places (`call_pacing`).
* **Nothing lost, hardly anything twice.** What the service has taken is on disk (`DeliveryLog`) before the next piece is sent, and a
  reply is acknowledged when all its pieces are. A crash repeats at most the piece whose acknowledgement was not recorded; what each
  service does about that one is in its `send`. All conversations share the writes.
* **Bounded memory.** A queue holds some replies (MOST_QUEUED). The others wait in the journal's outbox.

What a service says instead of yes has one of four kinds (`service_contract`), each handled here:

    ServiceDown          tried again for ever, with growing pauses (`call_pacing`)
    RateLimited          tried again after the time that the service names
    ReplyRefused         this recipient never gets it: logged, reported to the agent, and the next reply follows
    CredentialsRefused   the channel is parked: nothing more is tried until the settings are read again

A parked adapter stays alive as an actor and sends nothing: its replies wait in the outbox. `state` says so, for `status` and the tree.

A subclass implements `send`, `pieces` and `listen`, and may override `show_typing` and `show_draft`::

    class Sms(ServiceAdapter):
        def pieces(self, reply):
            return split(reply.text, 1600)

        async def send(self, reply, piece, number):
            return await self.api.send(reply.channel.channel_id, piece)     # the service's message id

        async def listen(self):
            self.is_up()
            await trio.sleep_forever()
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, Final

import attrs
import trio

from actors import Inbox, Ref, Signal
from pegasus.access import PAIRING, AccessDenied
from pegasus.channels.adapter import Adapter, AdapterMessage, CatchUp, DeliverReply, ReplyRefused
from pegasus.channels.call_pacing import OutagePauses, ServiceCalls
from pegasus.channels.delivery_log import UNCONFIRMED, DeliveryLog
from pegasus.channels.message_intake import BotLoopLimit, MessageIntake
from pegasus.channels.service_contract import (
    ChannelState,
    CredentialsRefused,
    NotKept,
    RateLimited,
    ServiceContext,
    ServiceDown,
    WebhookAnswer,
    WebhookRequest,
)
from pegasus.formatting import first_cause
from pegasus.messages import ApprovalNotice, ChannelInfo, InboundMessage, Metadata, OutboundMessage, ReplyDraft, Typing
from pegasus.observe import get_logger
from pegasus.retry import retry
from pegasus.storage import JournalMessage, Lease, StorageError, Unacknowledged, UnacknowledgedChannels

MOST_QUEUED: Final = 50
"""Replies of one conversation that are held in memory. The others wait in the journal's outbox, and are read when there is room."""
SIGN_TIMEOUT: Final = 10.0
"""Seconds that showing a draft or a typing sign may take. It is not tried again."""
LONGEST_TYPING: Final = 900.0
"""Seconds after which a typing sign is not repeated any more, whether its end was announced or not."""
DRAFT_PAUSE: Final = 1.0
"""Seconds between two states of a draft."""
REASONING_LENGTH: Final = 400
"""Characters of the model's reasoning that a draft shows."""
NOT_CONFIRMED: Final = (
    "it was sent twice and the service never confirmed it, so it may be there already; do not repeat it unasked"
)
"""Reason for the agent, of a reply with a piece that is `UNCONFIRMED`."""
MOST_REPORTS: Final = 3
"""Replies refused in a row in a conversation that are reported to the agent."""
BOT_MESSAGES: Final = 5
"""Messages of other bots in a row that are heard in a conversation before a person has to write there."""

_log = get_logger("channels")


def draft_text(draft: ReplyDraft) -> str:
    """Return the Markdown of a draft: its text, and before that begins the end of the model's reasoning, as a quotation."""
    if draft.text or not draft.reasoning:
        return draft.text
    return f"> 💭 {' '.join(draft.reasoning[-REASONING_LENGTH:].split())}"


@attrs.define(eq=False, repr=False)
class WebhookWork:
    """Work of a webhook, which goes on when its request was answered: `await adapter.start_work(work).is_kept_within(2.5)`."""

    _is_kept: bool = False
    """The message is on disk, or will never be taken: the service need not send it again."""
    _end: trio.Event = attrs.field(factory=trio.Event)

    async def run(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do the work. NotKept is logged, and the service sends its message again."""
        try:
            await work()
            self._is_kept = True
        except NotKept as error:
            _log.warning("a message was not taken", reason=str(error))
        finally:
            self._end.set()

    async def is_kept_within(self, seconds: float) -> bool:
        """Wait until the work has ended, so long at most; return whether the service may forget its message."""
        with trio.move_on_after(seconds):
            await self._end.wait()
        return self._is_kept


class ServiceAdapter(Adapter):
    """The adapter of one service. `run` is the actor; the object outlives its restarts."""

    has_buttons: bool = False
    """Messages can have buttons, so that owners are asked here who may write. A conversation with an owner has the owner's id then."""
    typing_pause: float = 0.0
    """Seconds after which a typing sign must be shown again; 0 = the service has none."""

    def __init__(self, type: str, context: ServiceContext) -> None:
        super().__init__(type)
        self.context = context
        self.log = DeliveryLog(type)
        """Record of what the service has taken."""
        self._lease: Lease | None = None
        """Lease by which this node serves the channel; None where there is one node, or while another one does."""
        self.state = ChannelState(type, "connecting")
        """For `status`, the tree and the log."""
        self.pacing = ServiceCalls(context.random, self._reach_changed)
        """Makes the calls to the service, which are tried again through outages."""
        self._pauses = OutagePauses(context.random)
        """Pauses of `listen`."""
        self._intake = MessageIntake(context)
        self._refusals = BotLoopLimit(MOST_REPORTS)
        """Replies refused, by conversation."""
        self.bots = BotLoopLimit(BOT_MESSAGES)
        """Messages of other bots, by conversation. Two bots that answer each other would never end."""
        self.background: trio.Nursery | None = None
        """Runs the work of webhooks; None while the actor does not run, and then nothing is taken."""

    # ---------------------------------------------------------------- for a subclass

    def connection(self) -> AbstractAsyncContextManager[object]:
        """Return what is open while the actor runs, such as a pool of connections; by default nothing."""
        return nullcontext()

    def pieces(self, reply: OutboundMessage) -> Sequence[Any]:
        """Return what is sent for a reply, each piece by one call. It must be the same each time; () = nothing is sent."""
        raise NotImplementedError

    async def send(self, reply: OutboundMessage, piece: Any, number: int) -> str:
        """Send a piece and return the service's message id. number: 0 for the first one.

        UNCONFIRMED as the id: the piece is not sent again, though the service never said that it has taken it.

        Raises ServiceDown, RateLimited, ReplyRefused and CredentialsRefused. Cancelled, the piece may have been sent.
        """
        raise NotImplementedError

    async def listen(self) -> None:
        """Connect, and hear what people write, until cancelled. Call `is_up` when it works.

        Raises ServiceDown and RateLimited, after which it is called again, and CredentialsRefused.
        """
        self.is_up()
        await trio.sleep_forever()

    def draft_pause(self, channel_id: str) -> float:
        """Return the seconds between two states of a draft in a conversation, at least DRAFT_PAUSE."""
        return DRAFT_PAUSE

    async def receive(self, request: WebhookRequest) -> WebhookAnswer:
        """Answer a request of the service; see `WebhookReceiver`. 404 by default. It is called by the HTTP server."""
        return WebhookAnswer(404)

    async def show_approval(self, notice: ApprovalNotice) -> None:
        """Show that an approval was answered, or has expired, on the message that asked for it; by default nothing."""

    async def refused(self, reply: OutboundMessage, reason: str) -> None:
        """Hear that the service refuses a reply for good, before the agent is told; by default nothing."""

    # ---------------------------------------------------------------- for the subclass to call

    def is_up(self, name: str = "") -> None:
        """Note that the service can be heard. name: the agent's name there."""
        self._pauses.reset()
        self._set_state(attrs.evolve(self.state, state="up", reason="", name=name or self.state.name))

    def note_owner(self, lease: Lease | None) -> None:
        """Note the lease by which this node serves the channel; None = another node does."""
        self._lease = lease
        self._set_state(ChannelState(self.type, "connecting" if lease is not None else "elsewhere"))

    async def accept(self, *messages: InboundMessage) -> list[bool]:
        """Give messages to the agent; see `MessageIntake.accept`. Raises NotKept."""
        return await self._intake.accept(*messages)

    async def refusal_of(self, channel: ChannelInfo, metadata: Metadata) -> AccessDenied | None:
        """Return why a person may not write, None if they may; see `MessageIntake.refusal_of`. Raises NotKept."""
        return await self._intake.refusal_of(channel, metadata)

    def note_writer(self, channel_id: str, *, is_bot: bool) -> None:
        """Count a message of another bot. After one of a person, bots are heard again."""
        (self.bots.count if is_bot else self.bots.reset)(channel_id)

    def start_work(self, work: Callable[[], Awaitable[object]]) -> WebhookWork:
        """Begin the work of a webhook, which is ended only by the end of the actor's run: services close their request before.

        Raises NotKept while the actor does not run.
        """
        if self.background is None:
            raise NotKept("the channel does not run")
        started = WebhookWork()
        self.background.start_soon(started.run, work)
        return started

    # ---------------------------------------------------------------- the actor

    async def _serve(self, inbox: Inbox[AdapterMessage], journal: Ref[JournalMessage]) -> None:
        try:
            await self._work(inbox, journal)
        except* CredentialsRefused as group:
            self._set_state(attrs.evolve(self.state, state="parked", reason=str(first_cause(group))))
        async for _ in inbox:  # only a parked adapter comes here with a mailbox that is open
            pass

    async def _work(self, inbox: Inbox[AdapterMessage], journal: Ref[JournalMessage]) -> None:
        """Listen and deliver until stopped."""
        self.pacing.begin()
        await self.log.load(journal, self._lease)
        async with self.connection(), trio.open_nursery() as nursery:
            self.background = nursery
            try:
                nursery.start_soon(self.log.write_all)
                nursery.start_soon(self._listen)
                await self._deliver(inbox, journal, nursery)
                await self.pacing.finish()
            finally:
                # Webhooks are refused first, then the work of earlier ones is ended, and connections are closed last.
                self.background = None
            nursery.cancel_scope.cancel()

    async def _deliver(self, inbox: Inbox[AdapterMessage], journal: Ref[JournalMessage], nursery: trio.Nursery) -> None:
        """Pass messages on to the conversations, until stopped."""
        chats: dict[str, ChatSender] = {}
        """Conversations that have something to send or to show, by channelId."""

        async def serve(chat: ChatSender) -> None:
            """Let a conversation work. A crash ends the adapter, whose next run reads what was not acknowledged."""
            await chat.serve()
            del chats[chat.channel_id]  # no checkpoint in between: what comes next begins a new task

        def wake(channel_id: str) -> ChatSender:
            """Return a conversation, whose task is started if none runs."""
            if channel_id not in chats:
                chats[channel_id] = ChatSender(channel_id, self, journal)
                nursery.start_soon(serve, chats[channel_id])
            return chats[channel_id]

        async def catch_up() -> None:
            """Wake every conversation that has replies in the journal."""
            ask = partial(journal.ask, UnacknowledgedChannels, self.type)
            for channel_id in await retry(ask, StorageError):
                wake(channel_id).catch_up()

        await catch_up()
        async for message in inbox:
            match message:
                case DeliverReply(reply):
                    wake(reply.channel.channel_id).add(reply)
                case CatchUp():
                    await catch_up()
                case Typing() if not (message.active and self.typing_pause):
                    if chat := chats.get(message.channel.channel_id):
                        chat.end_typing()
                case Typing() | ReplyDraft():
                    wake(message.channel.channel_id).show(message)
                case ApprovalNotice():
                    nursery.start_soon(self._show_answer, message)
                case _:  # states of tasks are not shown in chats
                    pass

    async def _listen(self) -> None:
        while True:
            try:
                await self.listen()
            except ServiceDown as error:
                self._reach_changed(str(error))
                await trio.sleep(self._pauses.next())
            except RateLimited as limit:
                await trio.sleep(limit.seconds)

    async def _show_answer(self, notice: ApprovalNotice) -> None:
        with trio.move_on_after(SIGN_TIMEOUT):
            try:
                await self.show_approval(notice)
            except (ServiceDown, ReplyRefused, RateLimited) as error:
                _log.debug("the answer to an approval was not shown", channel=self.type, reason=str(error))

    # ---------------------------------------------------------------- one reply

    async def _load(self, reply: OutboundMessage, journal: Ref[JournalMessage]) -> OutboundMessage:
        """Return a reply with the content of its files. While the disk cannot be read, waits."""

        def log(error: Exception, seconds: float) -> None:
            to = str(reply.channel.address)
            _log.error("the files of a reply cannot be read", to=to, error=str(error), seconds=seconds)

        return await retry(partial(super()._load, reply, journal), StorageError, log)

    async def confirm(self, reply: OutboundMessage, journal: Ref[JournalMessage]) -> None:
        """Acknowledge a delivered reply when that is on record."""
        self._refusals.reset(reply.channel.channel_id)
        self.log.acknowledge(reply)

    async def _refuse(self, reply: OutboundMessage, reason: str, journal: Ref[JournalMessage]) -> None:
        """Log a reply that the service refuses, and report it unless there were too many; acknowledge it."""
        _log.warning("a reply is refused", to=str(reply.channel.address), seq=reply.seq, reason=reason)
        await self.refused(reply, reason)
        if self._is_worth_a_report(reply):
            await self._report(reply, reason, journal)
        else:
            self.log.acknowledge(reply)

    async def _report(self, reply: OutboundMessage, reason: str, journal: Ref[JournalMessage]) -> None:
        await self.log.written()  # since the report acknowledges the replies before it, too
        await retry(partial(super()._refuse, reply, reason, journal), StorageError)

    def _is_worth_a_report(self, reply: OutboundMessage) -> bool:
        """Return whether a refusal is reported to the agent.

        A model may answer the report in the same conversation, which is refused again: after MOST_REPORTS in a row an hour of silence
        ends that. A question to an owner about somebody unknown is no matter of the agent's.
        """
        chat = reply.channel.channel_id
        is_early = self._refusals.has_room(chat)
        self._refusals.count(chat)
        return is_early and PAIRING not in reply.metadata

    async def deliver(self, reply: OutboundMessage) -> None:
        """Send the pieces of a reply that the service has not taken yet, one after the other.

        Raises ReplyRefused, also when everything was sent and the service has not confirmed a piece, so that the agent hears of it.
        """
        if not self.log.is_delivered(reply):
            pieces = self.pieces(reply)
            for number in range(len(self.log.ids_of(reply)), len(pieces)):
                await self.pacing.deliver(reply.channel.channel_id, partial(self._send_piece, reply, pieces, number))
        if UNCONFIRMED in self.log.ids_of(reply):
            raise ReplyRefused(NOT_CONFIRMED)

    async def _send_piece(self, reply: OutboundMessage, pieces: Sequence[Any], number: int) -> None:
        """Send a piece, and record that the service has taken it."""
        id = await self.send(reply, pieces[number], number)
        await self.log.add_piece(reply, part=number, of=len(pieces), id=id)

    # ---------------------------------------------------------------- state

    def _reach_changed(self, reason: str) -> None:
        if self.state.state != "parked":
            self._set_state(attrs.evolve(self.state, state="down" if reason else "up", reason=reason))

    def _set_state(self, state: ChannelState) -> None:
        """Take over a state, and log what an operator should notice."""
        before, self.state = self.state, state
        if before.state == state.state:
            return
        if state.state == "parked":
            _log.error("the channel is parked", channel=self.type, reason=state.reason)
        elif state.state == "down":
            _log.warning("the service is out of reach", channel=self.type, reason=state.reason)
        elif state.state == "up":
            _log.info("the service is connected", channel=self.type, name=state.name)


@attrs.define(eq=False, repr=False)
class ChatSender:
    """The way out to one conversation: `serve` works on what `add`, `show` and `catch_up` have noted.

    It sends replies first, in the order of their numbers, then shows the newest draft, then the typing sign. A draft or a sign that
    fails is left out. `serve` returns when there is nothing to do, so a service with thousands of quiet conversations costs nothing.

    A reply that does not follow the last one is a sign that the conversation is behind (a full mailbox, a restart). Then the journal
    is read instead, which has all replies in their order, so the queue never has a gap.
    """

    channel_id: str
    """The conversation, as the service calls it."""
    _adapter: ServiceAdapter
    """Delivers and shows."""
    _journal: Ref[JournalMessage]
    """Has the replies that are not queued here."""
    _waiting: deque[OutboundMessage] = attrs.field(factory=deque)
    """Replies to be sent, in the order of seq."""
    _is_behind: bool = False
    """More replies wait in the journal."""
    _draft: ReplyDraft | None = None
    """The newest draft that was not shown yet."""
    _next_draft: float = 0.0
    """Trio's clock from which on a draft may be shown."""
    _typing: Typing | None = None
    """The sign that is shown while the agent thinks."""
    _typing_since: float = 0.0
    """Trio's clock at which the agent has begun to think."""
    _typing_due: float = 0.0
    """Trio's clock at which the sign is to be shown again."""
    _woken: Signal = attrs.field(factory=Signal)
    """Given when there is something new."""

    # ---------------------------------------------------------------- what there is to do

    def add(self, reply: OutboundMessage) -> None:
        """Put a reply into the queue, unless it is there or was delivered. One that does not fit is read from the journal later."""
        last = self._waiting[-1].seq if self._waiting else self._adapter.last_delivered(self.channel_id)
        if reply.seq <= last:
            return
        self._draft = None  # it was a state of this reply
        if self._is_behind or reply.seq != last + 1 or len(self._waiting) >= MOST_QUEUED:
            self._is_behind = True
        else:
            self._waiting.append(reply)
        self._woken.notify()

    def catch_up(self) -> None:
        """Read from the journal what was not delivered."""
        self._is_behind = True
        self._woken.notify()

    def show(self, sign: Typing | ReplyDraft) -> None:
        """Show a draft or a typing sign when there is nothing to send. The newest draft replaces the others."""
        if isinstance(sign, ReplyDraft):
            # A message here looks whole, whatever is said of it; and what delays an answer is no message.
            self._draft = attrs.evolve(sign, text="" if sign.cut else sign.text, activity="")
        else:
            self._typing = sign
            self._typing_since = self._typing_due = trio.current_time()
        self._woken.notify()

    def end_typing(self) -> None:
        """Show the typing sign no more."""
        self._typing = None

    # ---------------------------------------------------------------- doing it

    async def serve(self) -> None:
        """Send and show what there is; return when there is nothing. Raises what `take` raises."""
        while True:
            seen = self._woken.count
            if self._waiting:
                # The reply stays first in the queue while it is sent: `add` takes the next number from the last
                # one there.
                await self._adapter.take(self._waiting[0], self._journal)
                self._waiting.popleft()
            elif self._is_behind:
                await self._read_waiting()
            elif (due := self._sign_due()) is not None:
                due = max(due, self._adapter.pacing.allowed_at(self.channel_id))
                if due <= trio.current_time():
                    await self._show_next()
                else:
                    await self._wait_until(due, seen)
            elif self._next_draft <= trio.current_time():  # the pause between drafts outlives the draft
                return
            else:
                await self._wait_until(self._next_draft, seen)

    async def _wait_until(self, due: float, seen: int) -> None:
        """Wait until this time, or until there is something new. seen: the count of `_woken` at the last look."""
        with trio.move_on_at(due):
            await self._woken.wait(seen)

    async def _read_waiting(self) -> None:
        """Read the next replies from the journal. What was delivered before is acknowledged by that."""
        # Asking the journal for what comes behind a number acknowledges that number. So what it stands for must
        # be on disk first.
        await self._adapter.log.written()
        self._is_behind = False
        delivered = self._adapter.last_delivered(self.channel_id)
        after = ((self.channel_id, delivered),) if delivered else ()
        ask = partial(self._journal.ask, Unacknowledged, self._adapter.type, self.channel_id, after, MOST_QUEUED)
        missed = await retry(ask, StorageError, self._log_unreadable)
        self._waiting.extend(reply for reply in missed if reply.seq > delivered)
        self._is_behind |= len(missed) >= MOST_QUEUED

    def _log_unreadable(self, error: Exception, seconds: float) -> None:
        _log.error("replies cannot be read", channel=self._adapter.type, error=str(error), seconds=seconds)

    def _sign_due(self) -> float | None:
        """Return Trio's clock at which a draft or the typing sign is to be shown, None if there is neither."""
        due = [self._typing_due] if self._typing is not None else []
        if self._draft is not None:
            # A withdrawal does not wait for the pause: the draft shows something that will not be said.
            due.append(0.0 if self._draft.is_withdrawal else self._next_draft)
        return min(due) if due else None

    async def _show_next(self) -> None:
        """Show a draft or the typing sign, once."""
        try:
            with trio.move_on_after(SIGN_TIMEOUT):
                await self._show(self._take_sign())
        except RateLimited as limit:
            self._adapter.pacing.obey(self.channel_id, limit)
        except ReplyRefused as error:
            self._typing = None
            _log.debug("a sign was refused", channel=self._adapter.type, reason=str(error))
        except ServiceDown as error:
            _log.debug("a sign was not shown", channel=self._adapter.type, reason=str(error))

    def _take_sign(self) -> Typing | ReplyDraft | None:
        """Return what is to be shown now, a draft before the typing sign; None if that has been shown for too long."""
        now = trio.current_time()
        draft, self._draft = self._draft, None
        if draft is not None:
            self._next_draft = now + self._adapter.draft_pause(self.channel_id)
            return draft
        self._typing_due = now + self._adapter.typing_pause
        if now - self._typing_since > LONGEST_TYPING:
            self._typing = None
        return self._typing

    async def _show(self, sign: Typing | ReplyDraft | None) -> None:
        if isinstance(sign, ReplyDraft):
            await self._adapter.show_draft(sign)
        elif sign is not None:
            await self._adapter.show_typing(sign)
