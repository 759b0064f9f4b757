"""The way from one node to its database, which can be cut, silent, slow, or lose an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio

BROKEN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
CHUNK = 65536
QUESTIONS = (b"B", b"P", b"Q")
"""First bytes of what a client asks: a prepared statement (Bind), one that is prepared with it (Parse), or a whole query."""


class Link:
    """A forwarder on loopback between a port of its own and `target`.

    delay: seconds that each chunk takes, in both directions.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.delay = 0.0
        self._is_cut = False
        self._open = trio.Event()
        self._open.set()
        self._loses: bytes | None = None
        """Words of the question whose answer gets lost."""
        self._has_lost = trio.Event()
        self._streams: set[trio.SocketStream] = set()

    # ------------------------------------------------------------ faults

    async def cut(self) -> None:
        """Break every connection, and each new one, until `restore`."""
        self._is_cut = True
        for stream in list(self._streams):
            await trio.aclose_forcefully(stream)

    def silence(self) -> None:
        """Carry nothing, with all connections open, until `restore`: as a network does that drops packets."""
        self._open = trio.Event()

    def restore(self) -> None:
        """Carry everything again, what was held back too."""
        self._is_cut, self.delay, self._loses = False, 0.0, None
        self._open.set()

    async def lose_answer(self, words: bytes) -> None:
        """Deliver the next thing with these words that the node asks, break its connection in place of the answer, and return.

        What was asked is done by then: a database answers when it has committed.
        """
        self._loses, self._has_lost = words, trio.Event()
        await self._has_lost.wait()

    # ------------------------------------------------------------ carrying

    async def _carry(self, node: trio.SocketStream) -> None:
        if self._is_cut:
            await trio.aclose_forcefully(node)
            return
        try:
            database = await trio.open_tcp_stream("127.0.0.1", self.target)
        except OSError:
            await trio.aclose_forcefully(node)
            return
        self._streams |= {node, database}
        loses = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._ask, node, database, loses, nursery.cancel_scope)
                nursery.start_soon(self._answer, database, node, loses, nursery.cancel_scope)
        finally:
            for stream in (node, database):
                self._streams.discard(stream)
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(stream)

    async def _ask(
        self, node: trio.SocketStream, database: trio.SocketStream, loses: trio.Event, scope: trio.CancelScope
    ) -> None:
        with suppress(*BROKEN):
            while chunk := await node.receive_some(CHUNK):
                await self._hold()
                if self._loses is not None and chunk[:1] in QUESTIONS and self._loses in chunk:
                    self._loses = None
                    loses.set()
                await database.send_all(chunk)
        scope.cancel()

    async def _answer(
        self, database: trio.SocketStream, node: trio.SocketStream, loses: trio.Event, scope: trio.CancelScope
    ) -> None:
        with suppress(*BROKEN):
            while chunk := await database.receive_some(CHUNK):
                await self._hold()
                if loses.is_set():
                    self._has_lost.set()
                    break
                await node.send_all(chunk)
        scope.cancel()

    async def _hold(self) -> None:
        await trio.sleep(self.delay)
        await self._open.wait()


@asynccontextmanager
async def open_link(target: int) -> AsyncIterator[Link]:
    """A link for as long as the block lasts."""
    link = Link(target)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        link.port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, link._carry, [listener])
        yield link
        nursery.cancel_scope.cancel()
