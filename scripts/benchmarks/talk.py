"""A client of the gateway on bare trio-websocket; it acknowledges. The minimal program understands it too."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio_websocket import WebSocketConnection, open_websocket_url

from benchmarks.history import CHANNEL_ID, CHANNEL_TYPE
from benchmarks.processes import BenchError
from benchmarks.workplace import TOKEN

PATIENCE = 60.0
"""Seconds without a reply after which it counts as lost."""


class Talker:
    """One conversation. One task at a time may use it."""

    def __init__(self, connection: WebSocketConnection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._count = 0
        self._seq = 0

    async def turn(self, text: str, on_frame: Callable[[dict[str, Any]], None] = lambda frame: None) -> float:
        """Seconds from the message frame to its reply frame. on_frame: gets every frame. Raises BenchError if none comes."""
        self._count += 1
        message = json.dumps({"type": "message", "id": f"{self._name}-{self._count}", "text": text})
        with trio.move_on_after(PATIENCE):
            began = time.perf_counter()
            await self._connection.send_message(message)
            while True:
                raw = await self._connection.get_message()
                seconds = time.perf_counter() - began
                frame = json.loads(raw)
                on_frame(frame)
                if frame["type"] == "reply":
                    await self._acknowledge(frame, text)
                    return seconds
                if frame["type"] == "error":
                    raise BenchError(f"{self._name}: the gateway answered {frame}")
        raise BenchError(f"{self._name}: no reply to message {self._count} within {PATIENCE:g} s")

    async def _acknowledge(self, frame: dict[str, Any], text: str) -> None:
        if not text.startswith("/") and text not in frame["text"]:
            raise BenchError(f"{self._name}: asked {text!r}, the reply was {frame['text']!r}")
        if frame["seq"] <= self._seq:
            raise BenchError(f"{self._name}: reply {frame['seq']} came after reply {self._seq}")
        self._seq = frame["seq"]
        await self._connection.send_message(json.dumps({"type": "ack", "seq": self._seq}))

    async def reset(self) -> None:
        """Only for the minimal program: its history as it was at first."""
        await self._connection.send_message('{"type":"reset"}')
        self._seq = 0


@asynccontextmanager
async def talker(url: str, *, channel_id: str = CHANNEL_ID, hello: bool = True) -> AsyncIterator[Talker]:
    """hello: whether the server is a Pegasus gateway, which wants that frame and its subprotocol."""
    protocols = ["pegasus.v1"] if hello else None
    async with open_websocket_url(url, subprotocols=protocols, disconnect_timeout=2) as connection:
        if hello:
            await _greet(connection, channel_id)
        yield Talker(connection, channel_id)


async def _greet(connection: WebSocketConnection, channel_id: str) -> None:
    channel = {"type": CHANNEL_TYPE, "channelId": channel_id, "userId": "bench"}
    await connection.send_message(json.dumps({"type": "hello", "token": TOKEN, "channel": channel, "lastSeq": 0}))
    with trio.fail_after(PATIENCE):
        welcome = json.loads(await connection.get_message())
    if welcome["type"] != "welcome":
        raise BenchError(f"the gateway answered hello with {welcome}")
