"""`pegasus status` and `pegasus tree`: what the running daemon says about itself over its control plane."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import trio

from pegasus.cli.dial import find_daemon
from pegasus.gateway.client import Client, ClientError, Daemon, open_client
from pegasus.host import Home
from pegasus.messages import ChannelInfo
from pegasus.settings import Settings
from pegasus.wording import count, span

EVERY = 1.0
"""Seconds between two looks of --watch."""

Node = Mapping[str, Any]
_CALLER = ChannelInfo("cli", "status")
_CLEAR = "\x1b[H\x1b[J"


def run_status(home: Home, settings: Settings, *, as_json: bool) -> int:
    """Print what the daemon is doing; exit code 1 with a line on stderr if there is none."""
    return _show(home, settings, "status", _as_json if as_json else status_text, watch=False)


def run_tree(home: Home, settings: Settings, *, as_json: bool, watch: bool) -> int:
    """Print the supervision tree; with `watch` every second until Ctrl-C, which is exit code 0."""
    return _show(home, settings, "tree", _as_json if as_json else tree_text, watch=watch)


def _show(home: Home, settings: Settings, method: str, render: Callable[[Node], str], *, watch: bool) -> int:
    try:
        trio.run(_print, find_daemon(home, settings), method, render, watch)
    except ClientError as error:
        print(f"pegasus: {error}", file=sys.stderr)
        return 1
    except BaseExceptionGroup as group:
        if not watch or group.split(KeyboardInterrupt)[1] is not None:
            raise
    except KeyboardInterrupt:
        if not watch:
            raise
    return 0


async def _print(daemon: Daemon, method: str, render: Callable[[Node], str], watch: bool) -> None:
    async with open_client(daemon.url, daemon.token, _CALLER) as client:
        _write(await _look(client, method, render), clear=False)
        while watch:
            await trio.sleep(EVERY)
            _write(await _look(client, method, render), clear=render is not _as_json and sys.stdout.isatty())


async def _look(client: Client, method: str, render: Callable[[Node], str]) -> str:
    answer = await client.call(method, timeout=10.0)
    if not isinstance(answer, Mapping):
        raise ClientError(f"the daemon answered {method} with something that is not an object: {answer!r:.80}")
    return render(answer)


def _write(text: str, *, clear: bool) -> None:
    print(f"{_CLEAR}{text}" if clear else text, flush=True)


def _as_json(answer: Node) -> str:
    return json.dumps(answer, ensure_ascii=False)


# ------------------------------------------------------------------ for people


def status_text(status: Node) -> str:
    """The answer of `status` in a few lines."""
    thinking = status.get("thinking")
    doing = f"thinking about “{thinking['about']}” for {span(thinking['seconds'])}" if thinking else "nothing"
    rows = {
        "Agent": f"{status['agent']} {status['version']}, up for {span(status['uptime'])}",
        "Model": status["model"],
        "Doing": doing,
        "Waiting": count(status["waiting"], "message"),
        "Handled": count(status["handled"], "message") + " since the start",
        "Session": count(status["sessionEntries"], "entry", "entries"),
    }
    return "\n".join(f"{name:<9}{value}" for name, value in rows.items())


def tree_text(root: Node) -> str:
    """The tree with a line for each actor: state, mailbox, restarts, and what it has in hand."""
    lines = [(name, node) for name, node in _walk(root, "", "")]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {_facts(node)}".rstrip() for name, node in lines)


def _walk(node: Node, first: str, rest: str) -> Iterator[tuple[str, Node]]:
    yield first + str(node["name"]), node
    children = node.get("children") or []
    for n, child in enumerate(children):
        last = n == len(children) - 1
        yield from _walk(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def _facts(node: Node) -> str:
    facts = [f"{node['state']:<8}"]
    if node.get("capacity") and not node.get("children"):
        facts.append(f"mailbox {node['depth']}/{node['capacity']} (most {node['highWater']})")
        facts.append(f"handled {node['handled']:,}")
    if node.get("dropped"):
        facts.append(f"dropped {node['dropped']:,}")
    if node.get("dead"):
        facts.append(f"dead letters {node['dead']:,}")
    if node.get("restarts"):
        facts.append(f"restarts {node['restarts']}")
    if node.get("message"):
        facts.append(f"in hand {node['message']} for {span(node.get('messageAge') or 0.0)}")
    if node.get("waitingAt"):
        facts.append(f"at {node['waitingAt']}")
    return "  ".join(facts)
