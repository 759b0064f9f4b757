"""`Intake`: checks a message, decides its lane and priority, and hands it to the journal.

There are two calls because of what senders need. `submit` waits until the message is on disk, which is right for an adapter
that handles one message at a time. `send` returns as soon as the message is in the journal's mailbox, with the answer still
to come: a client of the gateway may then have many messages under way, which share one sync of the disk. The order in which
`send` is called is the order in the queue.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from actors import Answer, Ref
from pegasus.intake.access import Access, priority_of
from pegasus.intake.checks import check_message
from pegasus.intake.commands import lane_of
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.storage import Accept, Accepted, JournalMessage, Overloaded

JOURNAL_TIMEOUT = 30.0
"""Seconds to wait for the journal. A disk that takes longer for one append cannot be relied on."""


@attrs.frozen(eq=False)
class Intake:
    """The one way in; made once by the daemon and given to the gateway and to every adapter.

    Example::

        intake = Intake(journal, Access({"sms": ["+8613800138000"]}), owners=("sms:+8613800138000",))
        answer = await intake.submit(InboundMessage("hello", ChannelInfo("sms", "+8613800138000"), id="sms-1"))
        if isinstance(answer, Overloaded):
            ...  # not taken; the sender is to try again later
    """

    journal: Ref[JournalMessage]
    """The actor that writes the inbox."""
    access: Access = attrs.field(factory=Access)
    """The rules about who may write; open to everybody by default."""
    owners: Collection[str] = ()
    """The entries of `agent.owners`: senders whose messages go first."""

    def check_access(self, channel: ChannelInfo) -> None:
        """Raise Denied unless this channel may write: for a client that connects, before it has sent a message."""
        self.access.check(channel)

    async def send(self, message: InboundMessage) -> Answer[Accepted | Overloaded]:
        """Put the message into the journal's mailbox, and return the answer to wait for.

        The answer is Accepted once the message is on disk. It raises StorageError if the disk refused, and ActorError if the
        journal has gone or does not answer in time.

        Raises InvalidMessage, Denied, and ActorError if the mailbox cannot be reached. Waits while the mailbox is full.
        Cancelled in this wait, nothing was sent; afterwards the message is on its way whether the answer is waited for or not.
        """
        check_message(message)
        self.access.check(message.channel)
        priority = priority_of(message.channel, self.owners)
        return await self.journal.request(Accept, message, lane_of(message.text), priority)

    async def submit(self, message: InboundMessage, timeout: float = JOURNAL_TIMEOUT) -> Accepted | Overloaded:
        """Give the agent a message. When this returns Accepted, the message is on disk and will be answered, come what may.

        The same id on the same address is taken once, so it may be submitted again whenever the outcome is not known.
        timeout: seconds. Raises InvalidMessage, Denied, StorageError (the disk refused), ActorError (no answer in time).
        Cancelled, the message may or may not be accepted.
        """
        answer = await self.send(message)
        return await answer.get(timeout)
