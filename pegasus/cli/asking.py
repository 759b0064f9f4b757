"""One question to the running daemon, or the same from the files while none runs."""

from __future__ import annotations

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


async def _call(daemon: Daemon, caller: ChannelInfo, method: str, params: Mapping[str, Json]) -> Node:
    async with open_client(daemon.url, daemon.token, caller) as client:
        answer = await client.call(method, params, timeout=PATIENCE)
    if not isinstance(answer, Mapping):
        raise ClientError(f"the daemon answered {method} with something that is not an object: {answer!r:.80}")
    return answer
