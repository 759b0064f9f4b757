"""The usual cast: a provider with a book, and a daemon that thinks with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pegasus.testing.provider import open_provider
from tests.blackbox.support.daemon import STARTED, Daemon
from tests.blackbox.support.files import Line, open_calls, session, session_path
from tests.blackbox.support.model import Book
from tests.blackbox.support.ports import free_port
from tests.blackbox.support.waiting import until

LARGE_SESSION = 1_000_000
"""Bytes beyond which the next test on a stage gets a new session: each of its thoughts would send all of them to the model."""


def thinks_with(url: str, wire: str = "openai") -> dict[str, Any]:
    """The settings that make the provider there the model."""
    return {
        "models.default": "test/model-1",
        "providers.test.type": wire,
        "providers.test.api_key": "sk-test-0123456789",
        "providers.test.base_url": f"{url}/v1" if wire == "openai" else url,
        # A server on this machine that does not tell its window would count as one with a small model.
        "models.context_window": 128_000,
    }


@asynccontextmanager
async def serving(
    folder: Path,
    book: Book,
    settings: Mapping[str, Any] | None = None,
    *,
    wire: str = "openai",
    start: bool = True,
    **more: Any,
) -> AsyncIterator[Daemon]:
    """A daemon on `folder`/home whose model is `book`. At the end: every request must have been valid."""
    async with open_provider(book, keep=1) as server:
        book.server = server
        daemon = Daemon(folder / "home", {**thinks_with(server.url, wire), **(settings or {})}, **more)
        try:
            if start:
                await daemon.start()
            yield daemon
        finally:
            daemon.kill()
        assert server.invalid == [], "the provider refused requests"


class Stage:
    """A daemon that many tests use, one after another (a start and an SDK's import are most of what a short test costs).

    Each test brings its own book, whose provider listens on the port the daemon knows, and channels of its own.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any] | None = None, wire: str = "openai") -> None:
        self._port = free_port()
        url = f"http://127.0.0.1:{self._port}"
        self.daemon = Daemon(folder / "home", {**thinks_with(url, wire), **(settings or {})})
        self._clean = False
        self._lines = 0

    @asynccontextmanager
    async def play(self, book: Book, channel: str) -> AsyncIterator[Daemon]:
        """The daemon, with `book` as its model and `channel` as its usual channel. At the end it must have nothing to do."""
        async with open_provider(book, port=self._port, keep=1) as server:
            book.server = server
            if not self._clean:
                await self.daemon.restart()
            self._clean, self.daemon.channel = False, channel
            self._lines = len(session(self.daemon.home))
            yield self.daemon
            await self._come_to_rest(book)
            self._clean = True
        assert server.invalid == [], "the provider refused requests"

    async def _come_to_rest(self, book: Book) -> None:
        book.release()
        if not self.daemon.alive:
            await self.daemon.start()
        async with self.daemon.client("control", "stage") as control:
            await control.call("stop")
            while (await control.call("status"))["waiting"]:
                await control.call("stop")
        await until(lambda: open_calls(session(self.daemon.home)) == [], "a well-formed session")
        if self._session_size() > LARGE_SESSION:
            async with self.daemon.client("cli", "stage") as owner:
                await owner.ask("/new")

    def _session_size(self) -> int:
        path = session_path(self.daemon.home)
        return path.stat().st_size if path.exists() else 0

    def session(self) -> list[Line]:
        """The lines of the session that are of this test."""
        return session(self.daemon.home)[self._lines :]


def standing(
    daemon: Daemon, given: Any = None, *, start: bool = False, finish: Callable[[], None] = lambda: None
) -> Iterator[Any]:
    """The body of a fixture whose daemon outlives many tests. given: what they get, else the daemon. finish: the last check."""
    STARTED.remove(daemon)  # it outlives the test that asked for it first
    try:
        if start:
            daemon.start_blocking()
        yield given or daemon
        assert daemon.process is None or daemon.alive, f"the daemon died: {daemon.stderr[-4000:]}"
        finish()
    finally:
        daemon.kill()
