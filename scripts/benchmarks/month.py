"""Life with an agent that has run for a month: its backup, turns meanwhile, the check of an update, and what traces cost.

The home has 100,000 lines in an archive and logs of tasks, and a gigabyte of media that do not shrink. The backup is compared with
`tar` on the same files. Both copies are on the disk when they count as done: the backup syncs its file, and so does the floor.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import resource
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import trio

from benchmarks.history import conversation
from benchmarks.processes import PYTHON, Running
from benchmarks.provider import Provider, provider
from benchmarks.report import Result, compared
from benchmarks.samples import median
from benchmarks.talk import Talker, talker
from benchmarks.wires import WIRES
from benchmarks.workplace import Workplace

BACKUP_LIMIT = 1.5
MEANWHILE_LIMIT = 1.3
"""Of a turn while backups are made, against a turn without."""
TELEMETRY_LIMIT = 1.1
"""Of a turn's CPU with traces and metrics, against one without."""
CHECK_SECONDS = 60.0
"""CPU that the check of an update may take for a week."""
MESSAGES = 300
PAUSE = 0.02
EXPORTED = 6.0
"""Seconds after which everything has been sent to the collector."""


def measure(place: Workplace) -> Iterator[Result]:
    with provider(place.log) as server:
        yield from _backups(place, server)
        yield _check_of_a_week(place, server)
        yield trio.run(_telemetry, place, server)


# ------------------------------------------------------------------ backups


def _backups(place: Workplace, server: Provider) -> Iterator[Result]:
    home = place.home(conversation(MESSAGES), provider="openai", base_url=server.base_url(WIRES["openai"]))
    _fill(home, lines=place.rounds(100_000, 10_000), media=place.rounds(256, 32))
    backup = [PYTHON, "-m", "pegasus", "--home", str(home), "backup", str(place.folder / "backup")]
    copy = 'tar -cf "$0" -C "$1" . && sync "$0"'
    tar = ["sh", "-c", copy, str(place.folder / "copy.tar"), str(home)]
    _seconds(backup), _seconds(tar)  # the files are in memory from here on
    rounds = range(place.rounds(7, 3))
    ours, floor = zip(*[(_seconds(backup), _seconds(tar)) for _ in rounds], strict=True)
    # A small home says nothing: starting Python takes as long as copying it.
    yield compared("backup of a month", ours, floor, "tar", None if place.quick else BACKUP_LIMIT, unit="s")
    yield trio.run(_meanwhile, place, home, backup, len(rounds))


def _fill(home: Path, *, lines: int, media: int) -> None:
    """Write half of the lines into an archive, the others into logs of tasks; media: files of 4 MiB."""
    text = json.dumps({"role": "user", "content": "a message of usual length, " * 4})
    rows = [f'{{"ts":{n},{text[1:]}\n' for n in range(lines)]
    (home / "data" / "main" / "2026-01-01-000000.jsonl").write_text("".join(rows[: lines // 2]))
    for n in range(0, lines // 2, 50):
        folder = home / "data" / "tasks" / f"2026-01-{n // 50 % 28 + 1:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{n}.jsonl").write_text("".join(rows[n : n + 50]))
    folder = home / "data" / "media"
    folder.mkdir()
    for _ in range(media):
        content = os.urandom(4 << 20)
        (folder / f"{hashlib.sha256(content).hexdigest()}.jpg").write_bytes(content)


def _check_of_a_week(place: Workplace, server: Provider) -> Result:
    """CPU of the replay by which `update --check` compares a week: messages, thoughts with a reply, acknowledgements."""
    home = place.home((), provider="openai", base_url=server.base_url(WIRES["openai"]))
    messages = place.rounds(2_000, 100)
    _write_week(home / "data", messages)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = json.loads(
        subprocess.run([PYTHON, "-m", "pegasus.update.replay", str(home)], check=True, stdout=subprocess.PIPE).stdout
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (found["replayed"], found["different"]) == (messages, [])
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    limit = None if place.quick else 1.0
    return Result(
        "check of a week's messages, CPU", seconds, CHECK_SECONDS, "a minute", "s", seconds / CHECK_SECONDS, limit
    )


def _write_week(data: Path, messages: int) -> None:
    """Write the logs of a week with so many messages, as an agent would have."""
    logs: dict[str, list[object]] = {"inbox/inbox.jsonl": [], "outbox/outbox.jsonl": [], "main/current.jsonl": []}
    inbox, outbox, session = logs.values()
    for n in range(1, messages + 1):
        at, seq = 1_795_000_000_000 + n * 7 * 86_400_000 // messages, (n + 4) // 5
        channel = {"type": "web", "channelId": f"c{n % 5}"}
        text, answer = f"Message {n}: when do the boats leave?", f"Answer {n}: with the tide, as every day. " * 4
        message = {"text": text, "channel": channel, "id": f"m{n}", "metadata": {"role": "owner"}}
        call: dict[str, object] = {"id": f"call_{n}", "name": "reply"}
        call |= {"arguments": {"text": answer, "channelId": channel["channelId"], "channelType": "web"}}
        result = {"queued": True, "channelType": "web", "channelId": channel["channelId"], "seq": seq}
        reply = {"text": answer, "channel": channel, "seq": seq, "metadata": {"inReplyTo": f"m{n}", "question": text}}
        own = f"[channel: web | id: c{n % 5}]\n{text}"
        inbox.append({"type": "message", "n": n, "at": at, "message": message})
        inbox.append({"type": "done", "n": n, "at": at + 2_010})
        session.append({"ts": at + 1, "role": "user", "content": own, "metadata": {"item": n, "messageId": f"m{n}"}})
        session.append(
            {
                "ts": at + 2_000,
                "role": "assistant",
                "content": "I answer that.",
                "toolCalls": [call],
                "metadata": {"usage": {"promptTokens": 9_000, "completionTokens": 80}, "stopReason": "tool_calls"},
            }
        )
        session.append(
            {
                "ts": at + 2_000,
                "role": "tool",
                "content": json.dumps(result, separators=(",", ":")),
                "toolCallId": f"call_{n}",
            }
        )
        outbox.append({"type": "reply", "key": f"main/{n}/call_{n}", "at": at + 2_005, "message": reply})
        outbox.append({"type": "ack", "channel": channel, "seq": seq, "at": at + 2_100})
    for path, lines in logs.items():
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        (data / path).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


async def _meanwhile(place: Workplace, home: Path, backup: list[str], rounds: int) -> Result:
    """Turns while a backup is made, and as many without one, by the same daemon in alternation."""
    during: list[float] = []
    usual: list[float] = []
    longest = 0.0
    async with _conversation(place, home) as (_, client):
        texts = map("message {}.".format, itertools.count())
        for _ in range(10):
            await client.turn(next(texts))
        for _ in range(rounds):
            turns: list[float] = []
            async with trio.open_nursery() as nursery:
                process = await nursery.start(partial(trio.run_process, backup, stdout=subprocess.DEVNULL))
                while process.poll() is None:
                    turns.append(await client.turn(next(texts)))
                    await trio.sleep(PAUSE)
            during.append(median(turns))
            longest = max(longest, *turns)
            alone = []
            for _ in turns:
                alone.append(await client.turn(next(texts)))
                await trio.sleep(PAUSE)
            usual.append(median(alone))
    limit = None if place.quick else MEANWHILE_LIMIT
    return compared("turn during a backup", during, usual, "without one", limit, detail={"longest_s": longest})


# ------------------------------------------------------------------ traces


async def _telemetry(place: Workplace, server: Provider) -> Result:
    """CPU of turns with traces and without, by two daemons whose turns alternate. What is exported later counts as well."""
    turns, kind = place.rounds(150, 20), WIRES["openai"]
    homes = [place.home(conversation(MESSAGES), provider="openai", base_url=server.base_url(kind)) for _ in range(2)]
    traced: list[float] = []
    usual: list[float] = []
    with _collector() as url:
        with (homes[0] / "pegasus.toml").open("a") as settings:
            settings.write(f'[telemetry]\notlp_endpoint = "{url}"\n')
        async with _conversation(place, homes[0]) as first, _conversation(place, homes[1]) as second:
            both = ((*first, traced), (*second, usual))
            await trio.sleep(EXPORTED)  # the SDK has been imported
            for number in range(place.rounds(4, 2)):
                before = [daemon.cpu() for daemon, _, _ in both]
                for n in range(turns):
                    for _, client, _ in both:
                        await client.turn(f"round {number} message {n}.")
                        await trio.sleep(PAUSE)
                await trio.sleep(EXPORTED)
                for (daemon, _, samples), earlier in zip(both, before, strict=True):
                    samples.append((daemon.cpu() - earlier) / turns)
    # A few turns cost less than the requests that are sent by time.
    limit = None if place.quick else TELEMETRY_LIMIT
    return compared("CPU of a turn with traces and metrics", traced, usual, "without", limit)


@asynccontextmanager
async def _conversation(place: Workplace, home: Path) -> AsyncIterator[tuple[Running, Talker]]:
    with place.daemon(home) as daemon:
        async with talker(daemon.url) as client:
            await client.turn("warm")
            yield daemon.process, client


@contextmanager
def _collector() -> Iterator[str]:
    """A collector that takes everything."""

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taker) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
