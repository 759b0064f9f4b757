"""The iterator that `Agent.process_message` returns: a message is accepted, its turn is shown while it runs, and the end comes once.

The message is on disk when the first step of the iteration returns or waits; nothing that happens then loses it. The turn runs in a
task of the agent, and the iterator only looks at it, so a reader that is slow slows nothing down and is shown the newest draft.

**Leaving the iteration stops the turn**: by `break`, an exception, `aclose`, a cancel scope, or by dropping the iterator. That is what
hanging up means to the agent everywhere else, too. Tasks that the turn has begun go on. What it had said and the reader has not
been given comes through `Agent.messages`. After the final message there is nothing left to stop.

The steps of a turn, and what leaving does at each:

    nothing sent           before the first step; leaving does nothing
    being accepted         the desk holds back replies to this chat, since one may come before the number of the message is known.
                           Leaving withdraws the message by its id, whether or not the journal has taken it already
    running                `_follow` waits for the end of the item; drafts and replies wake the reader. Leaving withdraws the message
    final message given    asking for the next one, or `aclose`, acknowledges the replies. A crash before that gives them again,
                           through `Agent.messages`: the new process has no turn that they belong to

An iterator that is dropped without `aclose` is cleaned up by its finaliser. Python may call that in any thread, so all it does is to
ask the event loop to do the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from types import TracebackType

import attrs
import trio

from actors import ActorError
from pegasus.access import AccessDenied
from pegasus.channels import FollowedTurn, GrowingText
from pegasus.embedding.bus import InboundChatMessage, MessageKind, OutboundChatMessage, TurnUsage
from pegasus.embedding.desk import AgentClosed, ReplyDesk
from pegasus.intake import JOURNAL_TIMEOUT, Intake, InvalidMessage, TooManyMessages
from pegasus.main_agent import MainAgents
from pegasus.messages import InboundMessage, OutboundMessage
from pegasus.retry import retry
from pegasus.settings import LiveValue
from pegasus.storage import Accepted, Overloaded, StorageError


class MessageRefused(Exception):
    """A message was not accepted; nothing of it was kept. str() is for a person.

    code: "invalid" (a field is wrong), "denied" (this person may not write), "too_large" (its files) or "overloaded" (send it again
    later).

    Example::

        try:
            async for message in agent.process_message(message): …
        except MessageRefused as error:
            if error.code == "overloaded":
                …                           # later, with the same id
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@attrs.frozen(eq=False, repr=False)
class TurnServices:
    """Actors and objects that all turns of an agent share."""

    desk: ReplyDesk
    intake: Intake
    main_agent: MainAgents
    nursery: trio.Nursery
    usage: Callable[[int], TurnUsage | None]
    """Returns that of a queue item."""
    max_bytes: LiveValue[int]
    """The setting `media.max_bytes`."""

    async def accept(self, message: InboundMessage, turn: FollowedTurn) -> None:
        """Have a message accepted, and follow its turn. Raises MessageRefused, AgentClosed. Cancelled: it may be accepted."""
        # Before the message is sent: its first reply may come before its number is known here.
        self.desk.follow_turn(turn)
        try:
            turn.item = await self.submit(message)
        finally:
            if not turn.item:
                self.desk.leave_turn(turn)
        # A task of the agent and not of the reader, whose scope may be cancelled at any moment.
        self.nursery.start_soon(self._follow, turn)

    async def submit(self, message: InboundMessage) -> int:
        """Return the number of a message in the queue, which is on disk then. Raises MessageRefused, AgentClosed."""
        size = sum(media.size for media in message.media)
        if size > (max_bytes := self.max_bytes.now):
            raise MessageRefused("too_large", f"media: found {size} bytes, allowed: {max_bytes} (media.max_bytes)")
        try:
            answer = await self._send(message)
        except InvalidMessage as error:
            raise MessageRefused("invalid", str(error)) from None
        except AccessDenied as error:
            raise MessageRefused("denied", str(error)) from None
        except TooManyMessages as error:
            raise MessageRefused("overloaded", str(error)) from None
        except StorageError as error:
            raise MessageRefused("overloaded", f"the disk refuses to keep it: {error}") from None
        if isinstance(answer, Overloaded):
            raise MessageRefused("overloaded", answer.reason)
        return answer.n

    async def _send(self, message: InboundMessage) -> Accepted | Overloaded:
        """Return the answer of the journal. One that is being restarted is asked again: the id makes it the same message."""
        deadline, attempts = trio.current_time() + JOURNAL_TIMEOUT, count()

        async def attempt() -> Accepted | Overloaded:
            # After the first attempt the journal may have the message, so a second one of the same id is no second
            # message for the limits.
            try:
                return await (await self.intake.send(message, is_repeated=next(attempts) > 0)).get(JOURNAL_TIMEOUT)
            except ActorError as error:
                if self.desk.is_closed:
                    raise AgentClosed("the agent was stopped") from None
                if trio.current_time() > deadline:
                    raise MessageRefused("overloaded", f"the agent is being restarted: {error}") from None
                raise

        return await retry(attempt, ActorError)

    async def _follow(self, turn: FollowedTurn) -> None:
        """Wait for the end of a turn, and gather its replies."""
        with suppress(AgentClosed):  # the reader is told by `close`
            await self.desk.follower.gather(turn)
            turn.end()

    def stop(self, turn: FollowedTurn) -> None:
        """End the work on a message, unless the agent stops anyway: then it goes on at the next start. Never waits."""
        self.desk.leave_turn(turn)
        if not turn.is_done and not self.desk.is_closed:
            self.main_agent.withdraw(turn.address, turn.message_id)


class TurnStream:
    """The messages of one turn: drafts while it runs, then the final message. Iterate over it once, in one task.

    Example::

        async for message in agent.process_message(InboundMessage("cli", "me", "main", "Hello")):
            print(message.delta, end="")

    As a context manager (`async with agent.process_message(…) as messages`) it stops the turn at the end of the block for certain,
    and a final message whose handling raised comes again through `Agent.messages`.
    """

    def __init__(self, services: TurnServices, message: InboundChatMessage) -> None:
        """Make the stream of a message, which is sent at the first step of the iteration."""
        core = message.to_core()
        self._services = services
        self._message = core
        self._turn = FollowedTurn(core.channel.address, core.id)
        self._text = GrowingText()
        self._read: set[int] = set()
        """Numbers of the replies that are part of that text."""
        self._content, self._reasoning = "", ""
        """Text and reasoning that were given out last."""
        self._final: OutboundChatMessage | None = None
        """The final message, once it was given out."""
        self._is_begun = False
        """The message was sent, or is being sent."""
        self._is_over = False
        """The turn was left, or its final message was acknowledged."""

    # ---------------------------------------------------------------- iterating

    def __aiter__(self) -> TurnStream:
        return self

    async def __anext__(self) -> OutboundChatMessage:
        """Return the next message. Raises MessageRefused and AgentClosed. Cancelled: the turn is stopped."""
        # A reader that is cancelled already must not send the message.
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._final is not None:
            await self.aclose()
        if self._is_over:
            raise StopAsyncIteration
        try:
            if not self._is_begun:
                self._is_begun = True
                await self._services.accept(self._message, self._turn)
            return await self._next()
        # Every way out but a message leaves the turn: a cancel, a refusal, the end of the agent.
        except BaseException:
            self._leave()
            raise

    async def _next(self) -> OutboundChatMessage:
        """Wait for the next message of a turn that was accepted. Raises what has ended the turn early.

        States between two looks are skipped: the reader gets the newest.
        """
        turn = self._turn
        while True:
            if turn.is_done:
                self._final = self._make_final()
                return self._final
            if turn.error is not None:
                raise turn.error
            message = self._make_progress()
            if message is not None:
                return message
            await turn.changed.wait()

    def _make_progress(self) -> OutboundChatMessage | None:
        """Return what is new of the turn so far; None if nothing is."""
        draft = self._turn.draft
        written = draft.text if draft is not None else ""
        content = "\n\n".join(filter(None, [self._joined(), written]))
        # The text comes before the reasoning, so that a reader of both does not fall behind with what matters.
        if content and content != self._content:
            self._content = content
            return self._message_of(MessageKind.PROGRESS, content, self._new_text() + self._text.draft(written))
        if draft is not None and draft.reasoning and draft.reasoning != self._reasoning:
            self._reasoning = draft.reasoning
            return self._message_of(MessageKind.REASONING, draft.reasoning)
        return None

    def _make_final(self) -> OutboundChatMessage:
        """Return all replies of the turn as one message: texts joined by empty lines, files together, the rest of the last reply."""
        turn = self._turn
        replies = tuple(turn.replies[seq] for seq in sorted(turn.replies))
        content = self._joined()
        last = replies[-1] if replies else None
        return OutboundChatMessage(
            turn.address.type,
            turn.address.channel_id,
            content,
            MessageKind.FINAL,
            self._message.channel.user_id or "",
            last.channel.reply_to if last else self._message.channel.reply_to,
            tuple(media for reply in replies for media in reply.media),
            last.metadata if last else {},
            last.seq if last else 0,
            tuple(file for reply in replies for file in reply.files),
            self._new_text(),
            self._services.usage(turn.item),
            replies,
        )

    def _new_text(self) -> str:
        """Return what is new of the replies, for a reader who appends."""
        replies, new = self._turn.replies, sorted(self._turn.replies.keys() - self._read)
        self._read.update(new)
        return "".join(self._text.reply(replies[seq].text) for seq in new if replies[seq].text)

    def _joined(self) -> str:
        """Return the texts of the replies so far."""
        replies = self._turn.replies
        return "\n\n".join(replies[seq].text for seq in sorted(replies) if replies[seq].text)

    def _message_of(self, kind: MessageKind, content: str, delta: str = "") -> OutboundChatMessage:
        """Return a message about the turn that is no reply."""
        channel = self._message.channel
        return OutboundChatMessage(
            channel.type,
            channel.channel_id,
            content,
            kind,
            channel.user_id or "",
            channel.reply_to,
            delta=delta,
        )

    # ---------------------------------------------------------------- leaving

    async def aclose(self) -> None:
        """Leave the iteration. A turn that is not over is stopped; a final message that was given out counts as taken."""
        final = self._final
        try:
            if final is not None and not self._is_over:
                with suppress(AgentClosed):  # it comes again
                    await self._services.desk.acknowledge(final.replies)
            else:
                await trio.lowlevel.checkpoint()
        finally:
            self._leave()

    def _leave(self) -> None:
        """Leave the turn, once. Never waits, so that it can run while an exception passes."""
        if not self._is_over:
            self._is_over = True
            if self._is_begun:
                self._services.stop(self._turn)

    async def __aenter__(self) -> TurnStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, GeneratorExit):
            self._leave()
        else:
            await self.aclose()

    def __del__(self) -> None:
        """Do what `aclose` does, later: this may run in any thread and at any moment."""
        if getattr(self, "_is_begun", False) and not self._is_over:
            replies = self._final.replies if self._final is not None else ()
            with suppress(trio.RunFinishedError):
                self._services.desk.token.run_sync_soon(partial(_let_go, self._services, self._turn, replies))


def _let_go(services: TurnServices, turn: FollowedTurn, replies: tuple[OutboundMessage, ...]) -> None:
    """Stop a turn whose iterator was dropped, or note that its final message was taken."""

    async def acknowledge() -> None:
        """Acknowledge the replies of the final message, and forget the turn."""
        with suppress(AgentClosed, ActorError):
            await services.desk.acknowledge(replies)
        services.desk.leave_turn(turn)

    if replies and not services.desk.is_closed:
        services.nursery.start_soon(acknowledge)
    else:
        services.stop(turn)


class MessageStream:
    """Everything the agent says that no turn waits for, for ever: `async for message in agent.messages()`.

    Asking for the next message acknowledges the one before. So one whose handling raised, or during which the process was killed,
    comes again. It ends when the agent does.

    Example::

        async for message in agent.messages():
            await deliver(message.channel, message.chat_id, message.content)
    """

    def __init__(self, desk: ReplyDesk, wants: Callable[[str], bool]) -> None:
        """wants: returns whether replies to a type of channel are for this reader."""
        self._desk = desk
        self._wants = wants
        self._handled: OutboundMessage | None = None
        """The message that was given out last and is not acknowledged."""

    def __aiter__(self) -> MessageStream:
        return self

    async def __anext__(self) -> OutboundChatMessage:
        """Return the next message. Cancelled, nothing is lost."""
        try:
            if self._handled is not None:
                await self._desk.acknowledge([self._handled])
                self._handled = None
            self._handled = await self._desk.next_message(self._wants)
        except AgentClosed:
            raise StopAsyncIteration from None
        return OutboundChatMessage.from_core(self._handled)

    async def aclose(self) -> None:
        """Leave the iteration. The message that was given out last was not dealt with: it comes again."""
        await trio.lowlevel.checkpoint()
        self._give_back()

    def _give_back(self) -> None:
        """Have the message that was given out last given out again."""
        if self._handled is not None:
            self._desk.give_back(self._handled)
            self._handled = None

    def __del__(self) -> None:
        handled = getattr(self, "_handled", None)
        if handled is not None:
            with suppress(trio.RunFinishedError):
                self._desk.token.run_sync_soon(self._desk.give_back, handled)
