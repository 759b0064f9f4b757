"""What the tree is made of: handed in by whoever runs it, the daemon or a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import attrs
import trio

from pegasus.identity import Persona
from pegasus.models import LanguageModel
from pegasus.settings import Settings
from pegasus.storage import Disk

if TYPE_CHECKING:
    from actors import Ref
    from pegasus.main_agent import SessionArchives
    from pegasus.memory import Memory
    from pegasus.models import ModelService, ModelSwitch, TokenCounter
    from pegasus.storage import JournalMessage
    from pegasus.tools import Tool


@attrs.frozen(eq=False)
class Workshop:
    """What tasks are given. workspace: where their files are. subagents: folders of SUBAGENT.md, the user's last.

    tools: all but those about tasks. model_for: by role or `<provider>/<model>`, for work; talker_for: the same, for a conversation,
    which does not wait behind work; context_window: tokens, by role; counter: counts for the model that talks. skills: folders
    of skills beside the built-in ones, the strongest last. archives: of the session. wanted: set when the task system may or
    must begin; in_thread: import it in a thread, so that the daemon goes on meanwhile.
    """

    workspace: Path
    subagents: tuple[Path, ...]
    memory: Callable[[Ref[JournalMessage]], Memory]
    tools: Callable[[Memory], tuple[Tool, ...]]
    model_for: Callable[[str], LanguageModel]
    talker_for: Callable[[str], LanguageModel]
    context_window: Callable[[str], int]
    random: Random
    counter: Callable[[], TokenCounter] | None = None
    skills: tuple[Path, ...] = ()
    archives: Callable[[], SessionArchives] | None = None
    wanted: trio.Event = attrs.field(factory=trio.Event)
    in_thread: bool = False
    secrets: tuple[str, ...] = ()
    """Keys and tokens that no tool result may show."""


@attrs.frozen(eq=False)
class Parts:
    """What the tree is made of. clock: wall clock, ms since the epoch. workshop: what tasks are given.

    models: counts model calls and reports usage; None: nothing does. base: the persona of the settings, where persona has come out of
    it by changes that its owner accepted. switch: what can change the model; None: nothing can.
    """

    settings: Settings
    disk: Disk
    model: LanguageModel
    persona: Persona
    clock: Callable[[], int]
    workshop: Workshop
    models: ModelService | None = None
    base: Persona | None = None
    switch: ModelSwitch | None = None
