"""`Intake`: checks a message, decides its lane and priority, and hands it to the journal.

There are two calls because of what senders need. `submit` waits until the message is on disk, which is right for an adapter
that handles one message at a time. `send` returns as soon as the message is in the journal's mailbox, with the answer still
to come: a client of the gateway may then have many messages under way, which share one sync of the disk. The order in which
`send` is called is the order in the queue.

The inbox has two lanes. Lane "main" is one queue of work: its items are thought about one after the other. Lane "control" is
for commands that make no sense if they wait behind the work they are about: `/stop` has to end the running thought, and
`/status` has to say what that thought is. `/new` is a command too, but keeps its place in the main lane: it puts the session
aside, which may not happen in the middle of a thought.

A command that does not exist is found before a model is asked (`find_unknown`), and answered with the names of similar ones. A
mistyped `/staus` would otherwise go to the model as text, which may take it for anything. The Main Agent answers it for every
channel; the terminal uses the same functions, so that a person there is answered while the agent is busy, too. A text is a command
only if its first word looks like the name of one: a slash, then lower-case letters, digits, `_` and `-`. So `/etc/hosts is broken`
and `/Users is empty` are text, and so is everything with a blank in front.

Names (message ids, channel types, channelIds, userIds, replyTo) come from outside and go to three places: into the line
`[channel: <type> | id: <channelId> …]` that the model reads, into the journal, and back to the client. The model's copy is
stripped of invisible characters. So a channel type `cli` followed by a zero-width space would read to the model as `cli`,
the owner's terminal, although it is another channel. Therefore a name is refused if that stripping or Unicode's compatibility
normalisation (NFKC) changes it: two different names never look the same because of characters that nobody can see.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection
from contextlib import suppress
from types import MappingProxyType
from typing import Final

import attrs
import trio

from actors import Answer, Ref
from pegasus.access import (
    MESSAGE,
    Access,
    NotListed,
    PairingBook,
    PairingRequired,
    Principal,
    TokenBook,
    TokenGrant,
    TokenRefused,
    is_group,
    sender_of,
    with_role,
)
from pegasus.conversation import sanitize_for_prompt
from pegasus.intake.commands import lane_of
from pegasus.intake.limits import AdmitGuest, GuestLimits, Priority, TooManyMessages
from pegasus.messages import APART, FOLDER, ChannelInfo, InboundMessage, Metadata, OutboundMessage
from pegasus.retry import Pauses
from pegasus.settings import LiveValue
from pegasus.storage import (
    Accept,
    Accepted,
    Acknowledge,
    JournalMessage,
    Overloaded,
    undelivered_item,
)
from pegasus.wire import describe

JOURNAL_TIMEOUT: Final = 30.0
"""Seconds to wait for the journal. A disk that takes longer for one append cannot be relied on."""
NAME_LENGTH: Final = 256
"""Characters that a name may have. Real ids of chat services have fewer than 100."""
NAME_RULE: Final = (
    f"a string of 1 to {NAME_LENGTH} characters "
    "without control characters, invisible ones and compatibility forms (NFKC)"
)

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and halves of surrogate pairs, which no UTF-8 file can hold."""
_INVISIBLE: Final = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Characters without a shape of their own that neither `sanitize_for_prompt` nor NFKC changes."""


class InvalidMessage(ValueError):
    """A field of a message is not what is allowed. str() names the field as it stands on the wire, and what is allowed."""


@attrs.frozen(eq=False, repr=False)
class Intake:
    """The one way in; made once by the daemon and given to the gateway and to every adapter.

    Example::

        intake = Intake(journal, access, owners)
        answer = await intake.submit(InboundMessage("hello", ChannelInfo("sms", "+8613800138000"), id="sms-1"))
        if isinstance(answer, Overloaded):
            ...  # not taken; the sender is to try again later
    """

    journal: Ref[JournalMessage]
    """The actor that writes the inbox."""
    access: LiveValue[Access] = attrs.field(factory=lambda: LiveValue(Access()))
    """The rules about who may write; open to everybody by default."""
    owners: LiveValue[Collection[str]] = attrs.field(factory=lambda: LiveValue(()))
    """The entries of `agent.owners`: senders whose messages go first."""
    pairing: PairingBook = attrs.field(factory=PairingBook)
    """The people whom the owner has let in."""
    limits: LiveValue[GuestLimits] = attrs.field(factory=lambda: LiveValue(GuestLimits()))
    """Numbers of messages that a guest may send; no limits by default."""
    guests: Ref[AdmitGuest] | None = None
    """The actor that counts what they send (`run_guest_limits`); None: nobody does."""
    folder_problem: Callable[[str], str] = lambda folder: "no tasks work in folders here"
    """Returns why tasks must not work in a folder of an owner's own, "" if they may. Blocks briefly."""

    async def check_connect(self, channel: ChannelInfo, grant: TokenGrant | None = None) -> None:
        """Raise AccessDenied unless this channel may write: for a client that connects, before it has sent a message.

        Somebody unknown may connect where they get a code when they write. Raises StorageError and ActorError as `check_write` does.
        """
        with suppress(PairingRequired):
            await self.check_write(channel, {}, grant)

    async def check_write(self, channel: ChannelInfo, metadata: Metadata, grant: TokenGrant | None = None) -> None:
        """Raise AccessDenied unless this channel may write a message with this metadata; PairingRequired where it may ask for that.

        grant: the rights of the client's token; None: an adapter within the program.

        Raises PeopleUnreadable and ActorError if the settings do not name the sender, and the people whom the owner has let in cannot
        be read: then nobody can say whether the message may be taken, and it is to be sent again.
        """
        owners = self.owners.now if grant is None else grant.owners_for(channel.type, self.owners.now)
        try:
            self.access.now.check_rules(channel, metadata, owners=owners)
        except NotListed:
            if not await self.pairing.is_let_in(channel):
                raise

    async def send(
        self,
        message: InboundMessage,
        grant: TokenGrant | None = None,
        *,
        is_bridge: bool = True,
        is_repeated: bool = False,
        added: Metadata = MappingProxyType({}),
    ) -> Answer[Accepted | Overloaded]:
        """Put the message into the journal's mailbox, and return the answer to wait for.

        grant: the rights of the client's token, which decide who may be an owner and whom a guest's message is counted for; None: an
        adapter within the program, whose service has checked who writes. is_bridge: the client or adapter speaks for many people.
        is_repeated: the message was sent before, without an answer, and does not count again. added: metadata of this program, which
        no sender may claim.

        The answer is Accepted once the message is on disk. It raises StorageError if the disk refused, and ActorError if the
        journal has gone or does not answer in time.

        Somebody unknown may get an answer with a code (see `pairing`); nothing of the message is kept then.

        Raises InvalidMessage, AccessDenied (QuotaReached), TooManyMessages, StorageError if a code cannot be kept or people who were
        let in cannot be read, and ActorError if the mailbox cannot be reached. Waits while the mailbox is full.
        Cancelled in this wait, nothing was sent; afterwards the message is on its way whether the answer is waited for or not.
        """
        lane = lane_of(message.text)
        message, sender = await self.admit(message, grant, is_bridge=is_bridge, is_repeated=is_repeated, added=added)
        priority, waiting = (Priority.OWNER, 0) if sender.is_owner else (Priority.PERSON, self.limits.now.waiting)
        return await self.journal.request(Accept, message, lane, priority, sender.is_owner, "", waiting)

    async def admit(
        self,
        message: InboundMessage,
        grant: TokenGrant | None = None,
        *,
        is_bridge: bool = True,
        is_repeated: bool = False,
        added: Metadata = MappingProxyType({}),
    ) -> tuple[InboundMessage, Principal]:
        """Return the message with what its sender has proved, and the sender, if it may be taken. It counts as sent then.

        Arguments and errors are those of `send`. For work that begins with a message and is none of the queue.
        """
        check_message(message)
        try:
            await self.check_write(message.channel, message.metadata, grant)
        except PairingRequired:
            await self.pairing.request(message.channel)
            raise
        in_group = is_group(message.channel, message.metadata)
        message = with_role(message, None) if grant is None else grant.attest(message, is_bridge=is_bridge)
        if added:
            message = attrs.evolve(message, metadata={**message.metadata, **added})
        sender = sender_of(message, self.owners.now)
        if in_group or not sender.is_owner:
            message = attrs.evolve(message, metadata={**message.metadata, APART: True})
            sender = attrs.evolve(sender, is_apart=True)
        if FOLDER in message.metadata:
            message = await self._with_folder(message, is_own=grant is not None and not is_bridge and sender.is_owner)
        if not sender.is_owner and self.guests is not None:
            await self.guests.ask(AdmitGuest, message, is_repeated, timeout=JOURNAL_TIMEOUT)
        return message, sender

    async def _with_folder(self, message: InboundMessage, *, is_own: bool) -> InboundMessage:
        """Return a message that names a folder to work in, without it unless an owner's own client says so. Raises InvalidMessage."""
        folder = message.metadata[FOLDER]
        if not is_own or message.metadata.get(APART):
            rest = {key: value for key, value in message.metadata.items() if key != FOLDER}
            return attrs.evolve(message, metadata=rest)
        problem = "found no text, allowed: the real path of a folder"
        if isinstance(folder, str):
            problem = await trio.to_thread.run_sync(self.folder_problem, folder, abandon_on_cancel=True)
        if problem:
            raise InvalidMessage(f"{FOLDER}: {problem}")
        return message

    async def submit(self, message: InboundMessage, timeout: float = JOURNAL_TIMEOUT) -> Accepted | Overloaded:
        """Give the agent a message. When this returns Accepted, the message is on disk and will be answered, come what may.

        The same id on the same address is taken once, so it may be submitted again whenever the outcome is not known.
        timeout: seconds. Raises InvalidMessage, AccessDenied, StorageError (the disk refused), ActorError (no answer in time).
        Cancelled, the message may or may not be accepted. A guest who sends too much gets Overloaded.
        """
        try:
            answer = await self.send(message)
        except TooManyMessages:
            return Overloaded(self.limits.now.per_minute, of_sender=True)
        return await answer.get(timeout)


async def report_undelivered(journal: Ref[JournalMessage], reply: OutboundMessage, reason: str) -> None:
    """Report to the agent that nobody will ever get this reply; for an adapter whose service refuses it for good.

    The chat may have been deleted, or the number does not exist. Trying again would block the replies behind this one, and dropping
    it silently would leave the agent believing that somebody has read it. So the report becomes a message in the queue, and then the
    reply is acknowledged, so that it is not tried again. After a crash between the two the report is made again; its id makes it
    the same message. While the inbox is full it waits, because a reply that is neither delivered nor reported would be lost.

    reason: one line for the model. Raises StorageError, ActorError. Then, and when cancelled, the report may be repeated.
    """
    report = undelivered_item(reply, reason)
    pauses = Pauses()
    while isinstance(await journal.ask(Accept, report, "main", Priority.TASK), Overloaded):  # noqa: ASYNC110 the journal announces no room
        await trio.sleep(pauses.next())
    await journal.tell(Acknowledge(reply.channel.address, reply.seq))


# ------------------------------------------------------------------ names


def is_name(value: str) -> bool:
    """Return whether the value may be an id or a part of a channel. ASCII has nothing that is invisible beside control characters."""
    return is_attachment_label(value) and (
        value.isascii()
        or (
            _INVISIBLE.search(value) is None
            and value == sanitize_for_prompt(value)
            and value == unicodedata.normalize("NFKC", value)
        )
    )


def is_attachment_label(value: str) -> bool:
    """Return whether the value may be the name or the type of an attachment. It is a label to be shown, not a path: "/" is allowed.

    The rule is milder than for ids, because people do not choose how their computer writes a file's name: macOS decomposes
    accented letters, which NFKC would change. The model sees these names escaped.
    """
    return 0 < len(value) <= NAME_LENGTH and _CONTROL.search(value) is None


def check_message(message: InboundMessage) -> None:
    """Raise InvalidMessage for the first id or part of the channel that cannot be used."""
    channel = message.channel
    names = {
        "id": message.id,
        "channel.type": channel.type,
        "channel.channelId": channel.channel_id,
        "channel.userId": channel.user_id,
        "channel.replyTo": channel.reply_to,
    }
    for field, value in names.items():
        if value is not None and not is_name(value):
            raise InvalidMessage(f"{field}: found {describe(value)}, allowed: {NAME_RULE}; percent-encode all others")
    if ":" in channel.type:  # `a:b` and `c` would be the same chat as `a` and `b:c`, in files, settings and approvals
        found = describe(channel.type)
        raise InvalidMessage(f"channel.type: found {found}, allowed: a name without a colon; put it into the channelId")


async def add_token(
    book: TokenBook, name: str, *, scope: str = "", type: str = "", channel: str = "", bridge: bool = False
) -> str:
    """Make a token for a client as a person asks for it, and return it.

    scope: with commas between; "" = "message". type, channel: what its client must name, "" = anything. Raises TokenRefused, and
    StorageError, ActorError if it may not be on disk.
    """
    for key, value in (("type", type), ("channel", channel)):
        if value and not is_name(value):
            raise TokenRefused(f"{key}: found {describe(value)}, allowed: {NAME_RULE}")
    scopes = [word.strip() for word in (scope or MESSAGE).split(",")]
    return await book.add(name, scopes=scopes, type=type, channel_id=channel, bridge=bridge)
