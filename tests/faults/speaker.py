"""A client that talks at whichever node takes it: it says again what was not accepted, and goes to another node at every trouble."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import trio
from trio_websocket import ConnectionClosed, HandshakeError

from tests.blackbox.support import Closed, Peer, connect
from tests.faults.checker import Conversation

GONE = (
    Closed,
    ConnectionClosed,
    HandshakeError,
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
)
"""What talking to a node that goes away ends with."""
TRY_AGAIN = frozenset({"internal", "overloaded"})
"""Codes of errors that say: nothing was done, try again."""
WINDOW = 3
"""Messages that wait for their answers at the same time."""
PATIENCE = 2.0
"""Seconds without a frame after which a client that waits for something looks for another node, as behind a proxy."""
PAUSE = 0.05
"""Seconds before the next try."""
KINDS = ("say", "say", "look", "twice", "do")


class Speaker:
    """The client of one conversation. It makes up messages until `stop`, and then waits for what is due.

    urls: where nodes can be reached at the moment. over: set when it was stopped and everything is answered. errors: what it was told
    to try again for.
    """

    def __init__(self, name: str, urls: Callable[[], Sequence[str]], token: str, choices: random.Random) -> None:
        self.name = name
        self.seen = Conversation(f"web:{name}")
        self.errors: list[str] = []
        self._urls = urls
        self._token = token
        self._choices = choices
        self._stops = False
        self._stepped = trio.Event()
        self.over = trio.Event()

    def stop(self) -> None:
        """Begin nothing new."""
        self._stops = True
        self._step()

    @property
    def is_over(self) -> bool:
        return self._stops and self.seen.is_complete

    async def talk(self) -> None:
        """Return when it was stopped and everything is answered."""
        while not self.is_over:
            urls = self._urls()
            if urls:
                await self._at(self._choices.choice(urls))
            await trio.sleep(PAUSE * self._choices.random())
        self.over.set()

    async def _at(self, url: str) -> None:
        """Talk at one node until there is trouble, or for a while."""
        with trio.move_on_after(self._choices.uniform(1, 8)):
            try:
                async with connect(url) as peer:
                    with trio.fail_after(PATIENCE):
                        await peer.hello(self._token, "web", self.name, lastSeq=self.seen.last)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._say, peer)
                        await self._hear(peer)
                        nursery.cancel_scope.cancel()
            except* GONE:
                pass
            except* AssertionError as group:  # the node answered the hello with an error, or with nothing
                self.errors.append(str(group.exceptions[0])[:200])

    async def _say(self, peer: Peer) -> None:
        """Say what was not accepted yet in the order in which it was first said, then new things."""
        for id in [id for id in self.seen.said if id not in self.seen.accepted]:
            await peer.post(self.seen.said[id], id)
        while not self._stops:
            if self._waiting < WINDOW:
                id = f"{self.name}-{len(self.seen.said) + 1}"
                self.seen.said[id] = f"{self._choices.choice(KINDS)} {id}"
                await peer.post(self.seen.said[id], id)
                await trio.sleep(self._choices.random() * 4 * PAUSE)
            else:
                await self._stepped.wait()

    @property
    def _waiting(self) -> int:
        return len(self.seen.said) - len(self.seen.heard)

    async def _hear(self, peer: Peer) -> None:
        expected = self.seen.last + 1
        while not self.is_over:
            with trio.fail_after(PATIENCE):
                frame = await peer.get("accepted", "reply", "error", timeout=2 * PATIENCE)
            if frame["type"] == "error":
                self.errors.append(str(frame))
                if frame["code"] not in TRY_AGAIN:
                    self.seen.odd.append(f"the error {frame}")
                return
            if frame["type"] == "accepted":
                self.seen.accepted.add(frame["id"])
            else:
                known = self.seen.heard.setdefault(frame["seq"], frame)
                if known != frame:
                    self.seen.odd.append(f"{frame} came with the number of {known}")
                if frame["seq"] != expected:
                    self.seen.odd.append(f"reply {frame['seq']} came where {expected} was due")
                expected = frame["seq"] + 1
                await peer.ack(frame)
            self._step()

    def _step(self) -> None:
        self._stepped.set()
        self._stepped = trio.Event()
