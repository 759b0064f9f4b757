"""`pegasus chat`, and `pegasus` on a terminal: conversations, and the daemon that is started for one.

**Chat.** On a terminal, `pegasus` joins the daemon of its home if one runs, and starts one otherwise. That daemon is a child process
in a session of its own: Ctrl-C in the terminal does not reach it, a chat that hangs cannot hold it up, and kill -9 of the
chat leaves it running, to be joined by the next `pegasus`. Its stderr is the log file, so that nothing is printed over the
prompt. Leaving the chat stops it with SIGTERM and waits for its end; its exit code is then the command's.

The parent only waits for the child's end. If the daemon ends unexpectedly, the chat reports it and reconnects as soon as another
one is started for this home; after COMES_BACK_SECONDS it ends with that daemon's exit code. The chat does not start a second
daemon by itself: what ended the first may end the next, and restarting is the task of a service manager, which counts
attempts.

Two processes instead of one process with two threads cost a second start of Python, about as long as a person needs to read
the greeting. In return the daemon is the same program with and without a chat, and nothing that a terminal does can delay it:
a suspended chat (Ctrl-Z), a slow ssh connection, a paste of several megabytes.

What an end leaves behind: after a normal end, a signal, or an error of the chat, the daemon that was started here is stopped
as `systemctl stop` would, so that accepted messages are on disk and tasks can go on. After kill -9 of the chat the daemon
runs on without a parent; `pegasus status` finds it, and SIGTERM stops it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, cast

import click
import trio

from pegasus.cli.commands import Options, pegasus, program_name
from pegasus.cli.control import ask_daemon, find_daemon
from pegasus.client import ClientError, NotConnected
from pegasus.formatting import GOES_ON, plural, quote
from pegasus.host import Home, HomeError, folder_problem, print_error, read_daemon
from pegasus.messages import ChannelInfo
from pegasus.settings import Settings
from pegasus.terminal import (
    ChatConfig,
    DaemonGone,
    Leave,
    LeaveRules,
    has_screen,
    restore_terminal,
    run_chat,
)

COMES_BACK_SECONDS: Final = 10.0
"""Seconds to wait for another daemon after the one of this chat has ended: enough for a restart by hand or by systemd."""
STATUS_SECONDS: Final = 2.0
"""Seconds the daemon may take to answer which model it uses, and whether tasks are running.

Short, since both answers only serve a line of text, and the person waits for the prompt or for the end meanwhile.
"""
SLOW_START: Final = 0.5
"""Seconds that the agent may take to start before the chat says so."""
KILL_AFTER: Final = 5.0
"""Seconds beyond the grace of the daemon after which it is killed.

The daemon ends itself by force two seconds after its grace; this is the second guard, for a process that does not run at all
any more, such as one that was stopped with SIGSTOP.
"""

STARTS_AGAIN: Final = "starts it again, and tasks that were running go on"
"""Effect of a new start, behind the command for it."""
_BUSY: Final = 75
"""Exit code of a daemon that finds its home owned by another one."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the chat; SIGHUP comes when the window is closed."""


@pegasus.declare(
    "chat",
    click.Option(["--channel"], default="main", metavar="ID", show_default=True, help="Conversation."),
    click.Option(["--folder"], default="", metavar="PATH", help="Folder that tasks of this chat work in."),
    is_client=True,
)
def run_chat_command(home: Home, settings: Settings, *, channel: str, folder: str) -> int:
    """Chat in the terminal with the running agent.

    Without a terminal each line of stdin is a message, and each reply is printed. The exit code is 1 when no daemon
    runs, it refuses, or it goes away for good, and 128 + n after signal n. With --folder, which is how one begins to work
    somewhere, an agent is started on a terminal if none runs, as without a command.
    """
    check_channel(channel)
    if folder:
        folder = os.path.realpath(os.path.expanduser(folder))
        if problem := folder_problem(folder, home.path, home.workspace):
            raise click.BadParameter(problem, param_hint="--folder")
    starts = bool(folder) and os.isatty(0) and read_daemon(home) is None
    if starts:
        home.prepare()
    options = click.get_current_context().find_object(Options) if starts else None
    return trio.run(_Chat(home, settings, channel, folder).run, None if options is None else options.arguments())


def run_with_chat(home: Home, settings: Settings, options: Sequence[str]) -> int:
    """Chat as `cli:main` with the daemon of this home, which is started if none runs; return the exit code.

    options: the global options of this command line, for the daemon. Raises HomeError if the home cannot be used.
    The code is that of the daemon if it was started here and failed or was lost, else 0, or 1 if a message was not taken.
    """
    home.prepare()
    return trio.run(_Chat(home, settings, "main").run, options)


# ------------------------------------------------------------------ the chat


class _Chat:
    """One chat, and the daemon if it was started for it.

    Its life: find or start a daemon, wait until it is ready, talk, and stop the daemon if it is this chat's. Signals and the
    daemon's death are watched beside, and end the talking by cancelling it.
    """

    def __init__(self, home: Home, settings: Settings, channel: str, folder: str = "") -> None:
        self._home = home
        self._settings = settings
        self._channel = channel
        """The channelId of the conversation; its channel type is "cli"."""
        self._folder = folder
        """Folder that its tasks work in, "" = the workspace."""
        self._received: int | None = None
        """Number of the first signal, None before it."""
        self._own: DaemonProcess | None = None
        """Daemon that leaving must stop; None if it was there before, or has ended and another one was joined."""
        self._agent = "Pegasus"
        """Name of the agent."""
        self._lost: int | None = None
        """Exit code of that daemon, if it has ended and no other was started."""

    async def run(self, options: Sequence[str] | None) -> int:
        """Chat with the running daemon, or start one with these global options unless they are None; return the exit code.

        The file of the running daemon is looked at once. That it may end or begin in the same moment is harmless: the
        conversation reconnects, and of two daemons the home's lock admits one (`_wait_ready`).

        Leaving stops the daemon if it is this chat's. A daemon that was lost, or that did not stop cleanly, counts more than the
        chat's own code: scripts and service managers look at the exit code to find out whether the agent is well.
        """
        if options is not None and read_daemon(self._home) is None:
            self._own = await DaemonProcess.start(self._home, options)
        code = await self._until_left()
        if self._lost is not None:
            return self._lost
        if self._own is not None:
            return await self._own.stop(self._settings.run.shutdown_grace) or code
        return code if self._received is None else 128 + self._received

    async def _until_left(self) -> int:
        """Return the exit code of the chat, when the user has left, a signal has come or the daemon is lost.

        All three end the talking in the same way: the scope is cancelled, and the chat gives the terminal back before this returns.
        """
        code = 0
        async with trio.open_nursery() as nursery:
            scope = nursery.cancel_scope
            nursery.start_soon(self._watch_signals, scope)
            if self._own is None or await self._wait_ready(self._own):
                if self._own is not None:  # the home may belong to another chat's daemon by now
                    nursery.start_soon(self._watch_daemon, self._own, scope)
                code = await self._talk()
                if self._own is not None:
                    await self._announce_stop()
            scope.cancel()
        return code

    async def _talk(self) -> int:
        """Run the chat; return its exit code. A daemon that is gone for good is reported on stderr."""
        status = await self._status()
        self._agent = str(status.get("agent", self._agent))
        has_started = self._own is not None  # then `_watch_daemon` reports its end
        config = ChatConfig(
            ChannelInfo("cli", self._channel),
            self._home.history,
            self._settings.gateway.max_frame_bytes,
            folder=self._folder,
            model=str(status.get("model", "")),
            speech=str(status.get("speech", "")),
            agent_runs=lambda: has_started or read_daemon(self._home) is not None,
            start_command=program_name(),
            leave_rules=self.leave_rules,
        )
        try:
            end = await run_chat(partial(find_daemon, self._home, self._settings), config, Random())  # noqa: S311
        except DaemonGone as error:
            print_error(f"pegasus: {error}")
            return 1
        if end.leave is Leave.KEEP:
            self._keep_daemon()
        elif self._own is None and has_screen():
            if read_daemon(self._home) is None:
                print_error(f"{self._agent} does not run; {program_name()} {STARTS_AGAIN}.")
            else:
                print_error(f"{self._agent} goes on; {program_name()} joins it again.")
        return end.code

    def leave_rules(self) -> LeaveRules:
        """Return what leaving does at this moment. Called from any thread."""
        return LeaveRules(stops_agent=self._own is not None, resumes=self._settings.tasks.recovery == "resume")

    def _keep_daemon(self) -> None:
        """Leave the daemon running that was started for this chat, and print how to find it again."""
        self._own = None
        daemon = read_daemon(self._home)
        ends = f", and `kill {daemon.pid}` ends it" if daemon is not None else ""
        print_error(f"{self._agent} goes on in the background. `{program_name()}` joins it again{ends}.")

    async def _status(self) -> Mapping[str, object]:
        """Return the daemon's answer to `status`, {} if there is none in time; the chat works without it."""
        with trio.move_on_after(STATUS_SECONDS), suppress(ClientError):
            return await ask_daemon(find_daemon(self._home, self._settings), "status", {}, STATUS_SECONDS)
        return {}

    async def _announce_stop(self) -> None:
        """Print that the agent is being stopped, and what becomes of tasks that are running.

        A stop may take as long as `run.shutdown_grace`; a prompt that is gone without a word would look like a hang.
        """
        status = await self._status()
        print_error(f"Stopping {self._agent}; Ctrl-C ends it at once.")
        tasks = status.get("tasks")
        running = sum(tasks[key] for key in ("working", "waiting")) if isinstance(tasks, Mapping) else 0
        if running:
            verb = "is" if running == 1 else "are"
            if self._settings.tasks.recovery == "resume":
                they_go = "it goes" if running == 1 else "they go"
                outcome = f"{they_go} {GOES_ON}"
            else:
                outcome = "the next start reports a failure"
            print_error(f"{plural(running, 'task')} {verb} running; {outcome}.")

    # -------------------------------------------------------------- beside it

    async def _watch_signals(self, scope: trio.CancelScope) -> None:
        """Leave after the first signal. Later ones are ignored here; while the daemon is stopped `_end_at_once` handles them."""
        with trio.open_signal_receiver(*_SIGNALS) as signals:
            async for number in signals:
                if self._received is None:
                    self._received = number
                    scope.cancel()

    async def _wait_ready(self, daemon: DaemonProcess) -> bool:
        """Return True when there is a daemon to talk with; the one that was started, or another one that was faster.

        Two chats that are started at the same moment both find no daemon. The lock of the home decides, and the one whose daemon
        ends with _BUSY joins the other's.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report_start)
            is_ready = await daemon.wait_ready()
            nursery.cancel_scope.cancel()
        if is_ready:
            return True
        code = await daemon.wait()
        if code == _BUSY:
            self._own = None
            return await _comes_back(self._home)
        print_error(daemon.error_output())
        self._lost = code
        return False

    async def _report_start(self) -> None:
        """Print that the agent is starting if that takes so long that somebody would wonder."""
        await trio.sleep(SLOW_START)
        if has_screen():
            print_error(f"Starting {self._agent} …")

    async def _watch_daemon(self, daemon: DaemonProcess, scope: trio.CancelScope) -> None:
        """Report that the daemon has ended, and end the chat if no other is started.

        The conversation reconnects by itself meanwhile. From now on the chat owns no daemon: another one that comes was started by
        somebody else, and leaving does not stop it.
        """
        code = await daemon.wait()
        self._own = None
        print_error(f"pegasus: the agent has ended with exit code {code}; waiting for it to come back")
        if not await _comes_back(self._home):
            print_error(f"pegasus: it did not come back; {program_name()} {STARTS_AGAIN}")
            self._lost = code
            scope.cancel()


def check_channel(channel: str) -> None:
    """Raise BadParameter for a channelId that cannot be one.

    The gateway would refuse it as well; here the error names the option, and comes before a daemon is started.
    """
    if not channel or not channel.isprintable():
        raise click.BadParameter(f"found {quote(channel)}; allowed: printable text", param_hint="--channel")


# ------------------------------------------------------------------ the daemon's process


class DaemonProcess:
    """Daemon as a child process in a session of its own."""

    def __init__(self, process: trio.Process, home: Home, log_size: int) -> None:
        self._process = process
        self._output = cast("trio.abc.ReceiveStream", process.stdout)
        """Pipe from the daemon's stdout, which carries the ready line and nothing else."""
        self._home = home
        self._log_size = log_size
        """Bytes of the log before the start; what stands behind them was written by this daemon."""

    @classmethod
    async def start(cls, home: Home, options: Sequence[str]) -> DaemonProcess:
        """Start `pegasus run --no-cli` with these global options. The folders of the home must be there.

        The process gets a session of its own, so that neither Ctrl-C nor the end of the terminal reaches it, no stdin, and
        the log file as its stderr. Python's -P keeps modules in the present folder from being imported instead of ours. It is left
        out where that folder is what Pegasus itself is imported from, a checkout that is not installed.
        """
        flags = [] if str(Path(__file__).parents[2]) == os.getcwd() else ["-P"]
        command = [sys.executable, *flags, "-m", "pegasus", *options, "run", "--no-cli"]
        with _log_file(home) as log:
            process = await trio.lowlevel.open_process(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
            return cls(process, home, os.fstat(log).st_size if log >= 0 else 0)

    async def wait_ready(self) -> bool:
        """Return True when the daemon has printed its ready line, False if it has ended before.

        There is no timeout: a start that repairs a large journal may take its time, and Ctrl-C ends the wait.
        """
        seen = b""
        async for chunk in self._output:
            seen += chunk
            if b"\n" in seen:
                return True
        return False

    async def wait(self) -> int:
        """Return the exit code when the daemon has ended, 128 + n if signal n has killed it."""
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    async def stop(self, grace: float) -> int:
        """Send SIGTERM and wait for the end; return the exit code. A signal meanwhile ends both processes at once.

        grace: the daemon's `run.shutdown_grace`. A daemon that still runs KILL_AFTER seconds after it is killed; it should have
        ended itself two seconds after.
        """
        with _end_at_once(self._process):
            self._process.terminate()
            with trio.move_on_after(grace + KILL_AFTER):
                return await self.wait()
            self._process.kill()
            return await self.wait()

    def error_output(self) -> str:
        """Return what the daemon has written to stderr beside log entries: why it could not start.

        Lines of commands begin with "pegasus: "; where there are none, as after a crash of Python itself, everything that was
        written since the start is returned.
        """
        with suppress(OSError), self._home.log.open("rb") as file:
            file.seek(self._log_size)
            lines = file.read().decode(errors="replace").splitlines()
            return "\n".join(line for line in lines if line.startswith("pegasus: ")) or "\n".join(lines)
        return ""


async def ensure_daemon(home: Home, options: Sequence[str]) -> None:
    """Return when a daemon of this home is ready. One that is started here goes on after this process.

    options: the global options of this command line. Several programs may find none and start one at the same time; the lock of the
    home admits one, and the others wait for that. Raises NotConnected if it cannot start.
    """
    if read_daemon(home) is not None:
        return
    try:
        home.prepare()
    except HomeError as error:
        raise NotConnected(str(error)) from None
    daemon = await DaemonProcess.start(home, options)
    if await daemon.wait_ready():
        return
    code = await daemon.wait()
    if code != _BUSY or not await _comes_back(home):
        raise NotConnected(daemon.error_output() or f"the agent has ended with exit code {code}")


async def _comes_back(home: Home) -> bool:
    """Return True as soon as a daemon of this home is announced, False if none is within COMES_BACK_SECONDS."""
    with trio.move_on_after(COMES_BACK_SECONDS):
        while read_daemon(home) is None:  # noqa: ASYNC110  another process notifies nobody
            await trio.sleep(0.1)
        return True
    return False


@contextmanager
def _log_file(home: Home) -> Iterator[int]:
    """Open the log for appending; yields DEVNULL where it cannot be written.

    The agent then works without a log, as it does when the disk becomes full later. The daemon opens the same file itself and
    finds that its stderr is that file, so that no entry is written twice.
    """
    try:
        log = os.open(home.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield subprocess.DEVNULL
        return
    try:
        yield log
    finally:
        os.close(log)


@contextmanager
def _end_at_once(process: trio.Process) -> Iterator[None]:
    """While the block runs, a signal kills the process and ends this one with 128 + the signal's number.

    A person who presses Ctrl-C again does not want to wait for the graceful stop. What was accepted is on disk, as after any
    crash. `os._exit` skips Python's cleanup, so that the terminal is restored explicitly.
    """

    def end(number: int, _frame: object) -> None:
        """Kill the daemon that this chat has started, and end this process. A signal handler: it must not wait for anything."""
        with suppress(OSError):
            process.kill()
        restore_terminal()
        os._exit(128 + number)

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
