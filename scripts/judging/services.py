"""Clients that others wrote, over the services of the test kit: what our bridges are tried with behaves as the clients expect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs
import trio
from benchmarks.workplace import Workplace

from judging.programs import install_python
from judging.verdict import Judge, Verdict
from pegasus.testing.bridges import discord, matrix
from pegasus.testing.bridges.service import HttpBridgeService
from pegasus.testing.bridges.steps import StepPoints
from pegasus.testing.services.server import open_service

PACKAGES: Final = {"matrix_nio": "matrix-nio==0.26.0", "discord_py": "discord.py==2.7.1"}
CLIENTS: Final = Path(__file__).with_name("clients")
SECONDS: Final = 120


@attrs.frozen
class Client:
    """A client, with the service that it uses.

    program: in `clients`; arguments: behind the service's address; signals: what the service does when the client prints a word.
    """

    program: str
    about: str
    service: HttpBridgeService
    arguments: Sequence[str]
    signals: dict[str, Callable[[], object]]


def _run(place: Workplace) -> Iterator[Verdict]:
    python = install_python(place.folder / "venv", *PACKAGES.values()) / "python"
    for client in (_matrix_nio(), _discord_py()):
        lines = trio.run(_use, python, client)
        failed = [line for line in lines if not line.startswith("passed ")]
        yield Verdict(client.about, len(lines) - len(failed), len(failed), details="\n".join(failed))


JUDGE: Final = Judge("services", "Bridges", "matrix-nio 0.26.0, discord.py 2.7.1", _run)


def _matrix_nio() -> Client:
    service = matrix.MatrixService()

    def write() -> None:
        service.say("hello grüße")
        service.invite("!new:example.org", matrix.ANNA)

    arguments = (matrix.TOKEN, matrix.BOT, matrix.ROOM)
    return Client("matrix_nio", "the homeserver of the test kit", service, arguments, {"write": write})


def _discord_py() -> Client:
    service = discord.DiscordService()

    def drop() -> None:
        service.drop_connections()
        service.say("again")

    signals: dict[str, Callable[[], object]] = {
        "write": lambda: service.say("hello grüße"),
        "click": lambda: service.click("/approve a1", service.messages[discord.CHANNEL][-1]),
        "drop": drop,
    }
    return Client("discord_py", "the Discord of the test kit", service, (discord.TOKEN, discord.CHANNEL), signals)


async def _use(python: Path, client: Client) -> list[str]:
    """Run a client; return what it says of each case, and how it ended if that was no good end."""
    client.service.points = StepPoints(trio.lowlevel.checkpoint)
    lines: list[str] = []
    async with open_service(client.service), trio.open_nursery() as nursery:
        command = [str(python), str(CLIENTS / f"{client.program}.py"), client.service.base_url, *client.arguments]
        process = await trio.lowlevel.open_process(command, stdout=-1)
        nursery.cancel_scope.deadline = trio.current_time() + SECONDS
        try:
            rest = b""
            assert process.stdout is not None
            async for data in process.stdout:
                *whole, rest = (rest + data).split(b"\n")
                for line in whole:
                    if (signal := client.signals.get(line.decode())) is not None:
                        signal()
                    else:
                        lines.append(line.decode())
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
    if process.returncode:
        lines.append(f"{client.program} ended with exit code {process.returncode}")
    return lines
