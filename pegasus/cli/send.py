"""`pegasus send`: one message from a script, and the replies to it.

The command ends when the turn of its message has ended: the agent has stopped thinking about it, with replies or in silence. A reply
that arrives later, such as the result of a background task, waits in the conversation for the next client. With `--until-done` the
command also waits for the background tasks of the conversation and for what the agent says about their results.

Replies that were waiting from before are printed on stderr, so that a script does not take them for answers. What is old is decided by
numbers: the gateway's welcome names the last reply of the conversation, the message is sent after it, and every reply with a larger
number is new. Two commands that use the same conversation at the same time may see each other's replies, which is why `--channel`
exists.

The message may have been accepted although the command fails (no reply in time, or a lost connection). Then the agent handles
it, and its reply waits in the conversation; running the command again sends another message.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, TextIO

import attrs
import click
import trio

from pegasus.cli.chat import check_channel
from pegasus.cli.commands import Number, pegasus, program_name
from pegasus.cli.control import describe_refusal, find_daemon, print_text, report_failure
from pegasus.client import (
    FindEndpoint,
    MessageRejected,
    NotConnected,
    Offline,
    Online,
    open_conversation,
)
from pegasus.formatting import format_duration
from pegasus.host import Home, print_error
from pegasus.main_agent import task_line
from pegasus.messages import ApprovalNotice, ChannelInfo, Media, OutboundMessage, TaskProgress
from pegasus.settings import Settings
from pegasus.terminal import AttachmentProblem, TurnWatch, frame_bytes, neutralise, read_files, repair_unicode

WAIT: Final = 60.0
"""Seconds that the command waits for the end of the turn."""
WAIT_UNTIL_DONE: Final = 3600.0
"""Seconds that it waits with --until-done."""


@pegasus.declare(
    "send",
    click.Argument(["text"]),
    click.Option(["--channel"], default="send", metavar="ID", show_default=True, help="Conversation."),
    click.Option(["--file", "files"], multiple=True, metavar="FILE", help="Send a file along; - is stdin. Repeatable."),
    click.Option(["--until-done"], is_flag=True, help="Wait for its background tasks, too."),
    click.Option(
        ["--wait"], type=Number(), metavar="SECONDS", help="Longest time to wait [60; 3600 with --until-done]."
    ),
    is_client=True,
)
def run_send(
    home: Home,
    settings: Settings,
    *,
    text: str,
    channel: str,
    files: tuple[str, ...] = (),
    wait: float | None = None,
    until_done: bool = False,
) -> int:
    """Send TEXT to the running agent and print its replies.

    "-" stands for the text on stdin. The command returns when the agent has finished with the message. Replies to
    earlier messages of this conversation go to stderr. The exit code is 0 if there was at least one reply, and with
    --until-done no background task has failed or waits for an answer. Otherwise it is 1.
    """
    check_channel(channel)
    # None and no default in the option: what it is depends on --until-done.
    if wait is None:
        wait = WAIT_UNTIL_DONE if until_done else WAIT
    if not 0 <= wait <= 86400:
        raise click.BadParameter(f"found {wait}; allowed: 0 to 86400 seconds", param_hint="--wait")
    text_given = text != "-"
    if not text_given and "-" in files:
        raise click.BadParameter("stdin is TEXT or a file, not both", param_hint="--file")
    text = repair_unicode(text if text_given else sys.stdin.read().strip())
    if not text.strip():
        raise click.BadParameter("found nothing to send; allowed: a text", param_hint="TEXT")
    try:
        room = settings.gateway.max_frame_bytes - frame_bytes(text)
        paths = [Path(file).expanduser() for file in dict.fromkeys(files)]
        media = read_files(paths, room, sys.stdin.buffer if "-" in files else None)
    except (AttachmentProblem, RuntimeError) as problem:  # RuntimeError: ~nobody is no user
        raise click.BadParameter(str(problem), param_hint="--file") from None
    # The daemon is looked up again at each attempt to connect: after a restart it may listen at another port.
    find = partial(find_daemon, home, settings)
    sending = _Sending(find, ChannelInfo("cli", channel), text, media, until_done)
    try:
        trio.run(sending.run, wait)
    except NotConnected as error:
        return report_failure(describe_refusal(error, "send"))
    if text_given and "-" not in files and _is_unread(sys.stdin):
        print_error("pegasus: what was piped in was not sent; --file - sends it along")
    return _exit_code(sending, wait)


def _is_unread(stdin: TextIO | None) -> bool:
    """Return whether something was piped in that nobody has read; nothing is read of it, a loop of a shell may want it."""
    try:
        fd = stdin.fileno() if stdin is not None else -1
        if fd < 0 or not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return False
        waiting = select.poll()
        waiting.register(fd, select.POLLIN)
        return any(event & select.POLLIN for _, event in waiting.poll(0))
    except (OSError, ValueError):  # no file at all, or a closed one
        return False


def _exit_code(sending: _Sending, wait: float) -> int:
    """Return the exit code, and print on stderr why it is not 0.

    The order matters: a lost daemon explains a missing reply, and is reported before it.
    """
    if sending.absence and not sending.watch.is_over and (sending.until_done or not sending.watch.has_replied):
        return report_failure(sending.absence)
    if not sending.watch.is_accepted:
        return report_failure(f"the agent has not accepted the message within {format_duration(wait)}")
    if sending.until_done:
        if not sending.watch.is_over:
            tasks = "".join(f"\n  task {task_line(task)}" for task in sending.watch.tasks)
            return report_failure(f"not done within {format_duration(wait)}; the work goes on{tasks}")
        problems = [
            f"task {task.number} {'was stopped' if task.reason else 'failed'}; {program_name()} tasks show {task.number}"
            for task in sending.failed
        ]
        problems += [f"waiting for an answer: task {task_line(task)}" for task in sending.watch.tasks]
        if problems:
            return report_failure("; ".join(problems))
    # A turn may have replies and no end yet, when the time is over: what was printed counts.
    if sending.watch.has_replied:
        return 0
    if sending.watch.is_over:
        return report_failure("the agent has finished with the message and said nothing")
    return report_failure(f"no reply within {wait:g} s; it will wait in the conversation {sending.channel.address}")


def _refusal(rejected: MessageRejected, text: str) -> str:
    """Return why the message with this text was not taken, for a person."""
    if rejected.code == "too_large":
        return f"the message is too large, {frame_bytes(text):,} bytes: {rejected.message}"
    return f"the message was not taken: {rejected.message.removeprefix('message.')}"


@attrs.define(eq=False, repr=False)
class _Sending:
    """A message, and what becomes of it."""

    find: FindEndpoint
    """Looks the daemon up."""
    channel: ChannelInfo
    text: str
    media: Sequence[Media]
    until_done: bool
    """The background tasks of the conversation are waited for, too."""
    failed: list[TaskProgress] = attrs.field(factory=list, init=False)
    """Tasks that have failed meanwhile."""
    watch: TurnWatch = attrs.field(init=False)
    """The turn of the message; made by `run`."""

    @property
    def absence(self) -> str:
        """Sentence about the daemon while it is away, "" while it is there."""
        if self.watch.away_since is None:
            return ""
        is_taken = self.watch.is_accepted
        outlook = "unfinished work goes on at its next start" if is_taken else "the message was not taken"
        return f"the agent went away and has not come back; {outlook}: {program_name()} run"

    async def run(self, wait: float) -> None:
        """Send the message and print replies until there are no more to wait for, for at most `wait` seconds.

        A conversation would wait for a daemon that does not run. A script wants to know at once, so that it is looked up first.
        Raises NotConnected if the daemon cannot be reached, refuses the message, or stays away.
        """
        self.find()
        async with open_conversation(self.find, self.channel, random=Random()) as conversation:  # noqa: S311
            self.watch = TurnWatch(conversation, until_done=self.until_done)
            with trio.move_on_after(wait):
                await self._print_replies()

    async def _print_replies(self) -> None:
        """Send the text on the first connection, and print replies until the turn is over.

        Before the first connection any failure is final. Later ones are not: the conversation connects again, and a reply that
        was missed comes then.
        """
        watch, is_sent = self.watch, False
        while not watch.is_over:
            try:
                event = await watch.next_event()
            except NotConnected:
                raise NotConnected(self.absence) from None
            match event:
                case Online() if not is_sent:
                    is_sent = True
                    await watch.send(self.text, self.media)
                case Offline() if not is_sent or event.retry_in is None:
                    raise NotConnected(event.reason)
                case OutboundMessage(text_with_names=reply, seq=seq) if seq <= (watch.before or 0):
                    print_error(neutralise(reply))
                case OutboundMessage(text_with_names=reply):
                    print_text(reply)
                case ApprovalNotice(id=id, tool=tool, state="open") if watch.is_accepted:
                    print_error(f"{neutralise(tool)} waits for your yes: {program_name()} approvals allow {id}")
                case TaskProgress(state="FAILED") if watch.is_accepted:
                    self.failed.append(event)
        if watch.rejected is not None:
            raise NotConnected(_refusal(watch.rejected, self.text))
