"""`pegasus status` and `pegasus tree`: the state of the running daemon, from its control plane.

Both ask the daemon and read no file: a daemon that hangs must not look healthy because its files do. `tree --watch` keeps
one connection open and draws over the picture before, without clearing the screen, so that nothing flickers; a tree that is
taller than the screen is cut, since a terminal that scrolls would show pieces of several pictures.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable

import attrs
import click
import trio

from actors import ActorInfo
from actors.text import TreeView, render
from pegasus.cli.control import Answer, ask_client, describe_refusal, find_daemon, json_line, report_failure
from pegasus.cli.options import JSON, CommandGroup
from pegasus.client import Client, ClientError, Endpoint, open_client
from pegasus.formatting import format_duration, plural
from pegasus.host import Home
from pegasus.messages import ChannelInfo
from pegasus.models import amount_text, budget_text
from pegasus.settings import Settings
from pegasus.terminal import neutralise

COMMANDS = CommandGroup()

WATCH_SECONDS = 1.0
"""Seconds between two pictures of --watch: changes are visible soon, and the load on the daemon is negligible."""
ANSWER_SECONDS = 10.0
"""Seconds the daemon may take to answer. Less than for other commands: a daemon that takes longer is not healthy."""

_CALLER = ChannelInfo("cli", "status")
"""Address of the connection; no messages are sent from it, so that no replies are pushed to it."""
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
"""Escape sequences: cursor to the upper left corner, erase the rest of the line, erase the rest of the screen."""


@COMMANDS.declare("status", JSON)
def run_status(home: Home, settings: Settings, *, as_json: bool) -> int:
    """Show what the running agent is doing."""
    return _show(home, settings, "status", json_line if as_json else status_text, watch=False)


@COMMANDS.declare(
    "tree",
    click.Option(["--json", "as_json"], is_flag=True, help="One JSON object; with --watch one a line."),
    click.Option(["--watch"], is_flag=True, help="Show it again every second, until Ctrl-C."),
)
def run_tree(home: Home, settings: Settings, *, as_json: bool, watch: bool) -> int:
    """Show the supervision tree of the running agent.

    Ctrl-C ends --watch with exit code 0.
    """
    return _show(home, settings, "tree", json_line if as_json else tree_text, watch=watch)


def _show(home: Home, settings: Settings, method: str, render: Callable[[Answer], str], *, watch: bool) -> int:
    """Print the answer to a call, again and again with `watch`; return the exit code.

    Ctrl-C is the normal end of `watch`. It arrives as KeyboardInterrupt, or within a group when a nursery of the client was
    open; a group with anything else in it is an error as always.
    """
    try:
        trio.run(_print, find_daemon(home, settings), method, render, watch)
    except ClientError as error:
        return report_failure(describe_refusal(error, method))
    except BaseExceptionGroup as group:
        if not watch or group.split(KeyboardInterrupt)[1] is not None:
            raise
    except KeyboardInterrupt:
        if not watch:
            raise
    return 0


async def _print(daemon: Endpoint, method: str, render: Callable[[Answer], str], watch: bool) -> None:
    """Print the answer over one connection; with `watch` every WATCH_SECONDS until cancelled. Raises ClientError.

    Pictures replace each other only on a terminal. In a file or pipe they follow each other, one after the other.
    """
    async with open_client(daemon.url, daemon.token, _CALLER, calls_only=True) as client:
        screen = watch and render is not json_line and sys.stdout.isatty()
        _write(await _answer_text(client, method, render), screen=screen, first=True)
        while watch:
            await trio.sleep(WATCH_SECONDS)
            _write(await _answer_text(client, method, render), screen=screen)


async def _answer_text(client: Client, method: str, render: Callable[[Answer], str]) -> str:
    """Return one answer as text. Raises ClientError, also when the daemon takes longer than ANSWER_SECONDS.

    render: a function of this file, or `json_line`.
    """
    return render(await ask_client(client, method, {}, ANSWER_SECONDS))


def _write(text: str, *, screen: bool, first: bool = False) -> None:
    """Print, neutralised; on a watched screen in place of the picture before, and not more than fits.

    Nothing is cleared before it is written: each line is overwritten and only its rest erased. Clearing the screen first
    would show an empty one for a moment, which looks like flicker. first: the first picture, which clears what was there.
    """
    text = neutralise(text)
    if screen:
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

    Rows about models appear only where there is something to show: no usage, no row.
    """
    thinking = status.get("thinking")
    doing = (
        f"thinking about “{thinking['about']}” for {format_duration(thinking['seconds'])}" if thinking else "nothing"
    )
    rows = {
        "Agent": f"{status['agent']} {status['version']}, up for {format_duration(status['uptime'])}",
        "Model": status["model"],
        "Doing": doing,
        "Waiting": plural(status["waiting"], "message"),
        "Tasks": _tasks_text(status.get("tasks")),
        "Handled": plural(status["handled"], "message") + " since the start",
        "Session": plural(status["sessionEntries"], "entry", "entries"),
        **_usage_rows(status),
    }
    return "\n".join(f"{name:<9}{value}" for name, value in rows.items())


def _usage_rows(status: Answer) -> dict[str, str]:
    """Return the rows about the use of models today, and about models that fail."""
    rows: dict[str, str] = {}
    if usage := status.get("usage"):
        rows["Today"] = amount_text(usage["today"])
        if usage["budgets"]:
            rows["Budgets"] = "; ".join(map(budget_text, usage["budgets"]))
    if failing := status.get("failingModels"):
        rows["Failing"] = "; ".join(f"{model['model']} ({model['why']})" for model in failing)
    return rows


def _tasks_text(tasks: Answer | None) -> str:
    """Return how many tasks are in which state; "not started yet" while the daemon starts its task agent."""
    if tasks is None:
        return "not started yet"
    return ", ".join(f"{tasks[key]} {word}" for key, word in _TASK_WORDS.items() if tasks[key]) or "none"


_TASK_WORDS = {"working": "at work", "waiting": "waiting", "suspended": "waiting for an answer"}
"""Words for the states of tasks, in the order in which they are shown."""


def tree_text(root: Answer) -> str:
    """Return the tree with a line for each actor, in the form that suits stdout."""
    return render(TreeView(actor_info(root)))


def actor_info(node: Answer) -> ActorInfo:
    """Return one actor of the answer as the object that actors.text renders.

    Daemon and command may be of different versions: fields that only one of the two knows are left out.
    """
    known = {field.name: node.get(_camel(field.name)) for field in attrs.fields(ActorInfo)}
    known["path"] = node.get("path", "")
    known["children"] = tuple(map(actor_info, node.get("children") or ()))
    return ActorInfo(**{name: value for name, value in known.items() if value is not None})


def _camel(name: str) -> str:
    """Return a field's name as it is on the wire: high_water is highWater."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
