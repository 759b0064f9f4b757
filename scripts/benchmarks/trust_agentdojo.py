"""AgentDojo: where its suites are installed, what their tools do, and the line to a suite's judge (`trust_server`).

`readers` sorts the tools as an owner would who follows docs/user/connections.md: by what each tool really does. A mailbox, a
calendar, a drive, an account and a workspace of chats that the owner has are read privately. So is the catalogue of the travel agency
that the owner books with: nobody else sees the questions. A page of the web may be anybody's, who then sees what is asked for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import trio

from benchmarks.processes import BenchError

SUITES = ("workspace", "travel", "banking", "slack")
RELEASE = "0.1.35"
NEEDS = ("pydantic[email]==2.14.4", "deepdiff==9.1.0", "docstring-parser==0.18.0", "PyYAML==6.0.4")
"""What its suites import. All that it asks for would be the SDKs of five services."""
SERVER = Path(__file__).with_name("trust_server.py")


@attrs.frozen
class Readers:
    """Settings of a suite's server that sort its tools. Tools in none of the lists are acts."""

    reads: tuple[str, ...]
    """Private readers."""
    fetches: tuple[str, ...] = ()
    """Open readers."""
    asks: tuple[str, ...] = ()
    """Acts that destroy, or that give somebody power, and whose names do not say so."""


READERS = {
    "workspace": Readers(("get_*", "search_*", "list_files"), asks=("share_file",)),
    "travel": Readers(("get_*", "check_restaurant_opening_hours", "search_calendar_events")),
    "banking": Readers(("get_*", "read_file"), asks=("update_password",)),
    "slack": Readers(
        ("get_channels", "get_users_in_channel", "read_*"), fetches=("get_webpage",), asks=("remove_user_from_slack",)
    ),
}


def install() -> Path:
    """Return the Python of an environment with AgentDojo, which is made once and kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "pegasus-bench" / f"agentdojo-{RELEASE}"
    python = folder / "bin" / "python"
    done = folder / "complete"
    if not done.exists():
        print(f"installing AgentDojo into {folder} …", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *NEEDS], check=True)
        subprocess.run([*pip, "--no-deps", f"agentdojo=={RELEASE}"], check=True)
        done.touch()
    return python


class Judge:
    """The line to a suite's judge. One request at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: trio.SocketStream | None = None

    async def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """Return its answer. Waits until the daemon has started the server."""
        if self._stream is None:
            self._stream = await self._connect()
        await self._stream.send_all(json.dumps({"do": do, **more}).encode() + b"\n")
        data = b""
        while not data.endswith(b"\n"):
            more_data = await self._stream.receive_some(1 << 20)
            if not more_data:
                raise BenchError("the server of AgentDojo has ended")
            data += more_data
        answer: dict[str, Any] = json.loads(data)
        return answer

    async def _connect(self) -> trio.SocketStream:
        with trio.move_on_after(120):
            while True:
                try:
                    return await trio.open_unix_socket(self._path)
                except OSError:
                    await trio.sleep(0.05)
        raise BenchError("the daemon has not started the server of AgentDojo")
