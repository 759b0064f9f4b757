"""One question to the running daemon, or the same from the files while none runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import trio

from pegasus.cli.dial import find_daemon
from pegasus.client import Client, ClientError, Endpoint, NotConnected, open_client
from pegasus.host import Home
from pegasus.messages import ChannelInfo, Json
from pegasus.settings import Settings

Node: TypeAlias = Mapping[str, Any]
"""An answer of the control plane."""

PATIENCE = 30.0
"""Seconds the daemon may take to answer."""


def show(
    home: Home,
    settings: Settings,
    method: str,
    params: Mapping[str, Json],
    render: Callable[[Node], str],
    down: Callable[[], Node] | None,
    *refusals: type[Exception],
) -> int:
    """Print the daemon's answer to a call, or on stderr why there is none; gives the exit code.

    down: gives the answer where no daemon runs, and may raise `refusals`; None where only a daemon can answer.
    """
    expected: tuple[type[Exception], ...] = (ClientError, *refusals)
    try:
        answer = _ask(home, settings, method, params, down)
    except expected as error:
        print(f"pegasus: {error.args[0] if len(error.args) == 1 else error}", file=sys.stderr)
        return 1
    print(render(answer))
    return 0


def _ask(
    home: Home, settings: Settings, method: str, params: Mapping[str, Json], down: Callable[[], Node] | None
) -> Node:
    try:
        daemon = find_daemon(home, settings)
    except NotConnected:
        if down is None:
            raise
        return down()
    return trio.run(ask_daemon, daemon, method, params)


def json_line(answer: Node) -> str:
    """The answer as one line of JSON."""
    return json.dumps(answer, ensure_ascii=False)


async def ask_daemon(daemon: Endpoint, method: str, params: Mapping[str, Json], timeout: float = PATIENCE) -> Node:
    """Return the daemon's answer to a call over a connection of its own. Raises ClientError."""
    caller = ChannelInfo("cli", method.partition(".")[0])
    async with open_client(daemon.url, daemon.token, caller) as client:
        return await answer_of(client, method, params, timeout)


async def answer_of(client: Client, method: str, params: Mapping[str, Json], timeout: float) -> Node:
    """What the daemon answers within `timeout` seconds. Raises ClientError."""
    answer = await client.call(method, params, timeout=timeout)
    if not isinstance(answer, Mapping):
        raise ClientError(f"the daemon answered {method} with something that is not an object: {answer!r:.80}")
    return answer
