"""The usual cast: a provider with a book, and a daemon that thinks with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pegasus.testing.provider import ProviderServer, open_provider
from tests.blackbox.support.daemon import Daemon
from tests.blackbox.support.model import Book


def thinks_with(server: ProviderServer, wire: str = "openai") -> dict[str, Any]:
    """The settings that make this provider the model."""
    url = server.openai_url if wire == "openai" else server.url
    return {
        "models.default": "test/model-1",
        "providers.test.type": wire,
        "providers.test.api_key": "sk-test-0123456789",
        "providers.test.base_url": url,
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
        daemon = Daemon(folder / "home", {**thinks_with(server, wire), **(settings or {})}, **more)
        try:
            if start:
                await daemon.start()
            yield daemon
        finally:
            daemon.kill()
        assert server.invalid == [], "the provider refused requests"
