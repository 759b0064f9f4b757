"""Stand-ins: a conversation without a gateway, and a terminal without a window."""

from __future__ import annotations

import re
import threading

import pytest
import trio

from pegasus.client import MessageAccepted, MessageRejected, Offline, Online, Refused
from pegasus.messages import ChannelInfo, OutboundMessage, Typing

CHANNEL = ChannelInfo("cli", "main")


class FakeTalk:
    """Looks like a Conversation. `on_send` is called with each text, and its result becomes events."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.urgent: list[str] = []
        self.media: list[tuple] = []
        self.unaccepted_texts: tuple[str, ...] = ()
        self.on_send = None
        self.answers: dict[str, object] = {}
        self.channel = CHANNEL
        self.last_seq = None
        self.called: list[str] = []
        self._seq = 0
        self._events_in, self._events = trio.open_memory_channel(1000)
        self._wanted = trio.Condition()

    @property
    def unaccepted(self) -> int:
        return len(self.unaccepted_texts)

    async def send(self, text: str, *, media=(), is_urgent=False) -> str:
        self.sent.append(text)
        if is_urgent:
            self.urgent.append(text)
        self.media.append(tuple(media))
        self.unaccepted_texts += (text,)
        async with self._wanted:
            self._wanted.notify_all()
        if self.on_send is not None:
            self.on_send(text)
        return f"m-{len(self.sent)}"

    async def discard(self):
        await trio.lowlevel.checkpoint()
        count, self.unaccepted_texts = len(self.unaccepted_texts), ()
        return count

    def is_own(self, id):
        return id.startswith("m-")

    async def call(self, method, params=None, *, timeout=10.0):
        self.called.append(method)
        await trio.lowlevel.checkpoint()
        if method not in self.answers:
            raise Refused("unknown_method", method)
        return self.answers[method]

    async def wait_sent(self, count: int) -> None:
        async with self._wanted:
            while len(self.sent) < count:
                await self._wanted.wait()

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            event = await self._events.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        if isinstance(event, OutboundMessage):
            self.last_seq = event.seq
        if isinstance(event, MessageAccepted | MessageRejected):
            self.unaccepted_texts = self.unaccepted_texts[1:]
        return event

    # ---- what happens

    def tell(self, *events) -> None:
        for event in events:
            self._events_in.send_nowait(event)

    def end(self) -> None:
        self._events_in.close()

    def online(self, agent="Pegasus"):
        self.tell(Online(agent, 0))

    def offline(self, reason="gone", retry_in=1.0):
        self.tell(Offline(reason, retry_in))

    def accept(self):
        self.tell(MessageAccepted(f"m-{len(self.sent)}"))

    def thinking(self, active):
        self.tell(Typing(CHANNEL, active))

    def reply(self, text, **metadata):
        self._seq += 1
        self.tell(OutboundMessage(text, CHANNEL, self._seq, metadata))


@pytest.fixture
def talk():
    return FakeTalk()


# ------------------------------------------------------------------ a terminal

_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b(.)|([\x00-\x1f])|([^\x00-\x1f\x1b]+)")


class Glass:
    """Emulated terminal that carries out the sequences of prompt_toolkit; also a file to write to."""

    encoding = "utf-8"

    def __init__(self, columns: int = 60) -> None:
        self.columns = columns
        self.raw = ""
        self.unknown: set[str] = set()
        self.broken: OSError | None = None
        self._rows = [""]
        self._y = self._x = 0
        self._changed = threading.Condition()

    def write(self, text: str) -> None:
        with self._changed:
            if self.broken is not None:
                raise self.broken
            self.raw += text
            for token in _TOKEN.finditer(text):
                self._obey(*token.groups())
            self._changed.notify_all()

    def flush(self) -> None:
        pass

    @property
    def shown(self) -> str:
        with self._changed:
            return self._shown()

    def _shown(self) -> str:
        return "\n".join(row.rstrip() for row in self._rows).rstrip("\n")

    def wait(self, condition) -> str:
        """Until `condition` (a text to be shown, or a function of what is shown) holds."""
        holds = condition if callable(condition) else lambda shown: condition in shown
        with self._changed:
            assert self._changed.wait_for(lambda: holds(self._shown()), timeout=20), self._shown()
            return self._shown()

    def _obey(self, number, letter, escaped, control, text) -> None:
        if text:
            self._put(text)
        elif control is not None:
            self._control(control)
        elif escaped is not None:
            self.unknown.add("ESC " + escaped)
        else:
            self._sequence(number, letter)

    def _put(self, text) -> None:
        for character in text:
            if self._x == self.columns:
                self._x, self._y = 0, self._y + 1
            self._fill()
            row = self._rows[self._y].ljust(self._x)
            self._rows[self._y] = row[: self._x] + character + row[self._x + 1 :]
            self._x += 1

    def _fill(self) -> None:
        while len(self._rows) <= self._y:
            self._rows.append("")

    def _control(self, character) -> None:
        match character:
            case "\r":
                self._x = 0
            case "\n":
                self._y += 1
                self._fill()
            case "\b":
                self._x = max(0, self._x - 1)
            case _:
                self.unknown.add(repr(character))

    def _sequence(self, number, letter) -> None:
        count = int(number) if number.isdigit() else 1
        match letter:
            case "A":
                self._y = max(0, self._y - count)
            case "B":
                self._y += count
            case "C":
                self._x += count
            case "D":
                self._x = max(0, self._x - count)
            case "J" if number in ("", "0"):
                self._fill()
                self._rows[self._y] = self._rows[self._y][: self._x]
                del self._rows[self._y + 1 :]
            case "K" if number in ("", "0"):
                self._fill()
                self._rows[self._y] = self._rows[self._y][: self._x]
            case "m" | "h" | "l" | "q":
                pass
            case _:
                self.unknown.add(f"CSI {number}{letter}")


@pytest.fixture
def glass():
    return Glass()
