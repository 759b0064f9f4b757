"""The zero-latency provider server in its own process, and C: a raw httpx call of it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import httpx

from benchmarks.history import Exchange
from benchmarks.processes import PYTHON, BenchError, running
from benchmarks.wires import HEADERS, Wire, body, fragments_of


@attrs.frozen
class Provider:
    """A server that answers as a model provider does."""

    root: str
    """Its address, without a path."""

    def base_url(self, wire: Wire) -> str:
        """As it stands in the settings: Anthropic's has no /v1, OpenAI's has."""
        return self.root if wire.name == "anthropic" else f"{self.root}/v1"


@contextmanager
def provider(log: Path, *, script: str = "echo", latency: float = 0.0) -> Iterator[Provider]:
    """Run the scripted provider in a process of its own. latency: seconds that each answer takes."""
    args = [PYTHON, "-m", "pegasus.testing.provider", "--port", "0", "--script", script, "--latency", str(latency)]
    with running(args, log=log) as process:
        address = re.search(r"http://[\w.]+:\d+", process.line)
        if address is None:
            raise BenchError(f"the provider server said {process.line!r}, which has no address in it")
        yield Provider(address[0])
        invalid = httpx.get(address[0]).json()["invalid"]
        if invalid:
            raise BenchError(f"the provider server refused {len(invalid)} requests, first: {invalid[0]}")


class Caller:
    """C: calls with the history so far, by a bare httpx client on Trio. Streamed unless told otherwise."""

    def __init__(self, provider: Provider, wire: Wire, history: Sequence[Exchange]) -> None:
        self._wire = wire
        self._url = provider.base_url(wire) + wire.path
        self._client = httpx.AsyncClient(timeout=60)
        self.reset(history)

    def reset(self, history: Sequence[Exchange]) -> None:
        self._fragments = fragments_of(self._wire, history)
        self._last = history[-1] if history else None

    def add(self, pair: Exchange) -> None:
        """Add an exchange to the history that the next call sends."""
        self._fragments += (self._wire.question(pair.content, self._last), self._wire.answer(pair))
        self._last = pair

    async def call(self, pair: Exchange, *, stream: bool = True) -> float:
        """Seconds from the request to the end of the answer. It is asked what `pair` asks; nothing is added."""
        question = self._wire.question(pair.content, self._last)
        content = body(self._wire, [*self._fragments, question], stream=stream)
        began = time.perf_counter()
        async with self._client.stream("POST", self._url, content=content, headers=HEADERS) as response:
            await response.aread()
        seconds = time.perf_counter() - began
        if response.status_code != 200:
            raise BenchError(f"the provider server answered {response.status_code}: {response.text[:300]}")
        return seconds

    async def aclose(self) -> None:
        await self._client.aclose()
