"""The one task that writes to a client: takes what is queued, waits for answers that are not known yet, says goodbye."""

from __future__ import annotations

import trio
from trio_websocket import ConnectionClosed

from pegasus.gateway.outgoing import Entry, Outgoing, Ping
from pegasus.gateway.websocket import ServerSocket
from pegasus.observe import get_logger
from pegasus.protocol import TRY_LATER

BATCH = 64 * 1024
"""Characters that go out with one system call, if so many wait."""

_log = get_logger("gateway")


class Writer:
    """send_timeout: seconds for one write; who takes longer does not read. client: how it is called in the log."""

    def __init__(self, socket: ServerSocket, outgoing: Outgoing, send_timeout: float, client: object) -> None:
        self._socket = socket
        self._outgoing = outgoing
        self._timeout = send_timeout
        self._client = client
        self._first: Entry | None = None
        self._probe = False
        self._gone = False

    async def run(self) -> None:
        """Write until the queue is closed and empty, then close the connection.

        When the client has gone before, answers are waited for nevertheless: a message that was sent is accepted, whether
        or not its sender waits to hear it.
        """
        while (frames := await self._gather()) is not None:
            if not self._gone:
                self._gone = not await self._send(frames)
        closing = self._outgoing.closing
        if closing is not None and not self._gone:
            await self._socket.finish(closing.code, closing.reason)

    async def _gather(self) -> list[str] | None:
        """What goes out next, in order; None when the queue is closed and empty."""
        frames: list[str] = []
        size, pushed = 0, False
        entry = self._first or await self._outgoing.take()
        self._first = None
        if entry is None:
            return None
        while entry is not None:
            if isinstance(entry, Ping):
                self._probe = True
            elif isinstance(entry, str):
                frames.append(entry)
                size, pushed = size + len(entry), True
            elif pushed:  # what is known already does not wait for the disk
                self._first = entry
                break
            else:
                frames.append(await entry())
                await self._let_more_come()
            if size >= BATCH:
                break
            entry = self._outgoing.take_nowait()
        return frames

    async def _let_more_come(self) -> None:
        """Give what an accepted message sets off (the sign of thinking) six steps to get here: one system call for both."""
        for _ in range(6):
            if len(self._outgoing) or self._outgoing.closing is not None:
                return
            await trio.lowlevel.checkpoint()

    async def _send(self, frames: list[str]) -> bool:
        """Whether the client is still there."""
        try:
            with trio.move_on_after(self._timeout):
                if frames:
                    await self._socket.write(frames)
                if self._probe:
                    self._probe = False
                    await self._socket.probe()
                return True
        except ConnectionClosed:
            return False
        _log.warning("a client does not take what is sent; it is disconnected", client=str(self._client))
        self._outgoing.close(TRY_LATER, "you do not read", flush=False)
        return False
