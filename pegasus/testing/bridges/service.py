"""`BridgeService`: the chat service of a bridge that is examined, as far as the suite must know it.

A fake of a service implements three methods, and calls `points.reach` at the steps that it can see:

    class Pigeons(BridgeService):
        channel_type = "pigeon"

        @asynccontextmanager
        async def open(self, folder, points):
            async with open_loft(self, points) as port:
                yield {"PIGEON_URL": f"tcp://127.0.0.1:{port}"}

        async def write(self, text):
            self.loft.append(text)

        def seen(self):
            return self.windowsill

    python -m pegasus.testing bridge --service my_module:Pigeons my_bridge

What `open` yields is the environment of the bridge, beside PEGASUS_URL, PEGASUS_TOKEN and BRIDGE_STATE. `HttpBridgeService` is the
same for a service that is called by HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import ClassVar

from pegasus.testing.bridges.steps import OF_SERVICE, Step, StepCut, StepPoints, StepRefused
from pegasus.testing.services.server import HANG_UP, FakeService, ServiceRequest, ServiceResponse, open_service


class BridgeService:
    """The service's side. It outlives the bridge, which is killed and started again."""

    channel_type: ClassVar[str]
    """Channel type that the bridge serves, such as "irc"."""
    steps: ClassVar[frozenset[Step]] = OF_SERVICE
    """Steps of `OF_SERVICE` that this service can see; it calls `points.reach` at each of them."""
    most_characters: ClassVar[int] = 0
    """Length of the longest text that the service takes as one message; 0: as long as one likes."""

    def open(self, folder: Path, points: StepPoints) -> AbstractAsyncContextManager[Mapping[str, str]]:
        """Run the service for as long as the block lasts; its value is the environment that the bridge needs.

        folder: an empty one, for what the bridge keeps between its starts. In it no other run has left anything.
        """
        raise NotImplementedError

    async def write(self, text: str) -> None:
        """Let a person write this in the conversation that the suite uses. The bridge may be down at this moment."""
        raise NotImplementedError

    async def settle(self) -> None:
        """Wait until what the service has taken can be seen, where that takes time. Called once, before the last `seen`."""

    def seen(self) -> Sequence[str]:
        """Return the texts of all messages of the bridge that people see, each as often as they see it.

        A message that the service recognised as one it has is seen once. A reply that the bridge has split is several.
        """
        raise NotImplementedError


class HttpBridgeService(FakeService, BridgeService):
    """A service that is called by HTTP: `answer` calls `self.points.reach`, and may let its exceptions pass.

    `upgrade` may take WebSockets, as in every `FakeService`; it answers the exceptions itself.
    """

    points: StepPoints
    """Steps of this run, from `open` on."""
    busy: ClassVar[ServiceResponse] = ServiceResponse(503, b"try again later")
    """Answer of a service that cannot take it for the moment."""

    def environment(self, folder: Path) -> Mapping[str, str]:
        """Return what the bridge needs to find `base_url`. folder: for what it keeps."""
        raise NotImplementedError

    @asynccontextmanager
    async def open(self, folder: Path, points: StepPoints) -> AsyncIterator[Mapping[str, str]]:
        """Listen on loopback for as long as the block lasts."""
        self.points = points
        async with open_service(self):
            yield self.environment(folder)

    async def handle(self, request: ServiceRequest) -> ServiceResponse:
        """Answer a request, or disturb the bridge if it is at a step."""
        try:
            return await super().handle(request)
        except StepCut:
            return HANG_UP
        except StepRefused:
            return self.busy
