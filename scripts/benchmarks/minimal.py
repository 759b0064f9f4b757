"""The least program with a turn's duties, to weigh Pegasus's CPU against; no program that keeps them does with much less.

A WebSocket message in; its line appended and on disk; the whole history to the provider by httpx, streamed, each message
serialised once in its life; the reply appended and on disk; the reply frame out. No supervision, no repair, no inbox, no outbox, no
retries, no second channel, and its appends block the event loop, which spares it a thread.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import httpx
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket

from benchmarks.history import Exchange, conversation
from benchmarks.wires import HEADERS, WIRES, Answer, Wire, body, fragments_of


class Minimal:
    """messages: how long the history is at first, and again after a reset."""

    def __init__(self, wire: Wire, base_url: str, file: Path, messages: int) -> None:
        self._wire = wire
        self._url = base_url + wire.path
        self._client = httpx.AsyncClient(timeout=60)
        self._fd = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._messages = messages
        self._reset()

    def _reset(self) -> None:
        history = conversation(self._messages)
        self._fragments = fragments_of(self._wire, history)
        self._last = history[-1] if history else None
        self._seq = len(history)

    async def serve(self, request: WebSocketRequest) -> None:
        connection = await request.accept()
        try:
            while True:
                await self._take(connection, json.loads(await connection.get_message()))
        except ConnectionClosed:
            pass

    async def _take(self, connection: WebSocketConnection, frame: dict[str, str]) -> None:
        if frame["type"] == "message":
            reply = await self._turn(frame["text"])
            await connection.send_message(json.dumps({"type": "reply", "seq": self._seq, "text": reply}))
        elif frame["type"] == "reset":
            self._reset()

    async def _turn(self, text: str) -> str:
        self._seq += 1
        question = Exchange(self._seq, text, "", "", "")
        self._add(self._wire.question(question.content, self._last))
        self._last = (await self._ask()).exchange(self._seq, text)
        self._add(self._wire.answer(self._last))
        return self._last.reply

    def _add(self, fragment: bytes) -> None:
        os.write(self._fd, fragment + b"\n")
        os.fdatasync(self._fd)
        self._fragments.append(fragment)

    async def _ask(self) -> Answer:
        answer = Answer()
        content = body(self._wire, self._fragments)
        async with self._client.stream("POST", self._url, content=content, headers=HEADERS) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    self._wire.feed(json.loads(line[6:]), answer)
        return answer


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("wire", choices=WIRES)
    parser.add_argument("base_url")
    parser.add_argument("file", type=Path)
    parser.add_argument("messages", type=int)
    options = parser.parse_args()
    minimal = Minimal(WIRES[options.wire], options.base_url, options.file, options.messages)
    async with trio.open_nursery() as nursery:
        server = await nursery.start(serve_websocket, minimal.serve, "127.0.0.1", 0, None)
        print(f"ready ws://127.0.0.1:{server.port}", flush=True)


if __name__ == "__main__":
    trio.run(main)
