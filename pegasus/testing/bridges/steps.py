"""`StepPoints`: the points of a delivery at which the suite disturbs a bridge.

Each point is something that the bridge itself does: it asks the service for messages, a frame of it arrives, it sends to the service.
The side that sees it calls `reach` before it goes on. So the moment is the same in each run, and nobody waits for a time to pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum

import trio


class Step(Enum):
    """Points of a delivery. The value is for the report."""

    HANDING_OUT = "before receiving from the service"
    """Service: the bridge asks for messages, and one waits for it."""
    RECEIVED = "after receiving from the service"
    """Gateway: the message has come, and is not on disk yet."""
    ACCEPTED = "before hearing that the agent has it"
    """Gateway: the message is on disk, and the frame that says so is not sent."""
    CONFIRMING = "before acknowledging to the service"
    """Service: the bridge says that it has the message, and the service has not noted it."""
    CONFIRMED = "after acknowledging to the service"
    """Service: the service has noted it, and has not answered."""
    REPLYING = "before receiving a reply"
    """Gateway: a reply is in the outbox, and its frame is not sent."""
    SENDING = "before sending to the service"
    """Service: the bridge sends a reply, and the service has not taken it."""
    SENT = "after sending to the service"
    """Service: the service has taken it, people see it, and it has not answered."""
    ACKNOWLEDGING = "before acknowledging to the agent"
    """Gateway: the acknowledgement has come, and is lost."""
    ACKNOWLEDGED = "after acknowledging to the agent"
    """Gateway: the acknowledgement is noted."""


INWARD = (Step.HANDING_OUT, Step.RECEIVED, Step.ACCEPTED, Step.CONFIRMING, Step.CONFIRMED)
"""Steps of a message from the service to the agent, in order."""
OUTWARD = (Step.REPLYING, Step.SENDING, Step.SENT, Step.ACKNOWLEDGING, Step.ACKNOWLEDGED)
"""Steps of a reply from the agent to the service, in order."""
OF_SERVICE = frozenset({Step.HANDING_OUT, Step.CONFIRMING, Step.CONFIRMED, Step.SENDING, Step.SENT})
"""Steps that the service sees. A service without them, such as a folder, is examined at the gateway's alone."""


class Fault(Enum):
    """Disturbance of a bridge. The value is for the report."""

    KILL = "killed"
    """SIGKILL to the bridge and what it has started."""
    CUT = "connection cut"
    """The connection on which the step was reached ends without an answer."""
    REFUSE = "refused for now"
    """The other side answers that it is overloaded: RECEIVED and SENDING only."""


class StepCut(Exception):
    """End the connection at once, without an answer."""


class StepRefused(Exception):
    """Answer in the words of the protocol that it cannot be taken for the moment."""


class StepPoints:
    """One disturbance at a time, and whether it was met."""

    def __init__(self, kill: Callable[[], Awaitable[None]]) -> None:
        """kill: ends the bridge with SIGKILL, and returns when it is gone."""
        self._kill = kill
        self._armed: tuple[Step, Fault] | None = None
        self._met = trio.Event()

    def arm(self, step: Step, fault: Fault) -> None:
        """Disturb the bridge when this step is reached next."""
        self._armed, self._met = (step, fault), trio.Event()

    def disarm(self) -> None:
        """Disturb nothing."""
        self._armed = None

    async def met(self) -> None:
        """Wait until the disturbance has happened."""
        await self._met.wait()

    async def reach(self, step: Step) -> None:
        """Note that a step is reached. Raises StepCut and StepRefused, which the caller answers as its protocol does."""
        await trio.lowlevel.checkpoint()
        if self._armed is None or self._armed[0] is not step:
            return
        (_, fault), self._armed = self._armed, None
        if fault is Fault.KILL:
            # Whole, even if the connection of this step is served by a task that ends with the bridge.
            with trio.CancelScope(shield=True):
                await self._kill()
        self._met.set()
        raise StepRefused if fault is Fault.REFUSE else StepCut
