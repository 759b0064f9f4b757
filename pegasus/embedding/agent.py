"""`Agent`: the whole agent within another program, without a daemon, on the host's own Trio run.

It is the tree of the daemon, built by the same functions, with a conversation for each chat. In place of gateway, HTTP server and
adapters stands the desk, from which the host takes what is said. Nothing else of the process is touched: no signal handlers, no log
file, no line on stdout, no global state; log entries go to Python's `logging` as "pegasus.…". Several agents with homes of their own
may run side by side.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs
import trio

from actors import ActorDied, Child, GaveUp, Strategy, open_supervisor
from pegasus.app import (
    CHILD_BACKOFF,
    ROOT_INTENSITY,
    AgentTree,
    Environment,
    open_intake,
    own_world,
    start_channels,
    start_tree,
)
from pegasus.embedding.adapters import ChannelAdapter, OnReply, ReplyRouter
from pegasus.embedding.bus import InboundChatMessage, TurnUsage
from pegasus.embedding.cron import CronService, keep_schedule_with
from pegasus.embedding.desk import ReplyDesk
from pegasus.embedding.turn import MessageStream, TurnServices, TurnStream
from pegasus.formatting import first_cause
from pegasus.host import Home, resolve_home
from pegasus.memory import Memory
from pegasus.settings import ReloadResult, Settings, SettingsSource, load_settings
from pegasus.skills import SkillCatalog

GOODBYE: Final = 2.0
"""Seconds in which connections to providers are closed at the end."""

Config: TypeAlias = "Settings | Mapping[str, Any] | str | os.PathLike[str] | None"
"""Settings as a program gives them.

* a path: that file, which must exist; it has the sections of pegasus.toml.
* a mapping: the same sections as dictionaries, `{"models": {"default": "openai/gpt-5.5"}}`.
* `Settings`: those, as they are.
* None: `pegasus.toml` in the home, where there is one; else the defaults.

For all but `Settings`, variables of the environment count as for the daemon: keys of providers, `PEGASUS__SECTION__KEY`, and those
that `${…}` names.
"""

Scope: TypeAlias = Literal["chat", "global"]
"""Conversations: one for each chat, or one with the owners over all channels."""

ApplySettings = Callable[[Settings], Awaitable[ReloadResult]]
"""Puts settings in force; returns which of them count at once. Raises for settings that cannot work; then
nothing has changed.
"""


class AgentFailed(Exception):
    """The agent cannot start, or its root supervisor gave up. str() says why. What was accepted is on disk.

    Example: `except AgentFailed as error: print(error)` around the block of `Agent.create`. The host may create
    the agent again, which goes on with what was accepted.
    """


class Agent:
    """An agent in this process. `create` makes one; use it as a context manager.

    Example::

        async with Agent.create({"models": {"default": "openai/gpt-5.5"}}, home="agent-home") as agent:
            async for message in agent.process_message(InboundMessage("cli", "me", "main", "Hello")):
                print(message.delta, end="", flush=True)

    All methods are for the Trio run that it was created in.
    """

    def __init__(
        self, tree: AgentTree, turns: TurnServices, load: Callable[[Config], Settings], apply: ApplySettings
    ) -> None:
        """Not for the host: see `create`."""
        self._tree = tree
        self._turns = turns
        self._router = ReplyRouter(turns.desk, turns.nursery)
        self._load = load
        self._apply = apply

    @classmethod
    @asynccontextmanager
    async def create(
        cls,
        config: Config = None,
        cron: CronService | None = None,
        *,
        home: str | os.PathLike[str],
        scope: Scope = "chat",
    ) -> AsyncIterator[Agent]:
        """Start an agent; leaving the block stops it in order. What was accepted and is not done goes on at the next start.

        config: see `Config`. cron: the host's own service for scheduled jobs; None: the built-in one. home: folder of everything that
        the agent owns (data, workspace, skills …), made if it does not exist. One agent at a time may have it. scope: "chat", a
        conversation for each chat, or "global", one with the owners over all channels, and one for each chat of a guest.

        Raises HomeBusy (the home is in use), HomeError, SettingsError, PersonaError, ModelConfigError, SandboxError, or AgentFailed:
        it cannot start. Within the block AgentFailed means: its root supervisor gave up, and the block is cancelled.
        """
        folder = resolve_home(os.fspath(home))
        # Reading files and taking the lock of the home block, so they are done in threads: the host's own tasks
        # go on.
        settings = await trio.to_thread.run_sync(settings_of, config, folder, scope)
        manager = own_world(folder, settings)
        world = await trio.to_thread.run_sync(manager.__enter__)
        try:
            environment = world.environment
            async with cls.within(
                environment,
                cron,
                load=partial(settings_of, home=folder, scope=scope),
                apply=world.reloader.apply,
                run=world.run,
            ) as agent:
                world.reloader.journal = agent._tree.journal
                yield agent
        finally:
            # Also after a cancel, so that no TLS connection is left half open; bounded, so that the host can
            # end.
            with trio.move_on_after(GOODBYE, shield=True):
                await world.aclose()
            manager.__exit__(None, None, None)

    @classmethod
    @asynccontextmanager
    async def within(
        cls,
        environment: Environment,
        cron: CronService | None = None,
        *,
        load: Callable[[Config], Settings],
        apply: ApplySettings | None = None,
        run: Callable[[], Awaitable[Any]] = trio.sleep_forever,
    ) -> AsyncIterator[Agent]:
        """Start an agent in an environment, such as one of a test in virtual time.

        load: reads a config. apply: puts settings in force, by default in this environment only. run: runs beside the agent.
        """
        environment = attrs.evolve(environment, shows_approvals=())  # nobody but the host shows anything
        if cron is not None:
            environment = attrs.evolve(environment, keep_schedule=keep_schedule_with(cron))
        failure: Exception | None = None
        desk: ReplyDesk | None = None
        try:
            async with (
                # The strategy and the intensity are those of the daemon: parts that depend on one that has
                # crashed are started anew behind it.
                open_supervisor(strategy=Strategy.REST_FOR_ONE, intensity=ROOT_INTENSITY, name="pegasus") as root,
                trio.open_nursery() as nursery,
            ):
                tree = await start_tree(root, environment)
                intake = await open_intake(tree, environment)
                desk = ReplyDesk(tree.journal)
                await start_channels(tree, Child("gateway", desk.run, tree.journal, backoff=CHILD_BACKOFF), {})
                nursery.start_soon(run)
                usage = partial(_usage_of, environment)
                max_bytes = environment.in_force.follow(lambda settings: settings.media.max_bytes, "media.max_bytes")
                turns = TurnServices(desk, intake, tree.main_agent, nursery, usage, max_bytes)
                try:
                    yield cls(tree, turns, load, apply or environment.in_force.replace)
                except Exception as error:  # of the block; it is raised as it is, outside of the nurseries
                    failure = error
                finally:
                    desk.close()
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            cause = first_cause(group)
            if not isinstance(cause, Exception):  # cancelled from outside
                raise
            raise _failure_of(cause) from cause.__cause__
        except (GaveUp, ActorDied) as error:
            raise _failure_of(error) from error.__cause__
        if failure is not None:
            raise failure

    # ---------------------------------------------------------------- messages

    def process_message(self, message: InboundChatMessage) -> TurnStream:
        """Return an iterator over what the agent says to this message: progress while it works, then one final message.

        The message is on disk from the first step on. Messages of one chat are worked on in the order in which their iterations were
        begun; those of different chats side by side. Leaving the iteration stops the turn. `/new`, `/stop`, `/help` and the other
        commands are answered without a model; `/NAME words` calls a skill.

        The iteration raises MessageRefused if the message is not accepted, and AgentClosed if the agent stops meanwhile. What goes
        wrong in the agent is no exception: the final message says it.
        """
        return TurnStream(self._turns, message)

    def messages(self) -> MessageStream:
        """Return an iterator over what the agent says beside the turns: results of tasks, reminders, replies to other chats.

        It ends when the agent does. What nobody takes is kept for 30 days, over restarts too.
        """
        return self._router.messages()

    async def send(self, message: InboundChatMessage) -> None:
        """Hand over a message; return when it is on disk, before any model is asked. Raises MessageRefused, AgentClosed.

        What the agent says to it comes to the adapter of its channel, or to `on_reply`, or through `messages`. Cancelled, it may have
        been taken: the same id makes it the same message.
        """
        await self._turns.submit(message.to_core())

    def register_adapter(self, adapter: ChannelAdapter) -> None:
        """Have `adapter.deliver` bring all that the agent says to channels of `adapter.type`, but for turns that are iterated over.

        Raises ValueError if that type has an adapter.
        """
        self._router.register(adapter)

    def on_reply(self, callback: OnReply) -> None:
        """Have a function bring what the agent says to channels without an adapter, in place of `messages`."""
        self._router.on_reply(callback)

    # ---------------------------------------------------------------- settings

    async def update_config(self, config: Config) -> ReloadResult:
        """Put other settings in force, without losing a conversation.

        They replace the old ones as a whole: a key that is left out has its default.

        Returns the keys that count from now on, and those that count after a restart. What is under way ends with the old ones. Raises
        what `create` raises about settings; then nothing has changed.
        """
        new = await trio.to_thread.run_sync(self._load, config)
        return await self._apply(new)

    # ---------------------------------------------------------------- what it knows

    @property
    def memory(self) -> Memory:
        """Return its memory: facts and episodes, as Markdown pages."""
        return self._tree.services.memory

    @property
    def skills(self) -> SkillCatalog:
        """Return the skills that there are."""
        return self._tree.services.environment.skills


def settings_of(config: Config, home: Home, scope: Scope = "chat") -> Settings:
    """Return the settings, with this scope of conversations. Blocks while it reads a file. Raises SettingsError.

    The scope of the settings does not count: a host that talks with several people must not mix what they say by accident.
    """
    if config is None:
        settings = load_settings(SettingsSource(home.config))
    elif isinstance(config, Settings):
        settings = config
    elif isinstance(config, Mapping):
        settings = load_settings(SettingsSource(table=config))
    else:
        settings = load_settings(SettingsSource(Path(config), required=True))
    return attrs.evolve(settings, agent=attrs.evolve(settings.agent, scope=scope))


def _failure_of(error: Exception) -> Exception:
    """Return the error that the host sees for one that has ended the tree."""
    if isinstance(error, GaveUp | ActorDied):
        return AgentFailed(f"{error.__cause__ or error}; the log tells more")
    return error


def _usage_of(environment: Environment, item: int) -> TurnUsage | None:
    """Return what the model calls for an item have used; None if nothing counts it."""
    tracker = environment.models.usage
    if tracker is None:
        return None
    used = tracker.item_usage(item)
    return TurnUsage(used.prompt_tokens, used.completion_tokens, used.cache_read_tokens, tracker.item_cost(item))
