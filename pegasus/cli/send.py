"""`pegasus send`: one message from a script, and the replies to it.

The command ends when the turn of its message has ended: the agent has stopped thinking about it, with replies or in silence. A reply
that arrives later, such as the result of a background task, waits in the conversation for the next client. With `--until-done` the
command also waits for the background tasks of the conversation and for what the agent says about their results.

The end of a turn is a typing sign, which may be lost: with the connection, say. And no sign tells that the last task was reported.
So while the command waits it also asks the daemon, every CHECK_SECONDS, whether anything is under way for the conversation. The
answer counts when every reply that it names has been printed.

Replies that were waiting from before are printed on stderr, so that a script does not take them for answers. What is old is decided by
numbers: the gateway's welcome names the last reply of the conversation, the message is sent after it, and every reply with a larger
number is new. Two commands that use the same conversation at the same time may see each other's replies, which is why `--channel`
exists.

The message may have been accepted although the command fails (no reply in time, or a lost connection). Then the agent handles
it, and its reply waits in the conversation; running the command again sends another message.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, Final

import attrs
import click
import trio

from actors import Signal
from pegasus.cli.chat import check_channel
from pegasus.cli.commands import Number, pegasus, program_name
from pegasus.cli.control import STATE_SECONDS, ask_daemon, describe_refusal, find_daemon, print_text, report_failure
from pegasus.client import (
    ClientError,
    Conversation,
    FindEndpoint,
    MessageAccepted,
    MessageRejected,
    NotConnected,
    Offline,
    Online,
    open_conversation,
)
from pegasus.formatting import first_cause, format_duration
from pegasus.host import Home, print_error
from pegasus.main_agent import task_line
from pegasus.messages import ApprovalNotice, ChannelInfo, OutboundMessage, TaskProgress
from pegasus.settings import Settings
from pegasus.terminal import ObservedTurn, frame_bytes, neutralise, repair_unicode
from pegasus.wire import from_wire

WAIT: Final = 60.0
"""Seconds that the command waits for the end of the turn."""
WAIT_UNTIL_DONE: Final = 3600.0
"""Seconds that it waits with --until-done."""
CHECK_SECONDS: Final = 3.0
"""Seconds between two questions whether anything is under way. Signs of an end are followed by a question at once."""
AWAY_SECONDS: Final = 60.0
"""Seconds that the daemon may be away (a restart) before the command gives it up."""


@pegasus.declare(
    "send",
    click.Argument(["text"]),
    click.Option(["--channel"], default="send", metavar="ID", show_default=True, help="Conversation."),
    click.Option(["--until-done"], is_flag=True, help="Wait for its background tasks, too."),
    click.Option(
        ["--wait"], type=Number(), metavar="SECONDS", help="Longest time to wait [60; 3600 with --until-done]."
    ),
    is_client=True,
)
def run_send(
    home: Home, settings: Settings, *, text: str, channel: str, wait: float | None = None, until_done: bool = False
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
    text = repair_unicode(sys.stdin.read().strip() if text == "-" else text)
    if not text.strip():
        raise click.BadParameter("found nothing to send; allowed: a text", param_hint="TEXT")
    # The daemon is looked up again at each attempt to connect: after a restart it may listen at another port.
    sending = _Sending(partial(find_daemon, home, settings), ChannelInfo("cli", channel), text, until_done)
    try:
        trio.run(sending.run, wait)
    except NotConnected as error:
        return report_failure(describe_refusal(error, "send"))
    return _exit_code(sending, wait)


def _exit_code(sending: _Sending, wait: float) -> int:
    """Return the exit code, and print on stderr why it is not 0.

    The order matters: a lost daemon explains a missing reply, and is reported before it.
    """
    if sending.absence and not sending.is_over and (sending.until_done or not sending.turn.replied):
        return report_failure(sending.absence)
    if sending.until_done:
        if not sending.is_over:
            tasks = "".join(f"\n  task {task_line(task)}" for task in sending.tasks)
            return report_failure(f"not done within {format_duration(wait)}; the work goes on{tasks}")
        problems = [
            f"task {task.number} {'was stopped' if task.reason else 'failed'}; {program_name()} tasks show {task.number}"
            for task in sending.failed
        ]
        problems += [f"waiting for an answer: task {task_line(task)}" for task in sending.tasks]
        if problems:
            return report_failure("; ".join(problems))
    # A turn may have replies and no end yet, when the time is over: what was printed counts.
    if sending.turn.replied:
        return 0
    if sending.is_over:
        return report_failure("the agent has finished with the message and said nothing")
    return report_failure(f"no reply within {wait:g} s; it will wait in the conversation {sending.channel.address}")


def _refusal(rejected: MessageRejected, text: str) -> str:
    """Return why the message with this text was not taken, for a person."""
    if rejected.code == "too_large":
        return f"the message is too large, {frame_bytes(text):,} bytes: {rejected.message}"
    return f"the message was not taken: {rejected.message.removeprefix('message.')}"


@attrs.define(eq=False, repr=False)
class _Sending:
    """A message, and what becomes of it.

    Example:
        sending = _Sending(find, ChannelInfo("cli", "send"), "hello", until_done=False)
        await sending.run(wait=60.0)
        sending.turn.replied, sending.is_over
    """

    find: FindEndpoint
    """Looks the daemon up."""
    channel: ChannelInfo
    """The conversation."""
    text: str
    """The message, not empty; bytes that are no UTF-8 have become U+FFFD."""
    until_done: bool
    """True if the background tasks of the conversation are waited for, too."""
    turn: ObservedTurn = attrs.field(init=False)
    """The turn of the message, as the signs show it."""
    is_over: bool = False
    """True if there is nothing more to wait for."""
    tasks: Sequence[TaskProgress] = ()
    """Tasks of the conversation that have not ended, as of the last answer of the daemon."""
    failed: list[TaskProgress] = attrs.field(factory=list)
    """Tasks that have failed meanwhile."""
    _away_since: float | None = None
    """Time of the lost connection on Trio's clock; None while there is one."""
    _before: int = 0
    """Number of the last reply before the message. Those up to it may have been acknowledged and do not come again."""
    _is_accepted: bool = False
    """True if the message is on the daemon's disk."""
    _news: Signal = attrs.field(factory=Signal)
    """Given when something may have ended."""

    def __attrs_post_init__(self) -> None:
        self.turn = ObservedTurn(self.text)

    @property
    def absence(self) -> str:
        """Sentence about the daemon while it is away, "" while it is there."""
        if self._away_since is None:
            return ""
        outlook = "unfinished work goes on at its next start" if self._is_accepted else "the message was not taken"
        return f"the agent went away and has not come back; {outlook}: {program_name()} run"

    async def run(self, wait: float) -> None:
        """Send the message and print replies until there are no more to wait for, for at most `wait` seconds.

        A conversation would wait for a daemon that does not run. A script wants to know at once, so that it is looked up first.
        Raises NotConnected if the daemon cannot be reached, refuses the message, or stays away for AWAY_SECONDS.
        """
        self.find()
        try:
            async with open_conversation(self.find, self.channel, random=Random()) as conversation:  # noqa: S311
                with trio.move_on_after(wait):
                    async with trio.open_nursery() as nursery:
                        # Two tasks: signs of the daemon may be lost, so one reads what comes and the other asks now and then.
                        nursery.start_soon(self._check, conversation, nursery.cancel_scope)
                        await self._print_replies(conversation)
                        nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:  # the nursery's, around NotConnected, a closed pipe, or Ctrl-C
            raise first_cause(group) from None

    async def _print_replies(self, conversation: Conversation) -> None:
        """Send the text on the first connection, and print replies until the turn is over; with `until_done` until cancelled.

        Before the first connection any failure is final. Later ones are not: the conversation connects again, and a reply that
        was missed comes then.
        """
        before: int | None = None
        async for event in conversation:
            match event:
                case Online(seq=seq) if before is None:
                    before = self._before = seq
                    await conversation.send(self.text)
                case Offline() if before is None or event.retry_in is None:
                    raise NotConnected(event.reason)
                case Offline() if self._away_since is None:
                    self._away_since = trio.current_time()
                case Online():
                    self._away_since = None
                case OutboundMessage(text_with_names=reply, seq=seq) if before is not None and seq <= before:
                    print_error(neutralise(reply))
                    continue
                case OutboundMessage(text_with_names=reply):
                    print_text(reply)
                case MessageAccepted():
                    self._is_accepted = True
                case ApprovalNotice(id=id, tool=tool, state="open") if self._is_accepted:
                    print_error(f"{neutralise(tool)} waits for your yes: {program_name()} approvals allow {id}")
                case TaskProgress(state="FAILED") if self._is_accepted:
                    self.failed.append(event)
            # After the cases above: a reply is printed before the turn may count as over.
            self.turn.handle(event)
            if self.turn.rejected is not None:
                raise NotConnected(_refusal(self.turn.rejected, self.text))
            if self.turn.over:
                if not self.until_done:
                    self.is_over = True
                    return
                self._news.notify()

    async def _check(self, conversation: Conversation, waiting: trio.CancelScope) -> None:
        """Ask the daemon whether anything is under way, now and then, and end the waiting when nothing is."""
        seen = 0
        while True:
            with trio.move_on_after(CHECK_SECONDS):
                await self._news.wait(seen)
            seen = self._news.count
            # Judged here and not where the connection is lost: nothing comes from a daemon that is away.
            if self._away_since is not None and trio.current_time() >= self._away_since + AWAY_SECONDS:
                raise NotConnected(self.absence)
            if not self._is_accepted:
                continue
            work = await self._ask()
            if work is None:
                continue
            self.tasks = [from_wire(task, TaskProgress) for task in work["tasks"]]
            at_work = self.until_done and any(task.state != "SUSPENDED" for task in self.tasks)
            # All three must hold: no message waits, no task works, and the last reply that the daemon knows was printed here.
            if not work["waiting"] and not at_work and max(self._before, conversation.last_seq or 0) >= work["seq"]:
                self.is_over = True
                waiting.cancel()
                return

    async def _ask(self) -> Any:
        """Return what is under way for the conversation, None if the daemon does not answer; it is asked again later."""
        params = {"type": self.channel.type, "channelId": self.channel.channel_id}
        try:
            return await ask_daemon(self.find(), "conversation", params, STATE_SECONDS)
        except ClientError:
            return None
