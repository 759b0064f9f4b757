"""What happens in the tree, as log entries."""

from __future__ import annotations

from actors import Crashed, DeadLetter, Event, Exited, GaveUp, Overflowed, Restarting, Started, Stuck, Supervisor
from pegasus.observe import get_logger

_log = get_logger("tree")


async def log_events(root: Supervisor) -> None:
    """Log until the tree has ended."""
    async for event in root.events():
        log_event(event)


def log_event(event: Event) -> None:
    """One entry for what a person who runs the daemon would want to know; the rest at level debug."""
    match event:
        case Started():
            _log.debug("started", actor=event.path, attempt=event.attempt)
        case Exited(exit=Crashed(error)):
            _log.exception("crashed", actor=event.path, attempt=event.attempt, error=error)
        case Exited(exit=how):
            _log.debug("ended", actor=event.path, how=type(how).__name__)
        case Restarting(delay=delay):
            _log.warning("will be restarted", actor=event.path, seconds=round(delay, 2))
        case GaveUp():
            _log.error("gave up: too many restarts", actor=event.path or "root", error=str(event))
        case DeadLetter(message=message, why=why):
            _log.debug("nobody took a message", actor=event.path, message=type(message).__name__, why=why)
        case Overflowed(message=message):
            _log.warning("mailbox full", actor=event.path, message=type(message).__name__)
        case Stuck(stack=stack):
            _log.error("does not stop", actor=event.path, waits_at=" < ".join(reversed(stack)))
