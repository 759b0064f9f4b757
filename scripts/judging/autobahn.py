"""Autobahn's test suite for WebSockets, against `pegasus.websocket`: as a server, which is the gateway's end, and as a client.

The suite needs Python 2.7, which Debian had until its release 11. It is unpacked from there into the folder of the run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import trio
from benchmarks.workplace import Workplace

from judging.programs import SETUP_SECONDS, run_program
from judging.verdict import Judge, NotHereError, Verdict
from pegasus.protocol import WebSocketClosed
from pegasus.websocket import BROKEN_STREAM, BadMessage, WebSocket

SUITE: Final = "autobahntestsuite==25.10.1"
REQUIRED: Final = (
    "autobahn==0.10.9",
    "Twisted==19.10.0",
    "txaio==2.1.0",
    "incremental==16.10.1",
    "cryptography==3.3.2",
    "zope.interface==4.6.0",
    "jinja2==2.11.3",
    "markupsafe==1.1.1",
    "Werkzeug==1.0.1",
    "klein==17.10.0",
    "pyOpenSSL==19.1.0",
    "service_identity==18.1.0",
    "unittest2==1.1.0",
    "six==1.16.0",
)
"""Packages that the suite names itself, less accelerators that would have to be compiled."""
SETUP_TOOLS: Final = ("pip==20.3.4", "setuptools==44.1.1", "wheel==0.37.1")
DEBIAN_RELEASE: Final = "bullseye"
DEBIAN_PACKAGES: Final = ("python2.7-minimal", "libpython2.7-minimal", "libpython2.7-stdlib", "libssl1.1", "libffi7")
SUITE_SECONDS: Final = 1800
"""Seconds for the cases of one end."""
SIDE_BY_SIDE: Final = 2
"""Runs of the suite at a time: it uses one core."""
MAX_BYTES: Final = 32 << 20
"""Bytes of a message; the largest of the suite has 16 MiB."""
GOOD: Final = {"OK", "INFORMATIONAL"}
AGENT: Final = "pegasus"

Begin: TypeAlias = Callable[[WebSocket], Awaitable[object]]


@attrs.frozen
class Cases:
    """Cases of the suite, as its own patterns. skipped: how many of them are left out."""

    patterns: Sequence[str]
    left_out: Sequence[str]
    compresses: bool = False
    skipped: int = 0


PLAIN: Final = Cases(["*"], ["12.*", "13.*"])
LARGE: Final = [
    *(f"12.{group}.{number}" for group in range(1, 6) for number in (*range(6, 11), *range(13, 19))),
    *(f"13.{group}.{number}" for group in range(1, 8) for number in (*range(6, 11), *range(13, 19))),
]
"""Cases of 1,000 messages of 8 KiB and more, for which the suite without its accelerators works most of an hour."""
COMPRESSED: Final = Cases(["12.*", "13.*"], LARGE, compresses=True, skipped=len(LARGE))


def _run(place: Workplace) -> Iterator[Verdict]:
    folder = _install(place.folder / "autobahn")
    parts = [(cases, end) for cases in (COMPRESSED, PLAIN) for end in ENDS]  # the longest first

    def judge(part: tuple[Cases, str]) -> Verdict:
        cases, end = part
        about = f"{end}, with compression" if cases.compresses else end
        found = trio.run(ENDS[end], Autobahn(folder, place.folder / about), cases)
        bad = [f"{name}: {what}" for name, what in found.items() if what not in GOOD]
        return Verdict(about, len(found) - len(bad), len(bad), cases.skipped, "\n".join(bad))

    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        yield from reversed(list(threads.map(judge, parts)))


JUDGE: Final = Judge("autobahn", "WebSocket", SUITE.replace("==", " "), _run)


@attrs.frozen
class Autobahn:
    """The suite, installed in a folder. run: the folder of one run."""

    folder: Path
    run: Path

    def command(self, mode: str, cases: Cases, **more: object) -> Sequence[str]:
        """Return the command for a run in this mode."""
        self.run.mkdir()
        spec = {
            "cases": cases.patterns,
            "exclude-cases": cases.left_out,
            "exclude-agent-cases": {},
            "outdir": str(self.run / "reports"),
        }
        file = self.run / "spec.json"
        file.write_text(json.dumps(spec | more), "utf-8")
        start = f"import site; site.addsitedir({str(self.folder / 'site')!r})\nfrom autobahntestsuite.wstest import run; run()"
        return [*_python2(self.folder), "-c", start, "-m", mode, "-s", str(file), "-u", "0"]

    def read_report(self) -> dict[str, str]:
        """Return by case what was found."""
        cases = json.loads((self.run / "reports" / "index.json").read_text("utf-8"))[AGENT]
        return {
            name: case["behaviorClose"] if case["behavior"] in GOOD else case["behavior"]
            for name, case in cases.items()
        }


async def _judge_server(suite: Autobahn, cases: Cases) -> dict[str, str]:
    """Let the suite connect to an echo, case by case."""
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        serve = partial(_echo, cases, lambda socket: socket.accept(""))
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        server = {"url": f"ws://127.0.0.1:{listener.socket.getsockname()[1]}", "agent": AGENT}
        with trio.fail_after(SUITE_SECONDS):
            await trio.run_process(suite.command("fuzzingclient", cases, servers=[server]), capture_stdout=True)
        nursery.cancel_scope.cancel()
    return suite.read_report()


async def _judge_client(suite: Autobahn, cases: Cases) -> dict[str, str]:
    """Connect to the suite, for each case once, and be an echo there."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    address = f"127.0.0.1:{port}"
    command = suite.command("fuzzingserver", cases, url=f"ws://{address}")

    async def visit(path: str) -> None:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await _echo(cases, lambda socket: socket.connect(address, path), stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.run_process, command, capture_stdout=True, check=False))
        with trio.fail_after(SUITE_SECONDS):
            count = await _count_cases(port)
            for number in range(1, count + 1):
                await visit(f"/runCase?case={number}&agent={AGENT}")
            await visit(f"/updateReports?agent={AGENT}")
        nursery.cancel_scope.cancel()
    return suite.read_report()


async def _count_cases(port: int) -> int:
    """Return how many cases there are, as soon as the suite listens."""
    while True:
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
        except OSError:
            await trio.sleep(0.1)
            continue
        async with stream:
            socket = WebSocket(stream, MAX_BYTES)
            await socket.connect(f"127.0.0.1:{port}", "/getCaseCount")
            return int(await socket.receive())


async def _echo(cases: Cases, begin: Begin, stream: trio.SocketStream) -> None:
    """Send back each message until the connection ends."""
    socket = WebSocket(stream, MAX_BYTES, compresses=cases.compresses)
    async with stream:
        try:
            await begin(socket)
            while True:
                await socket.write([await socket.receive()])
        except BadMessage as error:
            await socket.close(error.code, error.reason)
            with trio.move_on_after(1), suppress(*BROKEN_STREAM):
                if socket.is_broken:
                    await stream.send_eof()
                await socket.drop()
        except WebSocketClosed:
            pass


ENDS: Final = {"client": _judge_client, "server": _judge_server}
"""The ends of a connection, as each is judged."""


def _python2(folder: Path) -> Sequence[str]:
    """Return the command of Python 2.7, whose libraries are in the folder, too."""
    root = folder / "root" / "usr"
    libraries = ":".join(str(path) for path in (root / "lib").glob("*-linux-gnu"))
    path = f"PYTHONPATH={folder / 'tools'}"
    return ["env", f"LD_LIBRARY_PATH={libraries}", path, str(root / "bin" / "python2.7"), "-W", "ignore"]


def _install(folder: Path) -> Path:
    """Install Python 2.7 and the suite. Raises NotHereError."""
    if not shutil.which("apt-get"):
        raise NotHereError("it needs Python 2.7, which is unpacked from packages of Debian here")
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "status").touch()
    # The mirror is the one that this machine uses.
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main"]
    [mirror, *_] = _do(targets, folder).split() or [""]
    (folder / "sources").write_text(f"deb {mirror} {DEBIAN_RELEASE} main\n")
    settings = {
        "Dir::Etc::sourcelist": folder / "sources",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": folder,
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder,
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *[f"-o{name}={value}" for name, value in settings.items()]]
    _do([*apt, "update"], folder)
    _do([*apt, "download", *DEBIAN_PACKAGES], folder)
    for package in folder.glob("*.deb"):
        _do(["dpkg", "-x", str(package), str(folder / "root")], folder)
    # The pip of today downloads the last one for Python 2, which installs itself and then the rest.
    _do(["python3", "-m", "pip", "download", "-q", "--no-deps", *SETUP_TOOLS], folder)
    pip = str(next(folder.glob("pip-*.whl")) / "pip")
    local = ["--no-index", "--find-links", str(folder), "--target", str(folder / "tools")]
    _do([*_python2(folder), pip, "install", "-q", *local, *SETUP_TOOLS], folder)
    site = ["--no-build-isolation", "--target", str(folder / "site")]
    _do([*_python2(folder), "-m", "pip", "install", "-q", *site, SUITE, *REQUIRED], folder)
    return folder


def _do(command: Sequence[str], folder: Path) -> str:
    ran = run_program(command, seconds=SETUP_SECONDS, folder=folder, env={"PIP_CONSTRAINT": ""})
    if ran.returncode:
        lines = ran.stderr.strip().splitlines()
        raise NotHereError(lines[-1] if lines else f"its installation ended with exit code {ran.returncode}")
    return ran.stdout
