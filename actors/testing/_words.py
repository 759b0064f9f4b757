"""Events as lines that are the same in each run."""

from __future__ import annotations

import re

from actors._events import DeadLetter, Event, Exited, GaveUp, Overflowed, Restarting, Started, Stuck, describe_exit

ADDRESS = re.compile(r" ?(object )?at 0x[0-9a-f]+|0x[0-9a-f]{6,}")


def normal(text: str) -> str:
    """Without the addresses that a repr may have."""
    return ADDRESS.sub("", text)


def say(event: Event) -> str:
    """What happened, without the time."""
    who = f"{event.path or 'root'} (run {event.attempt})"
    match event:
        case Started():
            text = f"{who} is up"
        case Exited():
            text = f"{who} ended: {describe_exit(event.exit)}"
        case Restarting():
            text = f"{who} will be started again in {event.delay:.3f} s"
        case DeadLetter():
            text = f"{who}: {type(event.message).__name__} is a dead letter: {event.why}"
        case Overflowed():
            text = f"{who}: no room for {type(event.message).__name__}"
        case Stuck():
            text = f"{who} is stuck at {event.stack[-1] if event.stack else 'an unknown place'}"
        case GaveUp():
            text = f"{who} gave up: {event.brief}"
    return normal(text)
