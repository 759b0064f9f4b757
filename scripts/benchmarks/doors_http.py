"""HTTP: a turn beside the same over the gateway's WebSocket, 500 event streams, and what the server costs while nobody uses it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import trio

from benchmarks.floors import bare, bare_idle
from benchmarks.processes import BenchError, Ran
from benchmarks.provider import Provider, provider
from benchmarks.report import Result, compared
from benchmarks.talk import talker
from benchmarks.wires import WIRES
from benchmarks.workplace import TOKEN, Daemon, Workplace

TURN_LIMIT = 1.5
START_LIMIT, MEMORY_LIMIT = 2.5, 2.2
STREAMS_LIMIT = 50.0
"""Per cent of a core for 500 streams with an event per second."""
STREAMS = 500
TURNS = 20
HEAD = f"GET /api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()


def measure(place: Workplace) -> Iterator[Result]:
    with provider(place.log) as server:
        yield trio.run(_turns, place, server)
        yield trio.run(_streams, place, server)
    yield from _starts(place)
    yield from _memory(place)


def _home(place: Workplace, server: Provider) -> Path:
    wire = WIRES["openai"]
    return place.home(provider=wire.name, base_url=server.base_url(wire))


# ------------------------------------------------------------------ a turn


async def _turns(place: Workplace, server: Provider) -> Result:
    """CPU of the daemon for a turn, over HTTP and over the WebSocket, in alternation."""
    over_http: list[float] = []
    over_socket: list[float] = []
    with place.daemon(_home(place, server)) as daemon:
        async with _client(daemon) as client, talker(daemon.url, channel_id="socket") as socket:
            for block in range(place.rounds(12, 3) + 1):
                before = daemon.process.cpu()
                for n in range(TURNS):
                    await _turn(client, f"block {block} message {n}")
                between = daemon.process.cpu()
                for n in range(TURNS):
                    await socket.turn(f"block {block} message {n}.")
                if block:  # the first warms up
                    over_http.append((between - before) / TURNS)
                    over_socket.append((daemon.process.cpu() - between) / TURNS)
    return compared("CPU of a turn through POST /api/messages", over_http, over_socket, "WebSocket", TURN_LIMIT)


def _client(daemon: Daemon) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=daemon.http, headers={"authorization": f"Bearer {TOKEN}"}, timeout=60)


async def _turn(client: httpx.AsyncClient, text: str) -> None:
    answer = await client.post("/api/messages?wait=60", json={"text": text, "channel": {"channelId": "http"}})
    if answer.status_code != 200 or text not in answer.json()["replies"][0]["text"]:
        raise BenchError(f"not the answer to {text!r}: {answer.text[:200]}")


# ------------------------------------------------------------------ event streams


async def _streams(place: Workplace, server: Provider) -> Result:
    """CPU of the daemon with 500 streams and one message, hence one event at least, per second, less that without streams."""
    seconds = 20 if not place.quick else 5
    with place.daemon(_home(place, server)) as daemon:
        async with _client(daemon) as client:
            await _turn(client, "warm")
            alone = await _cpu_of(daemon, client, seconds)
            events = [0] * STREAMS
            async with trio.open_nursery() as nursery:
                for number in range(STREAMS):
                    await nursery.start(partial(_follow, daemon, events, number))
                together = await _cpu_of(daemon, client, seconds)
                nursery.cancel_scope.cancel()
            if min(events) < seconds or len(set(events)) > 2:
                raise BenchError(f"streams got {min(events)} to {max(events)} events in {seconds} s")
    share = (together - alone) / seconds * 100
    detail = {"events": max(events), "alone": alone / seconds * 100}
    name = f"{STREAMS} event streams, an event per second"
    return Result(name, share, STREAMS_LIMIT, "limit", "% of a core", share, STREAMS_LIMIT, detail=detail)


async def _cpu_of(daemon: Daemon, client: httpx.AsyncClient, seconds: int) -> float:
    began, cpu = trio.current_time(), daemon.process.cpu()
    for n in range(seconds):
        await _turn(client, f"second {n}")
        await trio.sleep_until(began + n + 1)
    return daemon.process.cpu() - cpu


async def _follow(
    daemon: Daemon, events: list[int], number: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", int(daemon.http.rpartition(":")[2]))
    async with stream:
        await stream.send_all(HEAD)
        await stream.receive_some()
        task_status.started()
        while data := await stream.receive_some(65536):
            events[number] += data.count(b"event: MESSAGE_RECEIVED")


# ------------------------------------------------------------------ while nobody uses it


def _variants(place: Workplace) -> dict[str, Path]:
    homes = {"on": place.home(), "off": place.home()}
    settings = homes["off"] / "pegasus.toml"
    settings.write_text(settings.read_text().replace("[http]\n", "[http]\nenabled = false\n"))
    for home in homes.values():  # the first start makes files and compiles
        with place.daemon(home):
            pass
    return homes


def _starts(place: Workplace) -> Iterator[Result]:
    homes = _variants(place)
    floor: list[Ran] = []
    starts: dict[str, list[float]] = {kind: [] for kind in homes}
    for _ in range(place.rounds(15, 5)):
        floor.append(bare())
        for kind, home in homes.items():
            with place.daemon(home, end=signal.SIGKILL) as daemon:
                starts[kind].append(daemon.process.seconds)
    for kind, seconds in starts.items():
        yield compared(f"start to ready, HTTP {kind}", seconds, [ran.wall for ran in floor], "B", START_LIMIT)


def _memory(place: Workplace) -> Iterator[Result]:
    homes = _variants(place)
    with bare_idle(place.log) as floor, place.daemon(homes["off"]) as off, place.daemon(homes["on"]) as on:
        time.sleep(3.0 if not place.quick else 1.0)
        base = floor.memory()["rss"]
        amounts = {"off": off.process.memory()["rss"], "on": on.process.memory()["rss"]}
        httpx.get(f"{on.http}/healthz").raise_for_status()
        time.sleep(1.0)
        amounts["on, after the first request"] = on.process.memory()["rss"]
    for kind, amount in amounts.items():
        yield Result(f"idle memory, HTTP {kind}", amount / 2**20, base / 2**20, "B", "MiB", amount / base, MEMORY_LIMIT)
