"""`pegasus send`: one message from a script, and the agent's replies.

The command ends when the turn of its message has ended: the agent has stopped thinking about it, with replies or in silence.
A reply that arrives later, such as the result of a background task, waits in the conversation for the next client. Replies
that were waiting from before are printed on stderr, so that a script does not take them for answers.

What is old is decided by numbers: the gateway's welcome names the last reply of the conversation, the message is sent after it,
and every reply with a larger number is new. Two commands that use the same conversation at the same time may see each other's
replies, which is why `--channel` exists.

The message may have been accepted although the command fails (no reply in time, or a lost connection). Then the agent handles
it, and its reply waits in the conversation; running the command again sends another message.
"""

from __future__ import annotations

import sys
from functools import partial
from random import Random

import click
import trio

from pegasus.cli.control import describe_refusal, find_daemon, print_text, report_failure
from pegasus.cli.options import CommandGroup
from pegasus.client import Conversation, FindEndpoint, NotConnected, Offline, Online, open_conversation
from pegasus.host import Home, print_error
from pegasus.messages import ChannelInfo, OutboundMessage
from pegasus.settings import Settings
from pegasus.terminal import Turn, neutralise

COMMANDS = CommandGroup()


@COMMANDS.declare(
    "send",
    click.Argument(["text"]),
    click.Option(["--channel"], default="send", metavar="ID", show_default=True, help="Conversation."),
    click.Option(["--wait"], default=60.0, metavar="SECONDS", show_default=True, help="Longest time to wait."),
)
def run_send(home: Home, settings: Settings, *, text: str, channel: str, wait: float) -> int:
    """Send TEXT to the running agent and print its replies.

    "-" stands for the text on stdin. The exit code is 0 if there was at least one reply. The command returns when the
    agent has finished with the message. Replies to earlier messages of this conversation go to stderr.
    """
    check_channel(channel)
    if not 0 <= wait <= 86400:
        raise click.BadParameter(f"found {wait}; allowed: 0 to 86400 seconds", param_hint="--wait")
    text = sys.stdin.read().strip() if text == "-" else text
    if not text.strip():
        raise click.BadParameter("found nothing to send; allowed: a text", param_hint="TEXT")
    try:
        turn = trio.run(_send, partial(find_daemon, home, settings), ChannelInfo("cli", channel), text, wait)
    except NotConnected as error:
        return report_failure(describe_refusal(error, "send"))
    # A turn may have replies and no end yet, when the time is over: what was printed counts.
    if turn.replied:
        return 0
    if turn.over:
        return report_failure("the agent has finished with the message and said nothing")
    return report_failure(f"no reply within {wait:g} s; it will wait in the conversation cli:{channel}")


def check_channel(channel: str) -> None:
    """Raise BadParameter for a channelId that cannot be one.

    The gateway would refuse it as well; here the error names the option, and comes before a daemon is started.
    """
    if not channel or not channel.isprintable():
        raise click.BadParameter(f"found {channel!r}; allowed: printable text", param_hint="--channel")


async def _send(find: FindEndpoint, channel: ChannelInfo, text: str, wait: float) -> Turn:
    """Return the turn, over or not. Raises NotConnected if the daemon cannot be reached or refuses the message.

    A conversation would wait for a daemon that does not run. A script wants to know at once, so that it is looked up first.
    wait: seconds until the turn is returned as it is.
    """
    find()
    turn = Turn(text)
    async with open_conversation(find, channel, random=Random()) as conversation:  # noqa: S311
        with trio.move_on_after(wait):
            await _print_turn(conversation, text, turn)
    return turn


async def _print_turn(conversation: Conversation, text: str, turn: Turn) -> None:
    """Send the text on the first connection, and print replies until the turn is over.

    Before the first connection any failure is final. Later ones are not: the conversation connects again, and a reply that
    was missed comes then.
    """
    before: int | None = None  # seq of the last reply before the message
    async for event in conversation:
        match event:
            case Online(seq=seq) if before is None:
                before = seq
                await conversation.send(text)
            case Offline() if before is None or event.retry_in is None:
                raise NotConnected(event.reason)
            case OutboundMessage(text=reply, seq=seq) if before is not None and seq <= before:
                print_error(neutralise(reply))
                continue
            case OutboundMessage(text=reply):
                print_text(reply)
        turn.handle(event)
        if turn.rejected is not None:
            raise NotConnected(f"the gateway refused the message: {turn.rejected.message}")
        if turn.over:
            break
