"""The environment: everything that the supervision tree is given from outside.

The daemon builds one from its home and the real world. Tests and simulations build one from a disk in memory, a scripted model
and a clock of their own, and start the same tree. So no other file of this package touches files, the network, the wall
clock or randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Protocol

import attrs
import trio

from actors import Ref
from pegasus.identity import Persona
from pegasus.main_agent import SessionArchives
from pegasus.memory import Memory
from pegasus.messages import ChannelInfo
from pegasus.models import Lane, LanguageModel, ModelRequest, ModelSwitch, UsageTracker
from pegasus.settings import Settings
from pegasus.storage import Disk, JournalMessage
from pegasus.tools import Tool


class ModelSource(Protocol):
    """Models by role or by `<provider>/<model>`. `pegasus.models.ModelService` is the real one."""

    @property
    def usage(self) -> UsageTracker | None:
        """Counts and limits calls; None: nothing does."""

    def client(self, role: str = "default", lane: Lane = "work") -> LanguageModel:
        """Return a model that may be kept: it follows reloads and choices. Raises ModelConfigError."""

    def context_window(self, role: str = "default") -> int:
        """Return how many tokens fit into the model of a role."""

    async def compare_tokens(self, request: ModelRequest, limit: int) -> int:
        """Return about how many tokens a request has, most exactly near the limit."""

    async def usage_text(self, channel: ChannelInfo | None = None) -> str:
        """Return the answer to `/usage` in this chat."""


@attrs.frozen(eq=False, kw_only=True)
class Environment:
    """Everything that a tree is built from. `pegasus.testing.world` builds one in virtual time.

    >>> async with open_supervisor(strategy=Strategy.REST_FOR_ONE, name="pegasus") as root:
    ...     tree = await start_tree(root, Environment(settings=settings, disk=disk, models=models, …))
    """

    settings: Settings
    """Settings of the start. Parts that can be reloaded follow `Reloader.settings` instead."""
    disk: Disk
    """Where the journal writes."""
    models: ModelSource
    """Models of all roles."""
    persona: Persona
    """The persona in force: that of the settings with the changes that its owner accepted."""
    base_persona: Persona
    """The persona of the settings, without changes."""
    clock: Callable[[], int]
    """Returns the wall clock, in ms since the epoch."""
    random: Random
    """Makes ids. Nothing that must be secret comes from it."""
    workspace: Path
    """The folder that tasks work in."""
    subagent_folders: tuple[Path, ...] = ()
    """Folders with SUBAGENT.md files beside the built-in types, the strongest last."""
    skill_folders: tuple[Path, ...] = ()
    """Folders with skills beside the built-in ones, the strongest last."""
    open_memory: Callable[[Ref[JournalMessage]], Memory]
    """Opens the memory, which the journal writes. Called once."""
    make_tools: Callable[[Memory], Sequence[Tool]]
    """Makes the tools of tasks, without those about tasks themselves. Called once."""
    archives: SessionArchives
    """Reads the archives of the session."""
    secrets: tuple[str, ...] = ()
    """Texts that tool results must not show."""
    switch: ModelSwitch | None = None
    """Changes the default model at run time (`/model`); None: nothing can."""
    reads_in_thread: bool = True
    """True if small files are read in threads. Tests in virtual time set False."""
    may_work: trio.Event = attrs.field(factory=trio.Event)
    """Set when background work may begin; in the daemon, when people can connect. Recovery of tasks is the work of seconds."""
