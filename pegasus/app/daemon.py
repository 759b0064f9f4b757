"""The daemon: one process that owns its home, listens, says that it is ready, and ends well."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import attrs
import trio

from actors import ActorDied, Child, GaveUp, Strategy, Supervisor, open_supervisor
from pegasus.app.commons import AGENT, RETRY
from pegasus.app.control import ControlPlane
from pegasus.app.control_methods import MemoryMethods, PersonaMethods, TaskMethods
from pegasus.app.events import log_events
from pegasus.app.parts import Parts, Workshop
from pegasus.app.reload import Reloader
from pegasus.app.tree import ROOT, Grown, grow, open_channels
from pegasus.formatting import first_cause
from pegasus.gateway import GatewayConfig, connections_within, open_listeners, run_gateway
from pegasus.host import (
    Home,
    HomeError,
    Notifier,
    Signals,
    announced,
    ensure_token,
    forbid_inspection,
    handle_signals,
    own_home,
    print_error,
    raise_descriptor_limit,
)
from pegasus.identity import BUILT_IN, Persona, PersonaError, load_persona, persona_at_start
from pegasus.intake import Access, Intake
from pegasus.models import ModelConfigError, ModelService, PriceList, UsageTracker
from pegasus.observe import get_logger, stop_logging
from pegasus.settings import Settings, secrets_of
from pegasus.storage import FileDisk, StorageError
from pegasus.tools import secrets_in_environment

if TYPE_CHECKING:
    from actors import Ref
    from pegasus.main_agent import SessionArchives
    from pegasus.memory import Memory
    from pegasus.storage import JournalMessage
    from pegasus.tools import Tool

_log = get_logger("daemon")

FAILURE, GAVE_UP, BAD_SETTINGS = 1, 70, 78
"""Exit codes (interfaces section 1)."""


def run_daemon(home: Home, settings: Settings) -> int:
    """Run until a signal; return the exit code. Problems are written to stderr."""
    forbid_inspection()  # first, before a secret is read
    try:
        try:
            with own_home(home):
                token = ensure_token(home, settings.gateway.token)
                base = _persona(home, settings)
                return _run(_World(home, settings, token, base, persona_at_start(base, home.data)))
        finally:
            stop_logging()  # first, so that what is told below stands last on the screen
    except HomeError as error:
        return _complain(str(error), error.exit_code)
    except (PersonaError, ModelConfigError) as error:
        return _complain(str(error), BAD_SETTINGS)
    except GaveUp as error:
        return _complain(f"{error}; the log tells why", GAVE_UP)
    except (OSError, StorageError, ActorDied) as error:
        return _complain(_cause(error), FAILURE)


@attrs.frozen(eq=False)
class _World:
    home: Home
    settings: Settings
    token: str
    base: Persona
    persona: Persona


def _run(world: _World) -> int:
    try:
        return trio.run(_daemon, world)
    except BaseExceptionGroup as group:  # what went wrong inside a nursery; the first cause is the one to tell
        first = first_cause(group)
        raise first from first.__cause__  # the group itself says nothing


def _models(settings: Settings) -> ModelService:
    usage = UsageTracker(now, Random(), settings.budget, PriceList(settings.prices, settings.providers))  # noqa: S311 ids only
    return ModelService(settings.models, settings.providers, rng=Random(), usage=usage)  # noqa: S311 jitter only


def _workshop(world: _World, models: ModelService) -> Workshop:
    home, settings = world.home, world.settings

    def memory(journal: Ref[JournalMessage]) -> Memory:
        from pegasus.memory import memory_in

        return memory_in(home.data, journal, now)

    def tools(memory: Memory) -> tuple[Tool, ...]:
        from pegasus.tools import standard_tools

        return standard_tools(settings.tools, memory, now)

    def archives() -> SessionArchives:
        from pegasus.main_agent import FolderArchives

        return FolderArchives(home.data / "main")

    return Workshop(
        workspace=home.workspace,
        subagents=(home.subagents,),
        memory=memory,
        tools=tools,
        model_for=models.client,
        talker_for=partial(models.client, lane="conversation"),
        context_window=models.context_window,
        random=Random(),  # noqa: S311 ids only
        counter=models.token_counter,
        skills=(home.skills, home.workspace / "skills"),
        archives=archives,
        in_thread=True,
        secrets=(world.token, *secrets_of(settings), *secrets_in_environment(os.environ)),
    )


def now() -> int:
    """Wall clock, ms since the epoch."""
    return time.time_ns() // 1_000_000


async def _daemon(world: _World) -> int:
    home, settings = world.home, world.settings
    models = _models(settings)
    reloader = Reloader(home, settings, world.token, models)
    disk = FileDisk(home.data)
    workshop = _workshop(world, models)
    model = models.client("default", "conversation")
    parts = Parts(settings, disk, model, world.persona, now, workshop, models, world.base, reloader)
    listeners = await _listen(settings)
    url = _url(settings.gateway.host, listeners)
    notifier = Notifier.from_environment()
    with handle_signals(grace=settings.run.shutdown_grace, on_reload=reloader.request) as signals:
        async with trio.open_nursery() as watch:
            async with (
                open_supervisor(strategy=Strategy.REST_FOR_ONE, intensity=ROOT, name="pegasus") as root,
                trio.open_nursery() as nursery,
            ):
                watch.start_soon(_kill_when_late, signals, root)
                nursery.start_soon(log_events, root)
                grown = await grow(root, parts)
                control = ControlPlane(
                    root=root,
                    journal=grown.journal,
                    main_agent=grown.main_agent,
                    agent_name=world.persona.name,
                    started_at=now(),
                    clock=now,
                    models=models,
                    tasks=TaskMethods(root.ref(AGENT)),
                    memory=MemoryMethods(grown.memory()),
                    persona=PersonaMethods(grown.evolution(), world.persona, settings.agent.owners),
                )
                reloader.journal = grown.journal
                intake = Intake(
                    grown.journal,
                    Access({"cli": settings.channels.cli.allow_from}),
                    settings.agent.owners,
                )
                methods = {**control.methods(), "config.reload": reloader.call}
                door = Child("gateway", run_gateway, _config(world), intake, listeners, methods, backoff=RETRY)
                await open_channels(grown, door, {})
                with announced(home, notifier, ws=url):
                    nursery.start_soon(_after_ready, reloader, notifier, grown, workshop)
                    await signals.stop.wait()
                nursery.cancel_scope.cancel()
            watch.cancel_scope.cancel()
    if signals.overran:
        _log.warning("the stop took too long and was cut short", grace=settings.run.shutdown_grace)
    return 0


async def _kill_when_late(signals: Signals, root: Supervisor) -> None:
    """Kill what is left of the tree when a stop has used up its share of the grace.

    Cancelling the block of a supervisor only begins an ordered stop, in which every actor may take its own shutdown
    time; together these are longer than the grace.
    """
    try:
        await trio.sleep_forever()
    finally:
        if signals.late:
            root.kill("the grace of the stop was over")


async def _after_ready(reloader: Reloader, notifier: Notifier, grown: Grown, workshop: Workshop) -> None:
    """What may wait until people can connect: logs, the task system, the SDK of the model, the watchdog."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloader.run)
        nursery.start_soon(notifier.keep_alive)
        _log.info("ready", model=reloader.current)
        workshop.wanted.set()
        await reloader.models.warm_up()
        gc.freeze()  # what was imported stays for good: a collection that walks an SDK costs a turn many milliseconds


async def _listen(settings: Settings) -> list[trio.SocketListener]:
    host, port = settings.gateway.host, settings.gateway.port
    try:
        return await open_listeners(host, port)
    except OSError as error:
        why = error.strerror or str(error)
        message = f"gateway.host {host!r}, gateway.port {port}: cannot listen there ({why}); choose another, or port 0 for any"
        raise OSError(message) from error


def _url(host: str, listeners: Sequence[trio.SocketListener]) -> str:
    port = listeners[0].socket.getsockname()[1]
    return f"ws://[{host}]:{port}" if ":" in host else f"ws://{host}:{port}"


def _config(world: _World) -> GatewayConfig:
    settings = world.settings.gateway
    return GatewayConfig(
        token=world.token,
        agent=world.persona.name,
        origins=frozenset(settings.allowed_origins),
        max_frame_bytes=settings.max_frame_bytes,
        max_connections=connections_within(raise_descriptor_limit()),
    )


def _persona(home: Home, settings: Settings) -> Persona:
    return load_persona(home.resolve(settings.agent.persona)) if settings.agent.persona else BUILT_IN


def _cause(error: BaseException) -> str:
    """What a person can do something about: behind an actor that did not start, or a nursery, stands the reason."""
    while True:
        error = first_cause(error)
        if isinstance(error, ActorDied | GaveUp) and error.__cause__ is not None:
            error = error.__cause__
        else:
            return str(error)


def _complain(message: str, code: int) -> int:
    for line in message.splitlines():
        print_error(f"pegasus: {line}")
    return code
