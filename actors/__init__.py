"""Actors for Trio: mailboxes, questions with answers, and supervision trees with the semantics of Erlang/OTP.

The package knows nothing of Pegasus and depends on nothing but trio, attrs and outcome. Everything public is exported
here, except for two parts that a program may do without: `actors.text` shows trees and events to people, and
`actors.testing` is the test kit. docs/actors.md is the guide.

Layers, from the bottom: `_signal`, values (`_events`, `_spec`, `_table`), messages (`_reply`, `_cell`, `_ref`), one run of an actor
(`_incarnation`), supervision (`_children`, `_loop`, `_supervisor`).

Example::

    @attrs.frozen
    class Add:
        number: int

    @attrs.frozen
    class Total:
        reply: Reply[int]

    async def counter(inbox: Inbox[Add | Total]) -> None:
        total = 0
        async for message in inbox:
            match message:
                case Add(number):
                    total += number
                case Total(reply):
                    reply.send(total)

    async with open_supervisor([Child("counter", counter)]) as supervisor:
        ref: Ref[Add | Total] = supervisor.ref("counter")
        await ref.tell(Add(2))
        assert await ref.ask(Total, timeout=1) == 2

An actor owns its variables, handles one message at a time, and loses its state when it crashes and is restarted. Whoever
holds its ref notices a restart only by a dead letter or an ActorDied.
"""

from actors._events import (
    ActorDied,
    ActorError,
    AskCycle,
    AskTimeout,
    Crashed,
    DeadLetter,
    Event,
    Events,
    Exit,
    Exited,
    GaveUp,
    Killed,
    MailboxFull,
    Normal,
    Overflowed,
    Restarting,
    Started,
    Stopped,
    Stuck,
)
from actors._incarnation import Inbox, InboxPart
from actors._ref import Answer, Down, Ref, watch
from actors._reply import Reply
from actors._signal import Signal
from actors._spec import AutoShutdown, Backoff, Child, Intensity, Mailbox, Overflow, Restart, Strategy
from actors._supervisor import ActorInfo, Supervisor, open_pool, open_supervisor, supervisor

__all__ = [
    "ActorDied",
    "ActorError",
    "ActorInfo",
    "Answer",
    "AskCycle",
    "AskTimeout",
    "AutoShutdown",
    "Backoff",
    "Child",
    "Crashed",
    "DeadLetter",
    "Down",
    "Event",
    "Events",
    "Exit",
    "Exited",
    "GaveUp",
    "Inbox",
    "InboxPart",
    "Intensity",
    "Killed",
    "Mailbox",
    "MailboxFull",
    "Normal",
    "Overflow",
    "Overflowed",
    "Ref",
    "Reply",
    "Restart",
    "Restarting",
    "Signal",
    "Started",
    "Stopped",
    "Strategy",
    "Stuck",
    "Supervisor",
    "open_pool",
    "open_supervisor",
    "supervisor",
    "watch",
]
