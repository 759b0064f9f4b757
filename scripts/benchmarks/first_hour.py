"""The first hour with Pegasus: what streaming costs, and how soon a person sees what the model writes.

The provider runs in this process, so it knows when it sends the first piece of a reply's text. An answer is a call of `reply` whose
arguments come in 100 pieces, ten milliseconds apart, as from a fast model. A turn without streaming is one whose answer comes in the
same way, but consists of a thought that nobody is shown, and a short reply. The bare client reads the same stream with httpx alone.

For information, a turn whose answer comes in one piece is measured as well. Most of the difference is the work of httpx and Trio with
100 packets.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import attrs
import httpx
import trio

from benchmarks.first_hour_prompts import measure_prompts
from benchmarks.first_hour_weak import measure_weak_models
from benchmarks.history import CHANNEL_ID, CHANNEL_TYPE, METADATA_LINE, exchange
from benchmarks.processes import BenchError
from benchmarks.report import Result, compared
from benchmarks.samples import median, spread
from benchmarks.talk import Talker, talker
from benchmarks.wires import HEADERS, WIRES, Answer, body
from benchmarks.workplace import Daemon, Workplace
from pegasus.testing.provider import open_provider
from pegasus.testing.provider.answers import Call, ProviderAnswer
from pegasus.testing.provider.formats import events
from pegasus.testing.provider.requests import ProviderRequest

PIECES = 100
"""Pieces of a streamed reply."""
PAUSE = 0.01
"""Seconds between two pieces."""
CPU_LIMIT = 1.2
"""Of a turn's CPU with a reply that is shown while it is written, against the same answer with nothing to show."""
DELAY_LIMIT = 50.0
"""Milliseconds from the provider's first piece of a reply's text to its first character at the client, less those of a bare client."""
WIRE = WIRES["openai"]


@attrs.define(eq=False)
class Narrator:
    """Script that answers each message with about 1,200 characters in many pieces: in a reply, or in a thought before a short one."""

    kind: str = "shown"
    """"shown" for a long reply in pieces, "hidden" for a long thought and a short reply, "whole" for a long reply in one piece."""
    began: float = 0.0
    """When the first piece of the reply's text was sent."""
    _sent: Answer = attrs.field(factory=Answer)
    _count: int = 0

    def __call__(self, request: ProviderRequest) -> ProviderAnswer:
        self.began, self._sent = 0.0, Answer()
        if METADATA_LINE not in request.last.text:
            return ProviderAnswer()
        question = request.last.text.rpartition(f"{METADATA_LINE}\n")[2]
        prose = " ".join(exchange(number).reply for number in range(6))
        if self.kind == "shown":
            return ProviderAnswer("", (_reply(f"{question} {prose}"),), pieces=PIECES, pause=PAUSE)
        if self.kind == "whole":
            return ProviderAnswer("", (_reply(f"{question} {prose}"),))
        thought = events(ProviderAnswer(prose, pieces=PIECES), request.format, self._new_id)[: PIECES + 1]
        reply = events(ProviderAnswer("", (_reply(question),)), request.format, self._new_id)[1:]
        return ProviderAnswer(stream=tuple(part for event in (*thought, *reply) for part in (PAUSE, event)))

    def _new_id(self) -> str:
        self._count += 1
        return f"bench{self._count}"

    def on_send(self, part: bytes) -> None:
        """Note the time of the piece in which the text begins."""
        if not self.began:
            _feed(self._sent, part.decode())
            self.began = time.perf_counter() if _has_text(self._sent) else 0.0


def _reply(text: str) -> Call:
    return Call("reply", {"channelId": CHANNEL_ID, "channelType": CHANNEL_TYPE, "text": text})


def _feed(answer: Answer, event: str) -> None:
    """Take an event of a stream, or a line of one."""
    if event.startswith("data: {"):
        WIRE.feed(json.loads(event.removeprefix("data: ")), answer)


def _has_text(answer: Answer) -> bool:
    """Return whether the text of the reply has begun."""
    return bool(re.search(r'"text": "[^"]', answer.arguments))


@attrs.define(eq=False)
class Samples:
    """Seconds, one entry for each round: CPU of a turn, and the delay of the first character."""

    shown: list[float] = attrs.field(factory=list)
    hidden: list[float] = attrs.field(factory=list)
    whole: list[float] = attrs.field(factory=list)
    delay: list[float] = attrs.field(factory=list)
    bare: list[float] = attrs.field(factory=list)


def measure(place: Workplace) -> Iterator[Result]:
    samples = trio.run(_sample, place)
    name = f"CPU of a turn, reply streamed in {PIECES} pieces"
    yield compared(name, samples.shown, samples.hidden, "nothing shown", CPU_LIMIT)
    yield compared(name, samples.shown, samples.whole, "in one piece", None)
    beyond = [(ours - bare) * 1e3 for ours, bare in zip(samples.delay, samples.bare, strict=True)]
    yield Result(
        "delay of a reply's first character, less a bare client's",
        median(beyond),
        DELAY_LIMIT,
        "limit",
        "ms",
        median(beyond) / DELAY_LIMIT,
        1.0,
        spread([delay / DELAY_LIMIT for delay in beyond]),
        {"worst_ms": max(beyond), "bare_ms": median(samples.bare) * 1e3},
    )
    yield from measure_weak_models()
    yield from measure_prompts()


async def _sample(place: Workplace) -> Samples:
    samples, narrator = Samples(), Narrator()
    async with open_provider(narrator) as server:
        server.on_send = narrator.on_send
        home = place.home(provider=WIRE.name, base_url=server.openai_url)
        with place.daemon(home) as daemon:
            async with talker(daemon.url) as client, httpx.AsyncClient() as bare:
                questions = itertools.count()
                for number in range(place.rounds(11, 3)):
                    shown, delay = await _turns(place, narrator, daemon, client, questions, "shown")
                    hidden, _ = await _turns(place, narrator, daemon, client, questions, "hidden")
                    whole, _ = await _turns(place, narrator, daemon, client, questions, "whole")
                    alone = await _bare_delay(bare, server.openai_url + WIRE.path, narrator)
                    if number:  # the first round is slower: the HTTP client is imported, connections are made
                        samples.shown.append(shown)
                        samples.hidden.append(hidden)
                        samples.whole.append(whole)
                        samples.delay.append(delay)
                        samples.bare.append(alone)
    return samples


async def _turns(
    place: Workplace,
    narrator: Narrator,
    daemon: Daemon,
    client: Talker,
    questions: Iterator[int],
    kind: str,
) -> tuple[float, float]:
    """Return the CPU of a turn with answers of this kind, and the median delay of the first character."""
    narrator.kind = kind
    began, turns = daemon.process.cpu(), place.rounds(5, 2)
    delays: list[float] = []
    seen = 0.0

    def note(frame: dict[str, Any]) -> None:
        nonlocal seen
        if not seen and frame.get("type") in ("progress", "reply") and frame.get("text"):
            seen = time.perf_counter()

    for _ in range(turns):
        seen = 0.0
        await client.turn(f"{next(questions)}: what is new?", note)
        delays.append(seen - narrator.began)
    await trio.sleep(0.2)  # whatever a turn leaves to be written later
    return (daemon.process.cpu() - began) / turns, median(delays)


async def _bare_delay(client: httpx.AsyncClient, url: str, narrator: Narrator) -> float:
    """Return the delay of the first character at a client that only reads the stream."""
    narrator.kind = "shown"
    content = body(WIRE, [WIRE.question(exchange(1).content, None)])
    answer = Answer()
    async with client.stream("POST", url, content=content, headers=HEADERS) as response:
        async for line in response.aiter_lines():
            _feed(answer, line)
            if _has_text(answer):
                return time.perf_counter() - narrator.began
    raise BenchError("the provider's answer has no text of a reply")
