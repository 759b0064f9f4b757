"""The control plane's methods about scheduled jobs: `cron.list`, `cron.add`, `cron.remove`, `cron.pause`, `cron.resume`, `cron.run`.

`pegasus cron …`, the routes below `/api/cron` and the page call them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import attrs

from actors import Ref
from pegasus.app.params import bad_params_for, require_owner, require_text
from pegasus.gateway import Caller, Method, Params
from pegasus.messages import ChannelInfo, Json
from pegasus.policy import Principal, Role
from pegasus.schedule import (
    AddJob,
    EnableJob,
    ListJobs,
    RemoveJob,
    RunJob,
    ScheduleError,
    ScheduleMessage,
    draft_job,
    job_view,
    jobs_view,
)
from pegasus.settings import InForce

ANSWER_TIMEOUT = 10.0
"""Seconds that the actor may take to answer."""


@attrs.frozen(eq=False, repr=False)
class CronMethods:
    """The jobs, for owners.

    cron = CronMethods(keeper, wall_clock, owners=InForce(("cli:*",)))
    await cron.add(caller, {"schedule": {"cron": "0 9 * * 1-5"}, "prompt": "What is new?", "channel": "cli:main"})
    """

    keeper: Ref[ScheduleMessage]
    """The actor that keeps the jobs."""
    clock: Callable[[], int]
    """Wall clock, ms."""
    owners: InForce[Collection[str]]
    """The setting `agent.owners`."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {
            "cron.list": self.list,
            "cron.add": self.add,
            "cron.remove": self.remove,
            "cron.pause": self.pause,
            "cron.resume": self.resume,
            "cron.run": self.run,
        }

    async def list(self, caller: Caller, params: Params) -> Json:
        """Return all jobs, oldest first."""
        return jobs_view(await self.keeper.ask(ListJobs, timeout=ANSWER_TIMEOUT), self.clock())

    async def add(self, caller: Caller, params: Params) -> Json:
        """Make a job and return it. The params are a job as in `draft_job`; the caller's own channel counts if none is named."""
        require_owner(caller, self.owners.now, "schedules jobs")
        origin = ChannelInfo(caller.type, caller.channel_id, caller.user_id) if caller.channel_id else None
        principal = Principal(Role.OWNER, origin or ChannelInfo(caller.type, ""))
        with bad_params_for(ScheduleError):
            draft = draft_job(params, self.clock(), principal, origin)
            return job_view(await self.keeper.ask(AddJob, draft, timeout=ANSWER_TIMEOUT), self.clock())

    async def remove(self, caller: Caller, params: Params) -> Json:
        """Delete the job `id`; return it."""
        return await self._ask_about(caller, params, RemoveJob)

    async def pause(self, caller: Caller, params: Params) -> Json:
        """Let the job `id` rest; return it."""
        return await self._ask_about(caller, params, EnableJob, False)

    async def resume(self, caller: Caller, params: Params) -> Json:
        """Let the job `id` go on with its next time; return it."""
        return await self._ask_about(caller, params, EnableJob, True)

    async def run(self, caller: Caller, params: Params) -> Json:
        """Run the job `id` now; return it when the run is on disk."""
        return await self._ask_about(caller, params, RunJob)

    async def _ask_about(
        self, caller: Caller, params: Params, make: Callable[..., ScheduleMessage], *args: bool
    ) -> Json:
        """Return the job `id` after the change that the message of the keeper asks for."""
        require_owner(caller, self.owners.now, "schedules jobs")
        id = require_text(params, "id", "the id of a job, as `pegasus cron list` shows it")
        with bad_params_for(ScheduleError, key="id"):
            return job_view(await self.keeper.ask(make, id, *args, timeout=ANSWER_TIMEOUT), self.clock())
