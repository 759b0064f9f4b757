"""`Messenger`: a bridge but for the calls of the service.

A subclass says how messages come and how replies are sent:

    class Pigeons(Messenger):
        type = "pigeon"
        most_characters = 200

        async def listen(self, cursor):
            async for letter in loft.letters(after=cursor):
                yield Incoming(letter.text, letter.sender, id=letter.number, cursor=letter.number)

        async def send(self, reply):
            await loft.fly(reply.channel_id, reply.text, once=reply.key)

    Pigeons().run()

Order of effects, which the delivery class follows from:

* Inward, a message is handed over until the agent has it on disk. Then its cursor is written to the state, and then `listen` goes on,
  so code behind the `yield` may tell the service. A crash before that brings the same message again, whose id the agent recognises.
* Outward, a part of a reply is sent, and then that is written to the state. After the last part the reply is acknowledged. So after a
  crash at most one part of each conversation is sent again, with the same key. A service that recognises keys makes that
  exactly once. With `delivery` at-most-once the reply is written to the state as handled before it is sent, and no part is sent a
  second time, even if the service was not reached.
* Replies of a conversation are sent one after the other. Those of different ones are sent at the same time, so a `send` that fails or
  hangs holds up its own conversation alone.
* An error of `listen` or `send` is logged and tried again after a growing pause. `Undeliverable` says that it would never succeed.
"""

from __future__ import annotations

import logging
import os
import random
import sys
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import ClassVar, Final

import anyio
import attrs
from anyio.abc import TaskGroup

from pegasus.bridge.connection import FIRST_PAUSE, LONGEST_PAUSE, Bridge, BridgeRefused, files_of, reply_id
from pegasus.bridge.state import BridgeState
from pegasus.markdown import split_markdown
from pegasus.messages import Metadata, OutboundMessage, ReplyDraft, Typing
from pegasus.retry import Pauses

BUTTONS: Final = (("Approve", "/approve"), ("Deny", "/deny"))
"""Buttons of a question to an owner, with the commands that they mean."""
UNLIMITED: Final = 1 << 60
MOST_CONVERSATIONS: Final = 1000
"""Conversations that replies are sent to at the same time. Others wait for one of them."""

_log = logging.getLogger("pegasus.bridge")


class Undeliverable(Exception):
    """Raise it in `send` when the service will never take this part: the recipient is gone, for example. The next one follows."""


@attrs.frozen
class Incoming:
    """A message that somebody wrote on the service."""

    text: str
    """Text as it was written; of a click on a button, what the button means."""
    channel_id: str
    """Conversation, such as a room."""
    user_id: str | None = None
    """Person who wrote, as the service has checked it; None: the conversation is with one person."""
    id: str | None = None
    """The service's own id of the message. None: nothing protects from a second delivery after a crash."""
    cursor: str = ""
    """Place in the service's stream behind this message, which `listen` is given after a restart; "" leaves it where it is."""
    thread: str | None = None
    """Thread within the conversation."""
    is_group: bool = False
    """Several people read along."""
    is_mentioned: bool = True
    """The agent is meant. Only looked at in a group."""
    files: tuple[tuple[str, str, bytes], ...] = ()
    """Name, MIME type and content of each."""
    metadata: Metadata = attrs.field(factory=dict)
    """Further facts, such as quotes."""


@attrs.frozen
class Outgoing:
    """A part of a reply that the service takes as one message."""

    text: str
    """Markdown, no longer than the service allows; "" if there are only files."""
    channel_id: str
    """Conversation that it goes to."""
    thread: str | None
    """Thread within the conversation."""
    key: str
    """The same whenever this part comes, and different for each other one: for services that recognise repeated calls."""
    files: tuple[tuple[str, str, bytes], ...] = ()
    """Name, MIME type and content of each; with the last part."""
    buttons: tuple[tuple[str, str], ...] = ()
    """Label and meaning of each, with the last part of a question. A click is a message of that meaning, by whoever clicked."""


class Messenger:
    """A bridge for one service. A subclass sets the attributes and implements `listen` and `send`."""

    type: ClassVar[str]
    """Channel type, as `pegasus token add NAME --type TYPE --bridge` was told."""
    delivery: ClassVar[str] = "at-least-once"
    """Class that `python -m pegasus.testing bridge` proves; "at-most-once" sends nothing twice and rather loses it."""
    most_characters: ClassVar[int] = 0
    """Longest text that the service takes as one message, measured by `measure`; 0: no limit."""
    account: str = ""
    """The agent's account at the service, where that numbers messages for each account."""

    # ---------------------------------------------------------------- for the subclass

    def listen(self, cursor: str) -> AsyncGenerator[Incoming | str, None]:
        """Yield what people write behind this place, for ever. "" is the first start. An error begins it anew.

        A str is a cursor alone: the place behind what needs no message, or behind several messages that come together.
        """
        raise NotImplementedError

    async def send(self, reply: Outgoing) -> None:
        """Send a part of a reply; return when the service has it. Raises Undeliverable; any other error is tried again.

        It is called for several conversations at the same time, and for each of them one part after the other.
        """
        raise NotImplementedError

    async def show_typing(self, channel_id: str, is_active: bool) -> None:
        """Show that the agent thinks, where the service can. An error is logged, and that is all."""

    def measure(self, text: str) -> int:
        """Return the length of a text as the service counts it."""
        return len(text)

    # ---------------------------------------------------------------- running

    def run(self) -> None:
        """Run until killed, with PEGASUS_URL, PEGASUS_TOKEN and BRIDGE_STATE of the environment."""
        logging.basicConfig(level=logging.INFO)
        settings = variables(
            "PEGASUS_TOKEN", PEGASUS_URL="ws://127.0.0.1:7717", BRIDGE_STATE=f"{self.type}-bridge.json"
        )
        try:
            state = BridgeState.load(Path(settings["BRIDGE_STATE"]))
            anyio.run(self.serve, settings["PEGASUS_URL"], settings["PEGASUS_TOKEN"], state)
        except (BridgeRefused, ValueError, OSError) as error:
            sys.exit(str(error))
        except KeyboardInterrupt:
            return

    async def serve(self, url: str, token: str, state: BridgeState) -> None:
        """Carry messages both ways until cancelled. Raises BridgeRefused when the gateway does not want this bridge."""
        refused: BridgeRefused | None = None
        async with (
            Bridge(url, token, self.type, account=self.account, last_seqs=state.seqs, delivery=self.delivery) as bridge,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self._hear, bridge, state)
            try:
                await self._speak(bridge, state, tasks)
            except BridgeRefused as error:
                refused = error
            tasks.cancel_scope.cancel()
        if refused is not None:
            raise refused

    # ---------------------------------------------------------------- from the service to the agent

    async def _hear(self, bridge: Bridge, state: BridgeState) -> None:
        pauses = _pauses()
        while True:
            try:
                async with aclosing(self.listen(state.cursor)) as messages:
                    async for message in messages:
                        cursor = message if isinstance(message, str) else message.cursor
                        if isinstance(message, Incoming):
                            await self._hand_over(bridge, message)
                        if cursor:
                            state.move(cursor)
                        pauses.reset()
            except Exception as error:
                _log.warning("%s cannot be heard: %s", self.type, _describe(error))
            await anyio.sleep(pauses.next())

    async def _hand_over(self, bridge: Bridge, message: Incoming) -> None:
        """Return when the agent has the message, or never wants it."""
        metadata = dict(message.metadata)
        if message.is_group:
            metadata |= {"group": True, "mentioned": message.is_mentioned}
        text, files = message.text, message.files
        while True:
            try:
                await bridge.send(
                    text,
                    message.channel_id,
                    user_id=message.user_id,
                    reply_to=message.thread,
                    id=message.id,
                    metadata=metadata,
                    files=files,
                )
            except BridgeRefused as error:
                if bridge.refusal is not None:  # not this message; the next start hands it over
                    raise
                if error.code == "too_large" and files:
                    names = ", ".join(name for name, _, _ in files)
                    text, files = f"{text}\n\n[too large to be carried: {names}]".strip(), ()
                    continue
                _log.warning("%s in %s was not heard: %s", message.user_id, message.channel_id, error)
            return

    # ---------------------------------------------------------------- from the agent to the service

    async def _speak(self, bridge: Bridge, state: BridgeState, tasks: TaskGroup) -> None:
        """Give each conversation that has something to send a task of its own, so that none waits for another."""
        waiting: dict[str, deque[OutboundMessage | Typing]] = {}
        places = anyio.Semaphore(MOST_CONVERSATIONS)
        while True:
            event = await bridge.take_event()
            if isinstance(event, ReplyDraft):
                continue
            room = event.channel.channel_id
            if room not in waiting:
                await places.acquire()
                waiting[room] = deque((event,))
                tasks.start_soon(self._speak_in, room, bridge, state, waiting, places)
                continue
            if isinstance(event, Typing) and waiting[room] and isinstance(waiting[room][-1], Typing):
                waiting[room].pop()  # the newest sign replaces one that waits
            waiting[room].append(event)

    async def _speak_in(
        self,
        room: str,
        bridge: Bridge,
        state: BridgeState,
        waiting: dict[str, deque[OutboundMessage | Typing]],
        places: anyio.Semaphore,
    ) -> None:
        """Send what waits for a conversation, in its order; end when nothing waits."""
        while waiting[room]:
            event = waiting[room].popleft()
            if isinstance(event, OutboundMessage):
                await self._deliver(bridge, event, state)
                continue
            try:
                await self.show_typing(room, event.active)
            except Exception as error:
                _log.info("typing was not shown: %s", _describe(error))
        del waiting[room]
        places.release()

    async def _deliver(self, bridge: Bridge, reply: OutboundMessage, state: BridgeState) -> None:
        """Send the parts of a reply that the service has not taken yet; acknowledge it."""
        room, is_once = reply.channel.channel_id, self.delivery == "at-most-once"
        if is_once:
            state.note_reply(room, reply.seq)
        for number, part in enumerate(self.parts_of(reply)):
            if is_once or number >= state.parts.get(room, 0):
                await self._send_part(part, is_once)
                if not is_once:
                    state.note_part(room, number + 1)
        if not is_once:
            state.note_reply(room, reply.seq)
        await bridge.acknowledge(reply)

    async def _send_part(self, part: Outgoing, is_once: bool) -> None:
        """Send a part until the service has it, or will never have it."""
        pauses = _pauses()
        while True:
            try:
                await self.send(part)
            except Exception as error:
                _log.warning("a reply to %s was not sent: %s", part.channel_id, _describe(error))
                if not is_once and not isinstance(error, Undeliverable):
                    await anyio.sleep(pauses.next())
                    continue
            return

    def parts_of(self, reply: OutboundMessage) -> list[Outgoing]:
        """Return a reply as the service can take it. The same reply has the same parts each time."""
        texts = split_markdown(reply.text, self.most_characters or UNLIMITED, self.measure) or [""]
        approval = reply.metadata.get("approval")
        buttons = tuple((label, f"{command} {approval}") for label, command in BUTTONS) if approval else ()
        channel, last = reply.channel, len(texts) - 1
        return [
            Outgoing(
                text,
                channel.channel_id,
                channel.reply_to,
                f"{reply_id(reply)}-{number}",
                tuple(files_of(reply)) if number == last else (),
                buttons if number == last else (),
            )
            for number, text in enumerate(texts)
        ]


def variables(*required: str, **defaults: str) -> Mapping[str, str]:
    """Return variables of the environment; end the program with a sentence if one without a default is missing."""
    if missing := [name for name in required if not os.environ.get(name)]:
        sys.exit(f"not set: {', '.join(missing)}; the beginning of the program shows how to start it")
    return {name: os.environ[name] for name in required} | {
        name: os.environ.get(name) or default for name, default in defaults.items()
    }


def _pauses() -> Pauses:
    return Pauses(FIRST_PAUSE, LONGEST_PAUSE, random.Random())  # noqa: S311 no secret


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
