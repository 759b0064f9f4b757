"""Actors for Trio: mailboxes, asks and supervision trees with the semantics of Erlang/OTP.

It knows nothing of Pegasus. Everything public is exported here; modules with an underscore are private.
"""

from actors._ask import Answer
from actors._errors import ActorDied, ActorError, AskCycle, AskTimeout, GaveUp, MailboxFull
from actors._events import DeadLetter, Event, Events, Exited, Overflowed, Restarting, Started, Stuck
from actors._exits import Crashed, Down, Exit, Killed, Normal, Stopped
from actors._inbox import Inbox
from actors._ref import Ref, watch
from actors._reply import Reply
from actors._spec import AutoShutdown, Backoff, Child, Intensity, Mailbox, Overflow, Restart, Strategy
from actors._supervisor import Supervisor, open_pool, open_supervisor, supervisor
from actors._tree import ActorInfo

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
