"""Answers over HTTP while the agent waits for its database, before anything else of it can run.

Whoever supervises the process asks whether it is alive and whether it is ready: it is alive, and it is not ready. Anybody else is told
to come again. WebSockets of the gateway are not accepted meanwhile; their clients wait in the queue of the socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from pegasus.observe import Activity
from pegasus.wire import encode_json

STARTING: Final = "the agent is starting"
"""Reason while nothing is known yet."""
MOST_HEAD: Final = 16_384
"""Bytes of a request that are read at most."""
PATIENCE: Final = 5.0
"""Seconds that a request may take."""
MOST_AT_ONCE: Final = 50
"""Requests that are read at once. Others wait in the queue of the socket."""


async def answer_waiting(listeners: Sequence[trio.SocketListener], activity: Activity) -> None:
    """Answer every request on these listeners until cancelled. The listeners stay open, for the server that comes behind.

    activity: knows what the process waits for.
    """
    room = trio.Semaphore(MOST_AT_ONCE)

    async def accept(listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        while True:
            await room.acquire()
            try:
                nursery.start_soon(answer, await listener.accept())
            except OSError:  # the client has gone, or descriptors are short
                room.release()
                await trio.sleep(0.1)

    async def answer(stream: trio.SocketStream) -> None:
        try:
            with trio.move_on_after(PATIENCE):
                async with stream:
                    await _answer(stream, activity.waits_for or STARTING)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            room.release()

    async with trio.open_nursery() as nursery:
        for listener in listeners:
            nursery.start_soon(accept, listener, nursery)


async def _answer(stream: trio.SocketStream, reason: str) -> None:
    """Read the head of a request and answer it."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = await stream.receive_some(4096)
        if not piece or len(head) > MOST_HEAD:
            return
        head += piece
    is_alive = head.split(b" ", 2)[1:2] == [b"/healthz"]
    status = "200 OK" if is_alive else "503 Service Unavailable"
    content = {"status": "ok", "waiting": reason} if is_alive else {"error": {"code": "unavailable", "message": reason}}
    body = encode_json(content).encode()
    fields = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nretry-after: 1\r\nconnection: close"
    await stream.send_all(
        f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode() + (b"" if head.startswith(b"HEAD ") else body)
    )
    await stream.send_eof()
