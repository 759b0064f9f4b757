"""A program's own service for scheduled jobs, in place of the built-in one.

The agent's tool `cron` works with either. The service keeps the jobs and knows when one is due. What is done then is the agent's part:
`fire` puts the job's prompt into the queue of the chat that the job was made in, whatever its kind, and the outcome is said there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from actors import ActorError, Inbox
from pegasus.access import Role
from pegasus.formatting import quote
from pegasus.intake import Priority
from pegasus.schedule import (
    AddJob,
    EnableJob,
    Job,
    ListJobs,
    RemoveJob,
    RunJob,
    ScheduleError,
    ScheduleMessage,
    ScheduleServices,
    job_item,
)
from pegasus.storage import Accept, Overloaded, StorageError

FireJob = Callable[[Job, int], Awaitable[None]]
"""Runs a job. The second argument is the time at which it was due, ms: a run that is fired twice for the same time is one run."""


class CronService(Protocol):
    """Keeps jobs. Each method may raise ScheduleError, whose text is shown to whoever has asked.

    For example:

        class Calendar:
            async def run(self, fire): ...          # await fire(job, due) for each job that is due, until cancelled
            async def add(self, draft): ...
            …
        async with Agent.create(config, Calendar(), home="~/agent") as agent: ...
    """

    async def run(self, fire: FireJob) -> None:
        """Call `fire` for each job that is due, until cancelled. `fire` raises ScheduleError if the run was not taken."""

    async def add(self, draft: Job) -> Job:
        """Keep a new job under an id that is given to it, and return it. It must be on disk by then."""

    async def list(self) -> Sequence[Job]:
        """Return all jobs, oldest first."""

    async def remove(self, id: str) -> Job:
        """Delete a job and return it."""

    async def enable(self, id: str, enabled: bool) -> Job:
        """Pause a job, or let it go on, and return it."""


def keep_schedule_with(cron: CronService) -> Callable[[Inbox[ScheduleMessage], ScheduleServices], Awaitable[None]]:
    """Return the actor that stands for a service in the tree. An error of the service crashes it, and it is started again."""

    async def keep_schedule(inbox: Inbox[ScheduleMessage], services: ScheduleServices) -> None:
        """Run the service, and answer what the agent asks about jobs, until stopped."""

        async def fire(job: Job, due: int) -> None:
            """Put a run of a job into the queue. Raises ScheduleError if it was not taken.

            The id of the message is made of the job and the time at which it was due, so a run that is fired
            twice is one message.
            """
            try:
                request = (job_item(job, due), "main", Priority.TASK, job.role == Role.OWNER)
                answer = await services.journal.ask(Accept, *request)
            except (StorageError, ActorError) as error:
                raise ScheduleError(str(error)) from None
            if isinstance(answer, Overloaded):
                raise ScheduleError(answer.reason)

        async with trio.open_nursery() as nursery:
            # Beside the mailbox, so that a question is answered while the service waits for the next job.
            nursery.start_soon(cron.run, fire)
            async for message in inbox:
                try:
                    match message:
                        case ListJobs(reply):
                            reply.send(tuple(await cron.list()))
                        case AddJob(reply, draft):
                            reply.send(await cron.add(draft))
                        case RemoveJob(reply, id):
                            reply.send(await cron.remove(id))
                        case EnableJob(reply, id, enabled):
                            reply.send(await cron.enable(id, enabled))
                        case RunJob(reply, id):
                            job = next((job for job in await cron.list() if job.id == id), None)
                            if job is None:
                                raise ScheduleError(f"there is no job {quote(id, 40)}")
                            await fire(job, services.clock())
                            reply.send(job)
                # Said by the service for the person who has asked. Any other error crashes this actor, and with
                # it the run of the service.
                except ScheduleError as error:
                    message.reply.fail(error)
            nursery.cancel_scope.cancel()

    return keep_schedule
