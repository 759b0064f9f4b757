"""A WebSocket server that sends back what it gets: bare trio-websocket, the floor W."""

from __future__ import annotations

import trio
from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket


async def handle(request: WebSocketRequest) -> None:
    connection = await request.accept()
    try:
        while True:
            await connection.send_message(await connection.get_message())
    except ConnectionClosed:
        pass


async def main() -> None:
    async with trio.open_nursery() as nursery:
        server = await nursery.start(serve_websocket, handle, "127.0.0.1", 0, None)
        print(f"ready ws://127.0.0.1:{server.port}", flush=True)


trio.run(main)
