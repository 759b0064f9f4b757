"""One question to the running daemon, or the same from the files while none runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import trio

from pegasus.cli.dial import find_daemon
from pegasus.gateway.client import ClientError, Daemon, NotConnected, open_client
from pegasus.host import Home
from pegasus.messages import ChannelInfo, Json
from pegasus.settings import Settings

Node: TypeAlias = Mapping[str, Any]
"""An answer of the control plane."""

PATIENCE = 30.0
"""Seconds the daemon may take to answer."""


def ask(
    home: Home,
    settings: Settings,
    caller: ChannelInfo,
    method: str,
    params: Mapping[str, Json],
    down: Callable[[], Node] | None,
) -> Node:
    """The daemon's answer to a call; what `down` gives where none runs. Raises ClientError, and what `down` raises.

    down: None where only a daemon can do it.
    """
    try:
        daemon = find_daemon(home, settings)
    except NotConnected:
        if down is None:
            raise
        return down()
    return trio.run(_call, daemon, caller, method, params)


def show(
    home: Home,
    settings: Settings,
    caller: ChannelInfo,
    method: str,
    params: Mapping[str, Json],
    render: Callable[[Node], str],
    down: Callable[[], Node] | None,
    expected: tuple[type[Exception], ...],
) -> int:
    """Print what `ask` gives, or on stderr why it does not; gives the exit code. expected: what it may fail with."""
    try:
        answer = ask(home, settings, caller, method, params, down)
    except expected as error:
        print(f"pegasus: {error.args[0] if len(error.args) == 1 else error}", file=sys.stderr)
        return 1
    print(render(answer))
    return 0


def json_line(answer: Node) -> str:
    """The answer as one line of JSON."""
    return json.dumps(answer, ensure_ascii=False)


async def _call(daemon: Daemon, caller: ChannelInfo, method: str, params: Mapping[str, Json]) -> Node:
    async with open_client(daemon.url, daemon.token, caller) as client:
        answer = await client.call(method, params, timeout=PATIENCE)
    if not isinstance(answer, Mapping):
        raise ClientError(f"the daemon answered {method} with something that is not an object: {answer!r:.80}")
    return answer
