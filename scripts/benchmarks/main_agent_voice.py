"""The provider of these measures, in this process: it echoes, summarises, says how large a prompt was, and can take its time."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from benchmarks.wires import Wire
from benchmarks.workplace import Workplace
from pegasus.models.base import Usage
from pegasus.testing.provider import ProviderServer, open_provider
from pegasus.testing.provider.answers import ProviderAnswer, echo
from pegasus.testing.provider.prompt_cache import PromptCache
from pegasus.testing.provider.requests import ProviderRequest

_CHARS_PER_TOKEN = 4
_PLACE = re.compile(r"\bweb:([\w-]+)")
_SUMMARY = "## Now\nnothing\n## People\n{places}\n## Decisions and facts\nnone\n## Open\nnone"


@attrs.define(eq=False)
class Voice:
    """turn, summary: seconds that each answer takes. cache: of the thoughts, not of the summaries. heads: prompts and tools."""

    turn: float = 0.0
    summary: float = 0.0
    summaries: int = 0
    cache: PromptCache = attrs.field(factory=PromptCache)
    heads: set[str] = attrs.field(factory=set)

    async def __call__(self, request: ProviderRequest) -> ProviderAnswer:
        usage = Usage(len(request.body) // _CHARS_PER_TOKEN, 20)
        if "reply" not in request.tools:
            self.summaries += 1
            await trio.sleep(self.summary)
            places = " ".join(sorted(set(_PLACE.findall(request.last.text))))
            return ProviderAnswer(_SUMMARY.format(places=places), usage=usage)
        self.cache.send(request.body, request.turns[0].text)
        self.heads.add(
            f"{request.system}\n{request.raw['tools']}".replace("'cache_control': {'type': 'ephemeral'}", "")
        )
        await trio.sleep(self.turn)
        return attrs.evolve(echo(request), usage=usage)


@asynccontextmanager
async def voice_of(voice: Voice) -> AsyncIterator[ProviderServer]:
    """Open a server that answers with this voice. It refuses what the real one would refuse."""
    async with open_provider(voice, keep=1) as server:
        yield server


def home_for(place: Workplace, server: ProviderServer, wire: Wire, window: int, home: Path | None = None) -> Path:
    """A home whose model is this server's, with a window of so many tokens."""
    url = server.url if wire.name == "anthropic" else server.openai_url
    made = home or place.home(provider=wire.name, base_url=url)
    file = made / "pegasus.toml"
    file.write_text(re.sub(r"context_window = \d+", f"context_window = {window}", file.read_text()))
    return made
