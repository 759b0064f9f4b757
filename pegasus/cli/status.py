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
from pegasus.cli.control import (
    Answer,
    ask_client,
    describe_refusal,
    find_daemon,
    json_line,
    open_caller,
    report_failure,
    show,
)
from pegasus.cli.program import JSON, pegasus
from pegasus.client import ClientError, Endpoint
from pegasus.formatting import format_duration, plural
from pegasus.host import Home
from pegasus.models import amount_text, budget_text
from pegasus.settings import Settings
from pegasus.terminal import neutralise
from pegasus.wire import camel

WATCH_SECONDS = 1.0
"""Seconds between two pictures of --watch: changes are visible soon, and the load on the daemon is negligible."""
ANSWER_SECONDS = 10.0
"""Seconds the daemon may take to answer. Less than for other commands: a daemon that takes longer is not healthy."""

_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
"""Escape sequences: cursor to the upper left corner, erase the rest of the line, erase the rest of the screen."""


@pegasus.declare("status", JSON)
def run_status(home: Home, settings: Settings, *, as_json: bool) -> int:
    """Show what the running agent is doing."""
    render = json_line if as_json else status_text
    return show(home, settings, "status", {}, render, lambda: None, timeout=ANSWER_SECONDS)


@pegasus.declare(
    "tree",
    click.Option(["--json", "as_json"], is_flag=True, help="One JSON object; with --watch one a line."),
    click.Option(["--watch"], is_flag=True, help="Show it again every second, until Ctrl-C."),
)
def run_tree(home: Home, settings: Settings, *, as_json: bool, watch: bool) -> int:
    """Show the supervision tree of the running agent.

    Ctrl-C ends --watch with exit code 0.
    """
    render = json_line if as_json else tree_text
    if not watch:
        return show(home, settings, "tree", {}, render, lambda: None, timeout=ANSWER_SECONDS)
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
    """
    screen = render is not json_line and sys.stdout.isatty()
    first = True
    async with open_caller(daemon, "tree") as client:
        while True:
            _write(render(await ask_client(client, "tree", {}, ANSWER_SECONDS)), screen=screen, first=first)
            first = False
            await trio.sleep(WATCH_SECONDS)


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
    names = {field.name: camel(field.name) for field in attrs.fields(ActorInfo)}
    known = {name: node[key] for name, key in names.items() if node.get(key) is not None}
    children = tuple(map(actor_info, known.pop("children", ())))
    return ActorInfo(**{"path": "", **known}, children=children)
