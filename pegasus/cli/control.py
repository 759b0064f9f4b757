"""Commands that show an answer: that of the running daemon, or one from the files while none runs.

`answering_command` declares such a command. The decorated function gives the answer where no daemon runs, and a second one makes
it readable::

    @answering_command(TASKS, "show", _ID, JSON, method="tasks.show", text=show_text)
    def run_show(home: Home, settings: Settings, *, task_id: str) -> Answer:
        '''Show the state of a task and its result.'''

Most commands about data the user owns work both ways. With a daemon they call a method of its control plane, so that the
answer includes what is not on disk yet. Without one they read the same files; a change then holds the home's lock, so that
no daemon starts meanwhile. Both ways end in the same function of the package that owns the data (`files_view`, `task_view`), so
that there is one form of each answer and one function that prints it.

A daemon that runs but does not answer makes the command fail: its files may be older than its state in memory, and a change of
the files would be overwritten. Between the look at daemon.json and the lock a daemon may start; then `own_home` raises
HomeBusy, and the command works when it is repeated.

Everything that is printed for people has been written by strangers in part: a task's description, a web page that memory
quotes. So `print_text` neutralises it as the chat does, and escape sequences in it have no effect. JSON in a pipe or file is
not changed, because a program wants the text as it is stored.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    aclosing,
    contextmanager,
    nullcontext,
)
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Final, TextIO, TypeAlias, TypeVar

import click
import trio

from actors import Child, Ref, open_supervisor
from pegasus.cli.commands import CommandGroup, Options, program_name
from pegasus.client import Client, ClientError, Endpoint, NotConnected, Refused, open_client
from pegasus.host import Home, HomeError, own_home, prepare_data, print_error, read_daemon, read_token, wall_clock
from pegasus.messages import ChannelInfo, Json
from pegasus.settings import Settings, SettingsError
from pegasus.storage import FileDisk, JournalMessage, StorageError, run_journal
from pegasus.terminal import is_utf8, neutralise
from pegasus.wire import camel

T = TypeVar("T")

_STORED: Final[Mapping[str, tuple[str, ...]]] = {
    "tasks.list": ("tasks/",),
    "tasks.show": ("tasks/",),
    "tasks.replay": ("tasks/",),
    "cron.list": ("cron/",),
    "tokens.list": ("tokens.",),
    "pair.list": ("access.",),
    "memory.list": ("memory/",),
    "memory.show": ("memory/",),
    "memory.log": ("memory/",),
    "memory.search": ("memory/", "main/", "sessions/"),
    "persona.list": ("identity/",),
}
"""Beginnings of paths below data/ that a method reads which needs no running agent with a database either. All others need one there,
since they change what nodes have in memory."""
_WITHOUT_DATA: Final = ("mcp.list", "nodes.list", "nodes.drain")
"""Methods that read nothing below data/ where no agent runs: they read the settings, or ask the database itself."""

Answer: TypeAlias = Mapping[str, Any]
"""JSON object that a method of the control plane returns. `pegasus … --json` prints it as it is."""
ANSWER_SECONDS: Final = 30.0
"""Seconds the daemon may take to answer: as many as a method may take (`pegasus.gateway`)."""
STATE_SECONDS: Final = 10.0
"""Seconds it may take to answer what it is doing. A daemon that takes longer is not healthy."""


# ------------------------------------------------------------------ the running daemon


def find_daemon(home: Home, settings: Settings) -> Endpoint:
    """Return address and token of the daemon of this home. Raises NotConnected, which says how to start one.

    It reads files only: whether the daemon answers is seen when a connection is made. So it may be given to a conversation,
    which calls it before each attempt to connect.

    Example::

        answer = trio.run(ask_daemon, find_daemon(home, settings), "status", {})
    """
    daemon = read_daemon(home)
    if daemon is None:
        raise NotConnected(f"no agent is running in {home}; start one with: {program_name()} run")
    try:
        return Endpoint(daemon.ws, read_token(home, settings.gateway.token))
    except HomeError as error:
        raise NotConnected(str(error)) from None


def open_caller(daemon: Endpoint, method: str) -> AbstractAsyncContextManager[Client]:
    """Return a connection for calls. It greets as `cli:<topic>` ("cli:tasks" for "tasks.list"), which is no conversation."""
    return open_client(daemon.url, daemon.token, ChannelInfo("cli", method.partition(".")[0]), calls_only=True)


async def ask_daemon(
    daemon: Endpoint, method: str, params: Mapping[str, Json], timeout: float = ANSWER_SECONDS
) -> Answer:
    """Return the daemon's answer to a call, over a connection of its own. Raises ClientError.

    params: JSON values by name, as docs/gateway.md has them. timeout: seconds.
    """
    async with open_caller(daemon, method) as client:
        return await ask_client(client, method, params, timeout)


async def ask_client(client: Client, method: str, params: Mapping[str, Json], timeout: float) -> Answer:
    """Return the answer to a call over this connection. Raises ClientError, also for an answer that is not an object."""
    answer = await client.call(method, params, timeout=timeout)
    if not isinstance(answer, Mapping):
        raise ClientError(f"the daemon answered {method} with something that is not an object: {answer!r:.80}")
    return answer


def describe_refusal(error: Exception, method: str, params: Collection[str] = ()) -> str:
    """Return what went wrong in a call, for a person: without the codes, method and parameter names of the protocol.

    A refused frame reads `bad_frame: tasks.show: taskId: there is no task "x"`; of that only the last part is of use.
    params: names of the parameters that were sent; a message may begin with one of them. It stays where the text says no more than
    what was found: people know it as the option of that name.
    """
    if not isinstance(error, Refused):
        return str(error)
    if error.code == "unknown_method":
        return "the running daemon is of another version and does not know this command; restart it"
    message = error.message.removeprefix(f"{method}: ")
    name, colon, rest = message.partition(": ")
    return rest if colon and name in params and not rest.startswith("found") else message


def answering_command(
    group: CommandGroup,
    name: str,
    *params: click.Parameter,
    method: str | None,
    text: Callable[[Answer], str],
    refusals: tuple[type[Exception], ...] = (),
) -> Callable[[Callable[..., Answer | None]], Callable[..., int]]:
    """Declare a command that shows an answer; the decorator returns the function that carries it out.

    The decorated function gets home, settings and the values of `params` by name, and returns the answer where no daemon runs;
    None where only a daemon can answer. It may raise `refusals`, whose text is printed as the reason of exit code 1.

    method: the daemon's method, which gets the same values: each under the camelCase form of its name, and none for a value that was
    not given. None: the answer is in the files, whether or not a daemon runs. text: makes the answer readable for people.
    """

    def add(offline: Callable[..., Answer | None]) -> Callable[..., int]:
        """Declare the command, and return what click calls; the decorated function gives the answer without a daemon only."""

        def run(home: Home, settings: Settings, *, as_json: bool = False, **values: Any) -> int:
            """Print the answer in the form that was asked for; return the exit code."""
            sent = {camel(key.rstrip("_")): value for key, value in values.items() if value is not None}
            render = json_line if as_json else text
            return show(home, settings, method, sent, render, partial(offline, home, settings, **values), refusals)

        run.__doc__ = offline.__doc__
        return group.declare(name, *params, is_client=method is not None)(run)

    return add


def show(
    home: Home,
    settings: Settings,
    method: str | None,
    params: Mapping[str, Json],
    render: Callable[[Answer], str],
    offline: Callable[[], Answer | None] = lambda: None,
    refusals: tuple[type[Exception], ...] = (),
    *,
    timeout: float = ANSWER_SECONDS,
    is_neutral: bool = False,
) -> int:
    """Print an answer, or on stderr why there is none; return the exit code. `answering_command` explains the parameters.

    is_neutral: `render` has neutralised the parts of its text, which may have colours and is printed as it is.

    A daemon that runs and does not answer is an error: what the files say may be older than what it knows.
    """
    expected: tuple[type[Exception], ...] = (ClientError, *refusals)
    answer: Answer | None = None
    try:
        if method is None or (read_daemon(home) is None and method in _WITHOUT_DATA):
            answer = offline()
        elif read_daemon(home) is None and (not settings.storage.url or method in _STORED):
            with stored_data(home, settings, *_STORED.get(method, ())):
                answer = offline()
        if answer is None:
            answer = trio.run(ask_daemon, find_daemon(home, settings), str(method), params, timeout)
    except expected as error:
        return report_failure(describe_refusal(error, str(method), params))
    if is_neutral:
        print(render(answer), flush=True)
    else:
        print_text(render(answer), always=render is not json_line)
    return 0


# ------------------------------------------------------------------ the files of a home


@contextmanager
def stored_data(home: Home, settings: Settings, *paths: str) -> Iterator[None]:
    """Let `home.data` be a folder of what is stored while the body runs, also where that is in a database.

    paths: beginnings of what is read below it. Of a database they are written into a folder that is gone afterwards, as they are at
    one moment. Raises HomeError if the database does not answer, or if there is no room for them.
    """
    if not settings.storage.url:
        yield
        return
    from pegasus.moving import export_database
    from pegasus.storage.database import open_database

    kept = home.data

    async def write(folder: Path) -> None:
        async with aclosing(open_database(settings.storage.url)) as database:
            await export_database(database, folder, paths)

    with ExitStack() as stack:
        try:
            data = Path(stack.enter_context(TemporaryDirectory(prefix="pegasus-")), "data")
            trio.run(write, data)
        except StorageError as error:
            raise HomeError(str(error), exit_code=1) from None
        except OSError as error:
            place, reason = error.filename or gettempdir(), error.strerror or error
            raise HomeError(f"what is in the database cannot be copied: {place}: {reason}", exit_code=1) from None
        home.data = data
        try:
            yield
        finally:
            home.data = kept


def current_data(options: Options, home: Home) -> AbstractContextManager[None]:
    """Let the data of the home be what is stored now. Settings with mistakes need not be understood: then they are the files."""
    try:
        return stored_data(home, options.load()[1])
    except SettingsError:
        return nullcontext()


def change_files(home: Home, change: Callable[[Ref[JournalMessage]], Awaitable[T]]) -> T:
    """Return what `change` returns; it gets a journal of its own while the home is held.

    Changes go through a journal actor here as they do in the daemon, so that they are synced and recorded in the same way.
    Raises HomeBusy if a daemon holds the home, and what `change` raises. A crash leaves what was synced before it, and the
    journal repairs a torn end the next time.
    """
    with own_home(home):
        prepare_data(home, partial(_refuse_older, home))
        return trio.run(_with_journal, home, change)


def _refuse_older(home: Home, _backup: Path) -> None:
    """Leave data of an older version to the agent, which makes a backup before it changes the form."""
    raise HomeError(f"{home}: an older version has written data here; start the agent once, and try again", exit_code=1)


async def _with_journal(home: Home, change: Callable[[Ref[JournalMessage]], Awaitable[T]]) -> T:
    """Run `change` with a journal actor over the files of the home, under a supervisor that stops it cleanly at the end."""

    async def run(inbox: Any) -> None:
        """Run the journal over the files of the home, with the wall clock."""
        await run_journal(inbox, FileDisk(home.data), clock=wall_clock)

    async with open_supervisor([Child("journal", run)]) as supervisor:
        return await change(supervisor.ref("journal"))


# ------------------------------------------------------------------ output


def json_line(answer: Answer) -> str:
    """Return the answer as one line of JSON."""
    return json.dumps(answer, ensure_ascii=False)


def is_terminal(stream: TextIO | None) -> bool:
    """Return True for an open stream on a terminal. A standard stream that was closed before the start is None."""
    return stream is not None and stream.isatty()


def print_text(text: str, *, always: bool = True) -> None:
    """Print text that strangers may have written, neutralised.

    always: also where stdout is no terminal. Without it programs get the text as it is.
    """
    print(neutralise(text) if always or is_terminal(sys.stdout) else text, flush=True)


def fit_terminal(row: str) -> str:
    """Return the row, or so much of it as fits the terminal's width.

    All of it where stdout is no terminal, or one of unknown width: programs and files get whole lines. Rows of a table that wrap
    cannot be read as a table, and `show` prints each text in full.
    """
    width = shutil.get_terminal_size(fallback=(0, 0)).columns
    if not width or (row.isascii() and len(row) <= width) or not is_terminal(sys.stdout):
        return row
    import wcwidth  # a tenth of the command's time, needed for rows that are cut or have other characters

    row = neutralise(row)  # what has no width now would have one when it is printed
    if wcwidth.width(row, control_codes="ignore") <= width:
        return row
    mark = "…" if is_utf8(sys.stdout.encoding) else "..."
    return wcwidth.clip(row, 0, width - len(mark), control_codes="ignore", propagate_sgr=False).rstrip() + mark


def report_failure(message: str) -> int:
    """Print why a command failed, on stderr; return exit code 1.

    Example::

        if file is None:
            return report_failure("there is no session of that name")
    """
    print_error(f"pegasus: {neutralise(message)}")
    return 1
