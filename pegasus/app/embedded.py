"""The environment of an agent that runs within another program: that of the daemon, without what takes a process over.

There are no listeners, no signal handlers, no log file, no lines on stdout. Everything else is the same: the home and its lock, disk,
models, tools, walls around commands, MCP servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import attrs
import trio

from pegasus.app.environment import Environment
from pegasus.app.real_world import find_changed_files, look_at_world, make_environment, make_models
from pegasus.app.reload import Reloader
from pegasus.host import Home, ensure_token, own_home
from pegasus.models import UsageTracker
from pegasus.settings import Settings


@attrs.frozen(eq=False, repr=False)
class EmbeddedWorld:
    """The environment, and what changes its settings."""

    environment: Environment
    reloader: Reloader
    usage: UsageTracker

    async def aclose(self) -> None:
        """Close the connections to providers of models."""
        await self.reloader.models.aclose()

    async def run(self) -> None:
        """Do what nobody waits for: background tasks may begin, the SDK of the model is imported. Runs until it is cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.reloader.run)
            self.environment.may_work.set()
            nursery.start_soon(
                partial(trio.to_thread.run_sync, abandon_on_cancel=True), self.environment.sandbox.now.remove_leftovers
            )
            await self.reloader.models.warm_up()


@contextmanager
def own_world(home: Home, settings: Settings) -> Iterator[EmbeddedWorld]:
    """Lock a home and give its world while the body runs. Blocks at the start, below a second.

    Raises HomeError (HomeBusy if another process or another agent of this one has it), PersonaError, SandboxError, ModelConfigError.
    """
    with own_home(home):
        world = look_at_world(home, settings, ensure_token(home, settings.gateway.token))
        try:
            models, usage = make_models(settings)
            reloader = Reloader(home, world.in_force, world.token, models, writes_log=False)
            reloader.find_changed_files = partial(find_changed_files, world)
            yield EmbeddedWorld(make_environment(world, models, reloader), reloader, usage)
        finally:
            world.files.close()
