"""What can go wrong between actors. Every error says whom it concerns, which message, and when."""

from __future__ import annotations


class ActorError(Exception):
    """Something between actors went wrong.

    target: path of the actor concerned. message_type: name of the message's class, "" if none is concerned.
    time: trio.current_time() of the failure, in seconds. brief: the text without the time.
    """

    def __init__(self, why: str, *, target: str, message_type: str = "", time: float) -> None:
        about = f"{message_type} to {target!r}" if message_type else repr(target)
        self.brief = f"{about}: {why}"
        super().__init__(f"{self.brief} (t={time:.3f})")
        self.why = why
        self.target = target
        self.message_type = message_type
        self.time = time


class ActorDied(ActorError):
    """The callee does not exist, has ended, or ended before it answered; a crash is the `__cause__`."""


class MailboxFull(ActorError):
    """The mailbox has no room and does not let the sender wait."""


class AskTimeout(ActorError):
    """The deadline of the ask, its own or an inherited one, has passed. The callee may still do what was asked."""


class AskCycle(ActorError):
    """Waiting for this answer would close a circle of actors that wait for each other; `path` is the circle."""

    def __init__(self, path: tuple[str, ...], *, message_type: str, time: float) -> None:
        super().__init__(
            f"would wait for itself: {' → '.join(path)}", target=path[1], message_type=message_type, time=time
        )
        self.path = path


class GaveUp(ActorError):
    """A supervisor ended because children failed more often than its intensity allows, or could not start.

    The last failure is the `__cause__`. It is raised by open_supervisor, and is also the event of that moment: `path`
    and `attempt` are those of the supervisor ("" and 1 for the root).
    """

    def __init__(self, why: str, *, name: str, path: str, time: float, attempt: int) -> None:
        super().__init__(why, target=path or name, time=time)
        self.path = path
        self.attempt = attempt
