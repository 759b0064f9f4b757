"""What `tree()` and `events()` give, as text for people: `print(TreeView(supervisor.tree()))`.

TreeView and EventLine are plain text by `str`, and in colour wherever the rich library shows them; `render` picks what
suits a file. The text is the same with rich and without, and rich is imported only where colours are shown.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

import attrs
import trio

from actors._events import (
    Crashed,
    DeadLetter,
    Event,
    Events,
    Exited,
    GaveUp,
    Killed,
    Overflowed,
    Restarting,
    Started,
    Stuck,
    describe_exit,
)
from actors._incarnation import MACHINERY
from actors._layout import DIM, Line, Span, printable, seconds, tree_lines
from actors._tree import ActorInfo

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

__all__ = ["EventLine", "TreeView", "print_events", "render"]


@attrs.frozen(eq=False)
class TreeView:
    """A tree with a line for each actor: state, mailbox, counts, and what it has in hand.

    width: columns for the plain text; math.inf for exactly one line each. Counts that are 0 everywhere have no column.
    Where an actor waits is shown when it does not come back from there: it is to stop, or has had its message for 1 s.
    """

    root: ActorInfo
    width: float = 80

    def __str__(self) -> str:
        return "\n".join(map(_plain, tree_lines(self.root, self.width)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        return _rich(tree_lines(self.root, options.max_width))


@attrs.frozen(eq=False)
class EventLine:
    """An event in one line: when, who, what. since: the trio time from which the seconds count."""

    event: Event
    since: float = 0.0

    def __str__(self) -> str:
        return _plain(_event_line(self))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        return _rich([_event_line(self)])


async def print_events(events: Events, file: TextIO | None = None) -> None:
    """Print every event as it comes, to stdout if no file is given; the seconds count from now. Ends with the tree."""
    since = trio.current_time()
    async for event in events:
        print(render(EventLine(event, since), file), file=file, flush=True)


def render(view: TreeView | EventLine, file: TextIO | None = None) -> str:
    """Give the text that suits this file, by default stdout; without a newline at its end.

    In a terminal it has colours, if rich is installed and NO_COLOR is not set, and keeps to the width. Elsewhere it is
    plain, and as wide as it needs ($COLUMNS, if set). What the file's encoding does not know is written in ASCII.
    """
    file = sys.stdout if file is None else file
    encoding = file.encoding or "utf-8"
    columns = _columns(file)
    if file.isatty() and encoding.lower().replace("-", "") == "utf8":
        coloured = _coloured(view, file, columns)
        if coloured is not None:
            return coloured
    if isinstance(view, TreeView):
        view = attrs.evolve(view, width=columns or math.inf)
    return _encodable(str(view), encoding)


# ------------------------------------------------------------ events


def _event_line(line: EventLine) -> Line:
    event = line.event
    what, style = _told(event)
    again = f", attempt {event.attempt}" if isinstance(event, Started) and event.attempt > 1 else ""
    path = printable(event.path or "(root)")
    return (f"{event.time - line.since:9.3f}  ", DIM), (f"{path:<20}  ", "bold"), (printable(what) + again, style)


def _told(event: Event) -> Span:
    match event:
        case Started():
            return "up", "green"
        case Exited(exit=Crashed() | Killed() as exit):
            return describe_exit(exit), "red"
        case Exited(exit=exit):
            return describe_exit(exit), ""
        case Restarting(delay=delay):
            return f"restarts in {seconds(delay)}" if delay else "restarts", "yellow"
        case GaveUp(why=why):
            return f"gave up: {why}", "bold red"
        case DeadLetter(message=message, why=why):
            return f"dead letter {type(message).__name__}: {why}", "magenta"
        case Overflowed(message=message):
            return f"mailbox full, {type(message).__name__} dropped or refused", "magenta"
        case Stuck(stack=stack):
            own = [place for place in stack if not place.startswith(MACHINERY)]
            return f"does not stop; stuck at {(own or stack or ('?',))[-1]}", "bold red"


# ------------------------------------------------------------ with and without colours


def _plain(line: Line) -> str:
    return "".join(text for text, _ in line)


def _rich(lines: Iterable[Line]) -> Iterator[Text]:
    from rich.text import Text

    for line in lines:
        yield Text.assemble(*line, no_wrap=True, overflow="ignore")


def _coloured(view: TreeView | EventLine, file: TextIO, columns: int | None) -> str | None:
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(file=file, width=columns)
    with console.capture() as capture:
        console.print(view, soft_wrap=isinstance(view, EventLine))
    return capture.get().removesuffix("\n")


def _columns(file: TextIO) -> int | None:
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    try:
        return os.get_terminal_size(file.fileno()).columns or None
    except OSError:  # not a terminal
        return None


def _encodable(text: str, encoding: str) -> str:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate({ord("├"): "|", ord("└"): "`", ord("│"): "|", ord("─"): "-", ord("…"): "~"})
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text
