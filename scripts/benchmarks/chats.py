"""What conversations of their own cost (`agent.scope = "chat"`): side by side, idle in memory, on disk."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from trio_websocket import WebSocketConnection, open_websocket_url

from benchmarks import chats_disk
from benchmarks.floors import bare
from benchmarks.history import CHANNEL_TYPE, conversation, encode, session_lines
from benchmarks.main_agent_voice import Voice, voice_of
from benchmarks.processes import BenchError
from benchmarks.report import Result, compared
from benchmarks.workplace import TOKEN, Workplace
from pegasus.main_agent.session import chat_files
from pegasus.messages import Address
from pegasus.testing.provider import ProviderServer

TALKING, EACH = 50, 10
"""Chats that talk at once, and messages of each, one after the other: enough of them that the beginning, when all come in the same
moment, does not decide."""
THOUGHT = 1.0
"""Seconds that the provider takes for each answer."""
TOGETHER = 1 / 0.9
"""Limit: the turns take at most this many times as long as the provider alone, so more than 0.9 of the ideal rate is reached."""
FEW, MANY = 50, 250
"""Chats in memory, whose difference gives the memory of one."""
IDLE = 150_000
"""Limit: bytes of a chat that is in memory and does nothing."""
ON_DISK = 10_000
"""Chats of the home that is started."""
PARKED = 100
"""Limit: bytes that the session of a chat takes which is on disk only. It is 0; the rest is noise of the measurement."""
KNOWN = 1_024
"""Limit: bytes of its address and of the numbers of its replies, which stay in memory."""
START = 1.3
"""Limit: a start with so many chats, against a start with one."""


def measure(place: Workplace) -> Iterator[Result]:
    yield from trio.run(_together, place, place.rounds(5, 2))
    yield trio.run(_idle, place)
    yield from _on_disk(place)
    yield from chats_disk.measure(place)


def _home(place: Workplace, server: ProviderServer | None = None, **agent: int) -> Path:
    """A home with a conversation for each chat."""
    url = server.openai_url if server is not None else ""
    home = place.home(provider="openai" if server is not None else "", base_url=url)
    lines = ["[agent]", 'scope = "chat"', *(f"{name} = {value}" for name, value in agent.items())]
    with (home / "pegasus.toml").open("a") as file:
        file.write("\n".join(lines) + "\n")
    return home


def _limit_calls(home: Path, calls: int) -> None:
    file = home / "pegasus.toml"
    file.write_text(file.read_text().replace("[models]\n", f"[models]\nmax_concurrent_calls = {calls}\n"))


# ------------------------------------------------------------------ many at once


async def _together(place: Workplace, rounds: int) -> list[Result]:
    """All chats get their messages at once; a reply is answered with the next message of its chat."""
    results = []
    for calls, limit, each in ((TALKING, TOGETHER, EACH), (3, None, 1)):
        async with voice_of(Voice(THOUGHT)) as server:
            home = _home(place, server)
            _limit_calls(home, calls)
            with place.daemon(home) as daemon:
                async with bridge(daemon.url) as people:
                    before = daemon.process.cpu()
                    seconds = [await people.talk(TALKING, each) / each for _ in range(rounds if limit else 1)]
                    cpu = (daemon.process.cpu() - before) / (TALKING * each * len(seconds))
        name = f"{TALKING} chats talking at once, a turn; max_concurrent_calls = {calls}"
        detail = {"turns_per_second": TALKING / seconds[0], "share_of_ideal": THOUGHT / seconds[0], "cpu_ms": cpu * 1e3}
        floor = [THOUGHT] * len(seconds)
        results.append(compared(name, seconds, floor, "the provider", limit, unit="s", detail=detail))
    return results


class Bridge:
    """A client that serves all conversations of a type, as a program between Pegasus and a chat service does."""

    def __init__(self, connection: WebSocketConnection) -> None:
        self._connection = connection
        self._sent = 0

    async def talk(self, chats: int, each: int, first: int = 0) -> float:
        """Seconds until each of these chats has got an answer to each of its messages, in order. Raises BenchError."""
        left = {f"c{number}": each for number in range(first, first + chats)}
        wanted = {}
        began = time.perf_counter()
        for name in left:
            wanted[name] = await self._say(name)
        with trio.move_on_after(120) as scope:
            while left:
                frame = json.loads(await self._connection.get_message())
                if frame["type"] == "error":
                    raise BenchError(f"the gateway answered {frame}")
                if frame["type"] != "reply":
                    continue
                name = frame["channel"]["channelId"]
                if wanted.get(name, "?") not in frame["text"]:
                    raise BenchError(f"{name} said {wanted.get(name)!r}, and the answer is {frame['text']!r}")
                ack = {"type": "ack", "seq": frame["seq"], "channel": frame["channel"]}
                await self._connection.send_message(json.dumps(ack))
                left[name] -= 1
                if left[name]:
                    wanted[name] = await self._say(name)
                else:
                    del left[name]
        if scope.cancelled_caught:
            raise BenchError(f"{len(left)} chats have no answer")
        return time.perf_counter() - began

    async def _say(self, name: str) -> str:
        self._sent += 1
        text = f"message {self._sent} of {name}."
        channel = {"type": CHANNEL_TYPE, "channelId": name, "userId": "bench"}
        frame = {"type": "message", "id": f"m-{self._sent}", "text": text, "channel": channel}
        await self._connection.send_message(json.dumps(frame))
        return text


@asynccontextmanager
async def bridge(url: str) -> AsyncIterator[Bridge]:
    """A connected bridge for the channel type of the benches."""
    async with open_websocket_url(url, subprotocols=["pegasus.v1"], disconnect_timeout=2) as connection:
        hello = {"type": "hello", "token": TOKEN, "channel": {"type": CHANNEL_TYPE}}
        await connection.send_message(json.dumps(hello))
        welcome = json.loads(await connection.get_message())
        if welcome["type"] != "welcome":
            raise BenchError(f"the gateway answered hello with {welcome}")
        yield Bridge(connection)


# ------------------------------------------------------------------ memory


async def _idle(place: Workplace) -> Result:
    """Growth of the daemon for more chats, each with one exchange, divided by their number."""
    async with voice_of(Voice()) as server:
        home = _home(place, server, max_active_chats=MANY)
        _limit_calls(home, TALKING)
        with place.daemon(home) as daemon:
            async with bridge(daemon.url) as people:
                await people.talk(FEW, 1)
                await trio.sleep(1)
                before, handles = daemon.process.memory()["rss"], _handles(daemon.process.pid)
                for first in range(FEW, MANY, FEW):
                    await people.talk(FEW, 1, first)
                await trio.sleep(1)
                each = (daemon.process.memory()["rss"] - before) / (MANY - FEW)
                opened = _handles(daemon.process.pid) - handles
    detail = {"descriptors": opened, "chats": MANY - FEW}
    if opened > 0:
        raise BenchError(f"{MANY - FEW} chats opened {opened} descriptors")
    return Result("memory of an idle chat", each / 1e3, IDLE / 1e3, "the limit", "kB", each / IDLE, 1.0, detail=detail)


def _handles(pid: int) -> int:
    """Return the number of open files. Connections to the provider are left out: all chats share them, and they come and go."""
    return sum(str(file.readlink()).startswith("/") for file in Path(f"/proc/{pid}/fd").iterdir())


def _on_disk(place: Workplace) -> Iterator[Result]:
    """Homes with one chat and with many: each has its session, its address and the number of its last reply.

    A third home knows many addresses, and has no sessions.
    """
    homes = [_home(place), _home(place), _home(place)]
    for home, count, sessions in zip(homes, (1, ON_DISK, ON_DISK), (1, ON_DISK, 0), strict=True):
        _put_chats(home / "data", count, sessions)
    seconds: list[list[float]] = [[], [], []]
    memory: list[list[float]] = [[], [], []]
    bare()
    for _ in range(place.rounds(15, 4) + 1):
        for number, home in enumerate(homes):
            with place.daemon(home, end=signal.SIGKILL) as daemon:
                seconds[number].append(daemon.process.seconds)
                time.sleep(0.3)  # reads what is read behind ready
                memory[number].append(daemon.process.memory()["rss"])
    one, many, _ = (samples[1:] for samples in seconds)  # the first start makes files and compiles
    yield compared(f"start with {ON_DISK:,} chats on disk", many, one, "one chat", START)
    least_one, least_many, least_known = map(min, memory)
    each, known = max(0.0, (least_many - least_known) / ON_DISK), max(0.0, (least_known - least_one) / ON_DISK)
    yield Result("memory of a chat on disk: its session", each, PARKED, "the limit", "B", each / PARKED, 1.0)
    yield Result("the same: its address and the numbers of replies", known, KNOWN, "the limit", "B", known / KNOWN, 1.0)


def _put_chats(data: Path, count: int, sessions: int) -> None:
    names = [f"c{number}" for number in range(count)]
    for folder in ("sessions", "inbox", "outbox"):
        (data / folder).mkdir(exist_ok=True)
    lines = b"".join(session_lines(conversation(30)))
    for name in names[:sessions]:
        (data / chat_files(Address(CHANNEL_TYPE, name)).path).write_bytes(lines)
    known = {"type": "addresses", "known": [[CHANNEL_TYPE, name] for name in names]}
    _write(data / "inbox/inbox.jsonl", [{"type": "compacted", "lastN": count}, known])
    places: list[dict[str, object]] = [{"type": CHANNEL_TYPE, "channelId": name} for name in names]
    _write(
        data / "outbox/outbox.jsonl", [{"type": "address", "channel": place, "seq": 9, "acked": 9} for place in places]
    )


def _write(path: Path, records: Sequence[object]) -> None:
    path.write_bytes(b"".join(encode(record) + b"\n" for record in records))
