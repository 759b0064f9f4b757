"""The daemon: one process that owns its home, listens, announces that it is ready, and stops in order.

Order of a start: lock the home, read persona and token, listen, start the tree (journal, tasks, Main Agent, channels), print the ready
line. What people need not wait for comes behind that: recovery of tasks, the import of the model's SDK. A stop goes the
other way, within the grace of `run.shutdown_grace`; see `_kill_when_late` for work that does not end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Final

import attrs
import trio

from actors import ActorDied, Child, GaveUp, Strategy, Supervisor, open_supervisor
from pegasus.app.control import ControlPlane
from pegasus.app.control_methods import MemoryMethods, PersonaMethods, TaskMethods
from pegasus.app.environment import Environment
from pegasus.app.reload import Reloader
from pegasus.app.services import TASK_AGENT
from pegasus.app.tree import CHILD_BACKOFF, ROOT_INTENSITY, AgentTree, log_tree_events, start_channels, start_tree
from pegasus.channels import AdapterMessage
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
from pegasus.main_agent import FolderArchives
from pegasus.memory import memory_in
from pegasus.models import ModelConfigError, ModelService, PriceList, UsageTracker
from pegasus.observe import get_logger, stop_logging
from pegasus.settings import Settings, secrets_of
from pegasus.storage import FileDisk, StorageError
from pegasus.tools import secrets_in_environment, standard_tools

EXIT_FAILURE: Final = 1
EXIT_GAVE_UP: Final = 70
"""The root supervisor gave up. An outer supervisor (systemd, a container) should start the process again."""
EXIT_BAD_SETTINGS: Final = 78

_log = get_logger("daemon")


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
        return _complain(str(error), EXIT_BAD_SETTINGS)
    except GaveUp as error:
        return _complain(f"{error}; the log tells why", EXIT_GAVE_UP)
    except (OSError, StorageError, ActorDied) as error:
        return _complain(_cause(error), EXIT_FAILURE)


@attrs.frozen(eq=False)
class _World:
    """Everything that is read before the event loop starts."""

    home: Home
    settings: Settings
    token: str
    base_persona: Persona
    persona: Persona


def _run(world: _World) -> int:
    try:
        return trio.run(_daemon, world)
    except BaseExceptionGroup as group:
        # Nurseries wrap what failed in groups that say nothing themselves. The first cause is the one to report.
        first = first_cause(group)
        raise first from first.__cause__


def now() -> int:
    """Return the wall clock, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def _environment(world: _World, models: ModelService, reloader: Reloader) -> Environment:
    home, settings = world.home, world.settings
    return Environment(
        settings=settings,
        disk=FileDisk(home.data),
        models=models,
        persona=world.persona,
        base_persona=world.base_persona,
        clock=now,
        random=Random(),  # noqa: S311 ids only
        workspace=home.workspace,
        subagent_folders=(home.subagents,),
        skill_folders=(home.skills, home.workspace / "skills"),
        open_memory=partial(memory_in, home.data, clock=now),
        make_tools=partial(standard_tools, settings.tools, clock=now),
        archives=FolderArchives(home.data / "main"),
        secrets=(world.token, *secrets_of(settings), *secrets_in_environment(os.environ)),
        switch=reloader,
    )


async def _daemon(world: _World) -> int:
    settings = world.settings
    usage = UsageTracker(now, Random(), settings.budget, PriceList(settings.prices, settings.providers))  # noqa: S311 ids only
    models = ModelService(settings.models, settings.providers, rng=Random(), usage=usage)  # noqa: S311 jitter only
    reloader = Reloader(world.home, settings, world.token, models)
    environment = _environment(world, models, reloader)
    listeners = await _listen(settings)
    notifier = Notifier.from_environment()
    with handle_signals(grace=settings.run.shutdown_grace, on_reload=reloader.request) as signals:
        async with trio.open_nursery() as watch:
            async with (
                open_supervisor(strategy=Strategy.REST_FOR_ONE, intensity=ROOT_INTENSITY, name="pegasus") as root,
                trio.open_nursery() as nursery,
            ):
                watch.start_soon(_kill_when_late, signals, root)
                nursery.start_soon(log_tree_events, root)
                tree = await start_tree(root, environment)
                reloader.journal = tree.journal
                await start_channels(tree, _gateway_child(world, tree, models, reloader, listeners), {})
                with announced(world.home, notifier, ws=_url(settings.gateway.host, listeners)):
                    nursery.start_soon(_after_ready, environment, reloader, notifier)
                    await signals.stop.wait()
                nursery.cancel_scope.cancel()
            watch.cancel_scope.cancel()
    if signals.overran:
        _log.warning("the stop took too long and was cut short", grace=settings.run.shutdown_grace)
    return 0


def _gateway_child(
    world: _World,
    tree: AgentTree,
    models: ModelService,
    reloader: Reloader,
    listeners: Sequence[trio.SocketListener],
) -> Child[AdapterMessage]:
    services = tree.services
    control = ControlPlane(
        root=tree.root,
        journal=tree.journal,
        main_agent=tree.main_agent,
        agent_name=world.persona.name,
        started_at=now(),
        clock=now,
        models=models,
        tasks=TaskMethods(tree.root.ref(TASK_AGENT)),
        memory=MemoryMethods(services.memory),
        persona=PersonaMethods(services.evolution, world.persona, world.settings.agent.owners),
    )
    methods = {**control.methods(), "config.reload": reloader.call}
    access = Access({"cli": world.settings.channels.cli.allow_from})
    intake = Intake(tree.journal, access, world.settings.agent.owners)
    return Child("gateway", run_gateway, _gateway_config(world), intake, listeners, methods, backoff=CHILD_BACKOFF)


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


async def _after_ready(environment: Environment, reloader: Reloader, notifier: Notifier) -> None:
    """Do what people need not wait for: background tasks, the SDK of the model, the watchdog."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloader.run)
        nursery.start_soon(notifier.keep_alive)
        _log.info("ready", model=reloader.current)
        environment.may_work.set()
        await reloader.models.warm_up()


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


def _gateway_config(world: _World) -> GatewayConfig:
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
    """Return the message of the cause that a person can act on, behind nurseries and actors that did not start."""
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
