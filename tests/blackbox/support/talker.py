"""A client that cannot be shaken off: it resends what was not accepted and comes back with the last seq after every death."""

from __future__ import annotations

from collections.abc import Sequence

import trio
from trio_websocket import ConnectionClosed, HandshakeError

from tests.blackbox.support.daemon import Daemon
from tests.blackbox.support.peer import Closed, Frame, Peer

GONE = (Closed, ConnectionClosed, HandshakeError, OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""What talking to a daemon that is being killed ends with."""

WINDOW = 10
"""Messages on their way at the same time."""


class Talker:
    """Says every text once and gathers the answers. answers: text by seq, of this address.

    Every step is counted in `steps` and told to `stepped`, so that somebody can kill the daemon at exactly one of them.
    """

    def __init__(self, name: str, texts: Sequence[str]) -> None:
        self.name = name
        self.texts = {f"{name}-{n}": text for n, text in enumerate(texts)}
        self.accepted: set[str] = set()
        self.answers: dict[int, Frame] = {}
        self.steps = 0
        self.stepped = trio.Event()
        self._room = trio.Event()

    @property
    def done(self) -> bool:
        return len(self.answers) >= len(self.texts)

    async def live(self, daemon: Daemon) -> None:
        """Talk until everything is answered or the daemon is gone."""
        try:
            async with (
                daemon.client("web", self.name, lastSeq=max(self.answers, default=0)) as peer,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._say_all, peer)
                await self._hear_all(peer)
                nursery.cancel_scope.cancel()
        except* GONE:
            pass

    async def _say_all(self, peer: Peer) -> None:
        missing = [id for id in self.texts if id not in self.accepted]
        for n, id in enumerate(missing):
            while n - sum(id in self.accepted for id in missing[:n]) >= WINDOW:
                self._room = trio.Event()
                await self._room.wait()
            await peer.post(self.texts[id], id)
            self._step()

    async def _hear_all(self, peer: Peer) -> None:
        while not self.done:
            frame = await peer.get("accepted", "reply", "error", timeout=60)
            assert frame["type"] != "error", frame
            self._room.set()
            if frame["type"] == "accepted":
                self.accepted.add(frame["id"])
            else:
                self._hear(frame)
                await peer.ack(frame)
            self._step()

    def _hear(self, frame: Frame) -> None:
        known = self.answers.setdefault(frame["seq"], frame)
        assert known == frame, f"{frame} came with the seq of {known}"

    def _step(self) -> None:
        self.steps += 1
        self.stepped.set()
        self.stepped = trio.Event()

    def assert_answered_exactly_once(self) -> None:
        """Each text has one echo, seqs have no gap, and everything sent is accepted."""
        assert sorted(self.answers) == list(range(1, len(self.texts) + 1))
        assert sorted(frame["text"] for frame in self.answers.values()) == sorted(
            f"echo: {t}" for t in self.texts.values()
        )
        assert self.accepted <= set(self.texts)
