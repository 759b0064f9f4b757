"""`EditorSession`: one session of an editor, which is a conversation of its own with the agent that runs.

The conversation outlives connections and the daemon (`pegasus.client`): a prompt that was sent before the daemon died is sent again
if it was not accepted, and its reply comes once. The prompt ends when the daemon says that nothing of the conversation waits and
every reply that it names has been shown. It is asked at each sign of an end (the agent stops typing, a reply comes), and every
CHECK_SECONDS, since signs get lost with a connection.

Work in the background goes on after the end of a prompt. What it leads to (replies, tool calls, permission requests) is shown whenever
it comes.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

import attrs
import trio

from pegasus.acp.content import reply_blocks, text_block
from pegasus.acp.editor_tools import EditorTools, offered_tools
from pegasus.acp.link import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, EditorGone, EditorLink, RpcError
from pegasus.acp.permissions import ended_update, fits_options, permission_params, read_outcome
from pegasus.acp.requests import EditorCapabilities
from pegasus.acp.shown_text import Chunk, ShownText
from pegasus.acp.work import EVENT_TYPES, SessionWork
from pegasus.client import (
    ClientError,
    Conversation,
    ConversationEvent,
    EventFrame,
    FindEndpoint,
    MessageAccepted,
    MessageRejected,
    Offline,
    Online,
    open_conversation,
)
from pegasus.formatting import quote
from pegasus.messages import (
    FOLDER,
    IN_REPLY_TO,
    RELAYED,
    ApprovalNotice,
    ChannelInfo,
    FileEdit,
    Json,
    Media,
    OutboundMessage,
    ReplyDraft,
    TaskProgress,
    Typing,
)
from pegasus.retry import Pauses

CHANNEL: Final = "api"
"""Channel type of sessions."""
PREFIX: Final = "acp/"
"""Beginning of the channelId of a session: each is a conversation of its own."""
CHECK_SECONDS: Final = 3.0
"""Seconds between two questions whether the prompt is done, without a sign of it."""
AWAY_SECONDS: Final = 60.0
"""Seconds that the agent may be away, for a restart, before a prompt fails."""
CANCEL_SECONDS: Final = 10.0
"""Seconds after which a cancelled prompt is answered, whatever the agent has said by then."""
CONNECT_SECONDS: Final = 30.0
"""Seconds within which a session must be connected with the agent."""
COMMAND_SECONDS: Final = 30.0
"""Seconds that the answer to a command may take."""
CALL_SECONDS: Final = 10.0
"""Seconds that the daemon may take to answer a call."""
TERMINAL: Final = "terminal"
"""Mode in which commands run in terminals of the editor, and each is asked for."""
WALLS: Final = "walls"
"""Mode in which commands run within the walls of the agent."""
STOP: Final = "/stop all"
"""Command that ends what runs in the conversation, and drops what waits."""


def channel_of(session_id: str) -> ChannelInfo:
    """Return the channel of a session."""
    return ChannelInfo(CHANNEL, PREFIX + session_id)


@attrs.define(eq=False)
class _Turn:
    """A prompt that is not answered yet."""

    id: str = ""
    """Of its message; "" before it is sent."""
    is_accepted: bool = False
    is_cancelled: bool = False
    has_thought: bool = False
    """The agent has begun to think about it, or answered."""
    error: RpcError | None = None
    """Reason why it failed."""
    ended: trio.Event = attrs.field(factory=trio.Event)


class EditorSession:
    """A session. `run` serves it; the other methods are what the editor asks of it."""

    def __init__(
        self,
        id: str,
        folder: str,
        link: EditorLink,
        editor: EditorCapabilities,
        find: FindEndpoint,
        nursery: trio.Nursery,
        last_seq: int | None,
        room: int,
    ) -> None:
        """Take the conversation `id`.

        folder: that tasks work in. nursery: for what runs beside. last_seq: the last reply seen. room: bytes of an editor's answer.
        """
        self.id = id
        self.folder = folder
        self.is_over = False
        """The daemon has refused the conversation for good."""
        self.mode = TERMINAL if editor.terminal else WALLS
        """Place where commands run."""
        self.modes = (TERMINAL, WALLS) if editor.terminal else (WALLS,)
        """Places that can be chosen."""
        self._link = link
        self._editor = editor
        self._find = find
        self._nursery = nursery
        self._last_seq = last_seq
        self._random = Random()  # noqa: S311
        self._conversation: Conversation
        """Made by `run`."""
        self._is_online = trio.Event()
        """Set by the first connection, or when there will be none."""
        self._refusal = ""
        """Reason why there will be none."""
        self._turn: _Turn | None = None
        self._look = trio.Event()
        """Wakes the task that looks whether the prompt is done."""
        self._away_since = math.inf
        """Time at which the connection was lost, on Trio's clock."""
        self._before: int | None = None
        """Number of the last reply before the first connection."""
        self._seen = 0
        """Number of the last reply that the editor was shown."""
        self._text = ShownText(f"{self._random.getrandbits(32):08x}")
        self._shown_id = ""
        """Id of the message that was shown last."""
        self._spoke = False
        """The last update was text of the agent."""
        self._work = SessionWork(channel_of(id).address, folder)
        self._tools = EditorTools(id, link, self.call, self._show_terminal, nursery, room)
        self._last_event: int | None = None
        """Number of the last event that was shown."""
        self._commands: dict[str, trio.MemorySendChannel[str]] = {}
        """Commands of the editor itself whose answers are not shown, by the id of the message."""
        self._asked: dict[str, trio.CancelScope] = {}
        """Permission requests that are open, by the id of the approval."""

    async def run(self) -> None:
        """Talk with the agent until cancelled, or refused for good."""
        metadata = {FOLDER: self.folder}
        try:
            async with (
                open_conversation(
                    self._find, channel_of(self.id), random=self._random, last_seq=self._last_seq, metadata=metadata
                ) as self._conversation,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._watch_turn)
                with suppress(EditorGone):
                    async for event in self._conversation:
                        await self._take(event)
                nursery.cancel_scope.cancel()
        finally:
            self.is_over = True
            self._end_turn(RpcError(INTERNAL_ERROR, self._refusal or "the session was closed"))
            self._is_online.set()

    async def connect(self) -> None:
        """Return when the agent has welcomed the session. Raises RpcError."""
        with trio.move_on_after(CONNECT_SECONDS):
            await self._is_online.wait()
        if self.is_over or not self._is_online.is_set():
            raise RpcError(INTERNAL_ERROR, self._refusal or f"the agent has not answered within {CONNECT_SECONDS:g} s")

    # ---------------------------------------------------------------- prompts

    def begin_prompt(self) -> _Turn:
        """Note that a prompt has come. Raises RpcError if another one is not answered yet."""
        if self.is_over:
            raise RpcError(INTERNAL_ERROR, self._refusal or "the session was closed")
        if self._turn is not None:
            raise RpcError(INVALID_REQUEST, "a prompt of this session is not answered yet; cancel it, or wait")
        self._turn = _Turn()
        self._look.set()
        self._spoke = False
        self._work.begin_plan()
        return self._turn

    async def prompt(
        self,
        turn: _Turn,
        text: str,
        media: Sequence[Media],
        ensure_daemon: Callable[[], Awaitable[None]],
        *,
        is_typed: bool,
    ) -> Json:
        """Say something, and return the reason why the turn is over. Raises RpcError if it was not taken, or the agent is gone.

        is_typed: the person has typed all of it. The name of a file, or the title of a page, may be of others, so that no value in
        a text with one allows a call of a tool.
        """
        metadata: dict[str, Json] = {FOLDER: self.folder, **({} if is_typed else {RELAYED: True})}
        try:
            await ensure_daemon()
            if not turn.is_cancelled:
                turn.id = await self._conversation.send(text, media=media, metadata=metadata)
                await turn.ended.wait()
        except trio.Cancelled:  # by the request's own cancellation, too
            self.cancel()
            raise
        finally:
            self._turn = None
            turn.ended.set()
        if turn.error is not None and not turn.is_cancelled:
            raise turn.error
        return {"stopReason": "cancelled" if turn.is_cancelled else "end_turn"}

    def cancel(self) -> None:
        """End what runs in the session, and answer the prompt if there is one. What was said and done stays."""
        if self._turn is None:
            self._nursery.start_soon(self._stop_tasks)
        elif not self._turn.is_cancelled:
            self._turn.is_cancelled = True
            self._nursery.start_soon(self._stop, self._turn)

    async def close(self) -> None:
        """End what runs in the session, as a cancellation does, within CANCEL_SECONDS."""
        turn = self._turn
        with trio.move_on_after(CANCEL_SECONDS), suppress(RpcError):
            if turn is not None:
                self.cancel()
                await turn.ended.wait()
            else:
                await self.command(STOP)

    async def _stop(self, turn: _Turn) -> None:
        with trio.move_on_after(CANCEL_SECONDS):
            if turn.id and not turn.is_accepted:
                await self._conversation.discard()
            await self._conversation.send(STOP, is_urgent=True)
            await turn.ended.wait()
        turn.ended.set()

    async def _stop_tasks(self) -> None:
        """End what has gone on after the last prompt; the agent says what that was."""
        with trio.move_on_after(CANCEL_SECONDS), suppress(EditorGone):
            try:
                work = await self._under_way()
            except ClientError as error:
                await self.say(f"Nothing was stopped: {error}")
                return
            if self._turn is None and (work["tasks"] or work["waiting"]):  # a prompt that has come since is not meant
                await self._conversation.send(STOP, is_urgent=True)

    def _end_turn(self, error: RpcError | None = None) -> None:
        if self._turn is not None:
            self._turn.error = error
            self._turn.ended.set()

    async def _watch_turn(self) -> None:
        """Ask the daemon whether the prompt is done, at each sign of it and every CHECK_SECONDS."""
        pauses = Pauses(0.02, CHECK_SECONDS)
        while True:
            if self._look.is_set():
                self._look = trio.Event()
                pauses.reset()
            turn = self._turn
            wait = math.inf if turn is None else CHECK_SECONDS
            if turn is not None and not turn.ended.is_set():
                if trio.current_time() - self._away_since > AWAY_SECONDS:
                    where = "it goes on at the agent's next start" if turn.is_accepted else "it may not have arrived"
                    text = f"the agent has been away for {AWAY_SECONDS:g} s; {where}"
                    self._end_turn(RpcError(INTERNAL_ERROR, text))
                elif (turn.is_accepted or turn.is_cancelled) and await self._is_done():
                    self._end_turn()
                elif turn.has_thought:
                    wait = pauses.next()
            with trio.move_on_after(wait):
                await self._look.wait()

    async def _is_done(self) -> bool:
        """Return whether nothing waits in the conversation, and all its replies were shown."""
        if self._conversation.unaccepted:
            return False
        try:
            work = await self._under_way()
        except ClientError:
            return False
        return not work["waiting"] and max(self._seen, self._before or 0) >= work["seq"]

    async def _under_way(self) -> Mapping[str, Any]:
        """Return tasks and messages of the conversation that are not done. Raises ClientError."""
        channel = self._conversation.channel
        return await self.call("conversation", {"type": channel.type, "channelId": channel.channel_id})

    # ---------------------------------------------------------------- what else the editor asks

    async def call(self, method: str, params: Mapping[str, Json] | None = None) -> Mapping[str, Any]:
        """Return the daemon's answer to a call. Raises ClientError."""
        answer = await self._conversation.call(method, params, timeout=CALL_SECONDS)
        return answer if isinstance(answer, Mapping) else {}

    async def command(self, text: str) -> str:
        """Return the agent's answer to a command, which is not shown. Raises RpcError."""
        answers, answer = trio.open_memory_channel[str](1)
        id = await self._conversation.send(text)
        self._commands[id] = answers
        try:
            with trio.move_on_after(COMMAND_SECONDS):
                return await answer.receive()
            raise RpcError(INTERNAL_ERROR, f"the agent has not answered {text} within {COMMAND_SECONDS:g} s")
        finally:
            del self._commands[id]

    async def update(self, update: Mapping[str, Json]) -> None:
        """Send an update of the session to the editor. Raises EditorGone."""
        await self._link.notify("session/update", {"sessionId": self.id, "update": update})
        self._spoke = update["sessionUpdate"] == "agent_message_chunk"

    async def _show_terminal(self, call: str, terminal: str) -> None:
        await self.update(self._work.in_terminal(call, terminal))

    async def say(self, text: str) -> None:
        """Show a text that the agent has not said. Raises EditorGone."""
        await self._show(self._text.reply(text))

    # ---------------------------------------------------------------- what the agent does

    async def _take(self, event: ConversationEvent) -> None:
        """Show what comes of the conversation. Raises EditorGone."""
        match event:
            case OutboundMessage():
                await self._take_reply(event)
            case ReplyDraft(cut=True):
                await self._show(self._text.draft(event.text))
                self._text.end()
                if self._turn is not None:  # a person has ended the answer at another door
                    self._turn.is_cancelled = True
            case ReplyDraft(text=text) if text:
                await self._show(self._text.draft(text))
            case Typing(active=active):
                self._sign(has_thought=not active)
            case TaskProgress():
                for update in self._work.progress(event):
                    await self.update(update)
            case FileEdit():
                await self.update(self._work.edit(event))
            case EventFrame(event=what) if what.get("type") in ("call", "cancel"):
                self._tools.take(what)
            case EventFrame(n=n, event=what):
                self._last_event = n
                for update in self._work.event(what):
                    await self.update(update)
            case ApprovalNotice():
                self._take_approval(event)
            case MessageAccepted(id):
                if self._turn is not None and self._turn.id == id:
                    self._turn.is_accepted = True
            case MessageRejected(id, _, message):
                if self._turn is not None and self._turn.id == id:
                    self._end_turn(RpcError(INVALID_PARAMS, message.removeprefix("message.")))
            case Online():
                self._take_online(event)
            case Offline():
                self._tools.cancel_all()
                self._away_since = min(self._away_since, trio.current_time())
                if event.retry_in is None:
                    self._refusal = event.reason

    def _take_online(self, event: Online) -> None:
        """Take up what a new connection begins with."""
        self._away_since = math.inf
        self._before = event.seq if self._before is None else self._before
        self._nursery.start_soon(self._subscribe)
        self._sign()

    async def _subscribe(self) -> None:
        """Offer the editor's tools, and ask for the events of tasks, those that were missed too, as far as the daemon keeps them."""
        after: dict[str, Json] = {} if self._last_event is None else {"after": self._last_event}
        with suppress(ClientError):
            await self._offer()
            await self.call("events.subscribe", {"types": list(EVENT_TYPES), **after})
        self._is_online.set()

    async def _offer(self) -> None:
        """Offer what the editor can carry out. Raises ClientError."""
        tools = offered_tools(self._editor, runs_commands=self.mode == TERMINAL)
        if tools or self.mode != self.modes[0]:
            await self.call("tools.offer", {"tools": tools})

    async def set_mode(self, mode: str) -> None:
        """Choose where commands run. Raises RpcError."""
        if mode not in self.modes:
            raise RpcError(INVALID_PARAMS, f"modeId: found {quote(mode, 40)}, allowed: {', '.join(self.modes)}")
        before, self.mode = self.mode, mode
        try:
            await self._offer()
        except ClientError as error:
            self.mode = before
            raise RpcError(INTERNAL_ERROR, str(error)) from None

    async def _take_reply(self, reply: OutboundMessage) -> None:
        """Show a reply, unless it answers the editor itself or a permission request asks the same."""
        id = str(reply.metadata.get(IN_REPLY_TO, ""))
        if id in self._commands:
            with suppress(trio.WouldBlock):
                self._commands[id].send_nowait(reply.text)
        elif reply.metadata.get("approval") not in self._asked:
            await self._show(self._text.reply(reply.text))
            for block in reply_blocks(reply):
                await self.update({"sessionUpdate": "agent_message_chunk", "content": block})
        self._seen = max(self._seen, reply.seq)
        self._sign(has_thought=self._turn is not None and self._turn.id == id)

    async def _show(self, chunk: Chunk | None) -> None:
        """Send a part of a message. Editors that join all text get a blank line between two messages."""
        if chunk is None:
            return
        id, text = chunk
        is_new = self._spoke and id != self._shown_id
        self._shown_id = id
        content = text_block(f"\n\n{text}" if is_new else text)
        await self.update({"sessionUpdate": "agent_message_chunk", "messageId": id, "content": content})

    def _sign(self, *, has_thought: bool = False) -> None:
        """Look soon whether the prompt is done."""
        if self._turn is not None:
            self._turn.has_thought |= has_thought and self._turn.is_accepted
        self._look.set()

    # ---------------------------------------------------------------- permissions

    def _take_approval(self, notice: ApprovalNotice) -> None:
        """Ask the editor about calls of this session, and withdraw what was answered elsewhere."""
        if notice.channel is None or notice.channel.address != self._conversation.channel.address:
            return
        scope = self._asked.get(notice.id)
        if notice.state != "open":
            if scope is not None:
                scope.cancel()
                self._nursery.start_soon(self._show_end, notice)
        elif scope is None and fits_options(notice):
            self._asked[notice.id] = trio.CancelScope()
            self._nursery.start_soon(self._ask, notice)

    async def _ask(self, notice: ApprovalNotice) -> None:
        """Ask the editor, and carry out its answer. Without one the approval stays open."""
        with suppress(EditorGone, RpcError), self._asked[notice.id]:
            answer = await self._link.request(
                "session/request_permission", permission_params(notice, self.id, self.folder)
            )
            decision = read_outcome(answer, notice)
            if decision is None:
                return  # it stays in `_asked`, so that a new connection does not ask again
            with suppress(
                ClientError
            ):  # another place was faster, or the connection is lost and the question comes again
                await self.call("approvals.answer", decision)
                return
        self._asked.pop(notice.id, None)

    async def _show_end(self, notice: ApprovalNotice) -> None:
        self._asked.pop(notice.id, None)
        with suppress(EditorGone):
            await self.update(ended_update(notice))
