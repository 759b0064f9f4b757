"""`pegasus status` and `pegasus tree`: the state of the running daemon, from its control plane.

Both ask the daemon and read no file: a daemon that hangs must not look healthy because its files do. `tree --watch` keeps
one connection open and draws over the picture before, without clearing the screen, so that nothing flickers; a tree that is
taller than the screen is cut, since a terminal that scrolls would show pieces of several pictures.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Final

import attrs
import click
import trio

from actors import ActorInfo
from actors.text import TreeView, render
from pegasus.cli.commands import JSON, pegasus, program_name
from pegasus.cli.control import (
    STATE_SECONDS,
    Answer,
    ask_client,
    describe_refusal,
    find_daemon,
    json_line,
    open_caller,
    report_failure,
    show,
)
from pegasus.client import ClientError, Endpoint
from pegasus.formatting import format_duration, plural
from pegasus.host import Home
from pegasus.main_agent import doing_text, model_text, task_line
from pegasus.messages import TaskProgress
from pegasus.models import amount_text, budget_text
from pegasus.settings import Settings
from pegasus.terminal import neutralise
from pegasus.wire import camel, from_wire

CODE_CHANGED: Final = "was changed on disk since the start, and what is loaded from now on may not fit"
"""Warning about an agent whose code on disk is not the one that runs."""
WATCH_SECONDS = 1.0
"""Seconds between two pictures of --watch: changes are visible soon, and the load on the daemon is negligible."""

_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
"""Escape sequences: cursor to the upper left corner, erase the rest of the line, erase the rest of the screen."""


@pegasus.declare("status", JSON, is_client=True)
def run_status(home: Home, settings: Settings, *, as_json: bool) -> int:
    """Show what the running agent is doing."""
    return show(home, settings, "status", {}, json_line if as_json else status_text, timeout=STATE_SECONDS)


@pegasus.declare(
    "tree",
    click.Option(["--json", "as_json"], is_flag=True, help="One JSON object; with --watch one a line."),
    click.Option(["--watch"], is_flag=True, help="Show it again every second, until Ctrl-C."),
    is_client=True,
)
def run_tree(home: Home, settings: Settings, *, as_json: bool, watch: bool) -> int:
    """Show the supervision tree of the running agent.

    Of each actor's mailbox: MOST is the largest number of messages that have waited in it, HANDLED how many were taken from it,
    and DEAD how many were dropped because nobody was there. Ctrl-C ends --watch with exit code 0.
    """
    render = json_line if as_json else tree_text
    if not watch:
        return show(home, settings, "tree", {}, render, timeout=STATE_SECONDS, is_neutral=not as_json)
    try:
        try:
            trio.run(_watch_tree, find_daemon(home, settings), render)
        except* KeyboardInterrupt:  # bare, or within a group when a nursery of the client was open
            pass
    except ClientError as error:
        return report_failure(describe_refusal(error, "tree"))
    return 0


async def _watch_tree(daemon: Endpoint, render: Callable[[Answer], str]) -> None:
    """Print the tree every WATCH_SECONDS over one connection, until cancelled. Raises ClientError.

    Pictures replace each other only on a terminal. In a file or pipe they follow each other, one after the other.

    A daemon that does not answer within STATE_SECONDS ends the watch: an old picture would look like a healthy daemon.
    """
    screen = render is not json_line and sys.stdout.isatty()
    first = True
    async with open_caller(daemon, "tree") as client:
        while True:
            text = render(await ask_client(client, "tree", {}, STATE_SECONDS))
            _write(neutralise(text) if render is json_line else text, screen=screen, first=first)
            first = False
            await trio.sleep(WATCH_SECONDS)


def _write(text: str, *, screen: bool, first: bool = False) -> None:
    """Print text that has been neutralised; on a watched screen in place of the picture before, and not more than fits.

    Nothing is cleared before it is written: each line is overwritten and only its rest erased. Clearing the screen first
    would show an empty one for a moment, which looks like flicker. first: the first picture, which clears what was there.
    """
    if screen:
        # Asked for each picture: the window may have been resized.
        rows = shutil.get_terminal_size().lines
        lines = text.split("\n")
        if len(lines) >= rows:
            lines[rows - 2 :] = [f"… {plural(len(lines) - rows + 2, 'more line')}"]
        start = _HOME + _REST_OF_SCREEN if first else _HOME
        text = start + f"{_REST_OF_LINE}\n".join(lines) + _REST_OF_LINE + "\n" + _REST_OF_SCREEN
    print(text, end="" if screen else "\n", flush=True)


# ------------------------------------------------------------------ for people


def status_text(status: Answer) -> str:
    """Return the answer of `status` in a few lines.

    Example::

        Agent    Pegasus 1.0, up for 3.0 h
        Model    anthropic/claude-sonnet
        Doing    nothing
        Waiting  0 messages

    What the daemon does not say, or an older one does not know, has no row.
    """
    waiting, granted, usage = status.get("approvals", 0), status.get("granted", 0), status.get("usage") or {}
    asked = f"{plural(waiting, 'call')} for your yes or no: {program_name()} approvals list"
    later = f"{plural(granted, 'yes', 'yeses')} for later calls: {program_name()} approvals granted"
    rows = {
        "Agent": f"{status['agent']} {status['version']}, up for {format_duration(status['uptime'])}",
        "Node": status.get("node"),
        "Database": status.get("database"),
        "Code": status.get("codeChanged") and f"{CODE_CHANGED}; restart the agent",
        "Model": model_text(status["model"], status.get("speech") or "", status.get("window") or 0),
        "Doing": _doing(status),
        "Waiting": plural(max(0, status["waiting"] - status.get("inHand", 0)), "message"),
        "Tasks": _tasks_text(status.get("tasks"), status.get("running", ())),
        "Asked": waiting and asked,
        "Granted": granted and later,
        "Handled": plural(status["handled"], "message") + " since the start",
        "Session": plural(status["sessionEntries"], "entry", "entries"),
        "Walls": _walls(status.get("sandbox") or {}),
        "Today": usage and amount_text(usage["today"]),
        "Budgets": usage and "; ".join(map(budget_text, usage["budgets"])),
        "Failing": "; ".join(f"{model['model']} ({model['why']})" for model in status.get("failingModels", ())),
        "Channels": "\n         ".join(map(channel_line, status.get("channels", ()))),
        "MCP": "\n         ".join(map(server_line, status.get("mcp", ()))),
    }
    return "\n".join(f"{name:<9}{value}" for name, value in rows.items() if value)


def server_line(server: Answer) -> str:
    """Return the line of a server: `time  up, 2 tools (2025-11-25)`.

    `pegasus mcp list` prints the same line. A server that is down has a reason; one that is off has none.
    """
    facts = [server["state"]]
    if server.get("tools"):
        facts.append(plural(server["tools"], "tool"))
    protocol, reason = server.get("protocol"), server.get("reason")
    return (
        f"{server['name']}  {', '.join(facts)}"
        + (f" ({protocol})" if protocol else "")
        + (f": {reason}" if reason else "")
    )


def channel_line(channel: Answer) -> str:
    """Return the state of a service's adapter in one line: `telegram  up (@pegasus_bot)`.

    A name is chosen at the service by whoever has made the bot, so that it is neutralised.
    """
    note = channel.get("reason") or channel.get("name") or ""
    return neutralise(f"{channel['type']}  {channel['state']}" + (f" ({note})" if note else ""))


def _doing(status: Answer) -> str:
    """Return what the agent is doing, in the words of the chat's /status; "nothing" if it is idle."""
    thinking, tasks = status.get("thinking") or {}, status.get("tasks")
    # Suspended tasks are not counted: they wait for a person.
    working = tasks["working"] + tasks["waiting"] if tasks else 0
    doing = doing_text(thinking.get("about"), thinking.get("seconds", 0.0), working, is_known=tasks is not None)
    return "nothing" if doing == "idle" else doing


def _walls(sandbox: Answer) -> str:
    """Return which walls there are around commands. What is partial says so in its description, with what is missing."""
    return ("full: " if sandbox.get("state") == "full" else "") + str(sandbox.get("description", ""))


def _tasks_text(tasks: Answer | None, running: Sequence[Answer]) -> str:
    """Return how many tasks are in which state, and a line for each; "not started yet" while the daemon starts its task agent."""
    if tasks is None:
        return "not started yet"
    # States that no task is in are left out.
    counts = ", ".join(f"{tasks[key]} {word}" for key, word in _TASK_WORDS.items() if tasks.get(key)) or "none"
    return "\n         ".join([counts, *(task_line(from_wire(task, TaskProgress)) for task in running)])


_TASK_WORDS = {"working": "at work", "waiting": "waiting", "suspended": "waiting for an answer", "paused": "paused"}
"""Words for the states of tasks, in the order in which they are shown."""


def tree_text(root: Answer) -> str:
    """Return the tree with a line for each actor, in the form that suits stdout: with colours on a terminal.

    Each name and text is neutralised before it is coloured, since afterwards the colours would be neutralised, too.

    A test or a pipe gets the same text without colours.
    """
    return render(TreeView(actor_info(root)))


def actor_info(node: Answer) -> ActorInfo:
    """Return one actor of the answer as the object that actors.text renders.

    Daemon and command may be of different versions: fields that only one of the two knows are left out. Texts are neutralised.
    """
    names = {field.name: camel(field.name) for field in attrs.fields(ActorInfo)}
    # The daemon leaves out what has no value, so the defaults of ActorInfo count for it.
    known = {name: node[key] for name, key in names.items() if node.get(key) is not None}
    known = {name: neutralise(value) if isinstance(value, str) else value for name, value in known.items()}
    children = tuple(map(actor_info, known.pop("children", ())))
    return ActorInfo(**{"path": "", **known}, children=children)
