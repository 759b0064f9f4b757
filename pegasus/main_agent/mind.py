"""What the agent thinks with, the same for every thought: model, prompt and tools, limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import attrs

from pegasus.main_agent.speaking import REPLY
from pegasus.models.base import LanguageModel, ToolSpec
from pegasus.tools import Tool


@attrs.frozen(eq=False)
class Faculties:
    """The prompt, and the tools beside reply by their names. aliases: names that are accepted but not shown."""

    system: str
    tools: Mapping[str, Tool]
    aliases: frozenset[str] = frozenset()

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is shown."""
        return (REPLY, *(tool.spec for name, tool in self.tools.items() if name not in self.aliases))


@attrs.frozen(eq=False)
class Habits:
    """Limits and manners (settings [agent] and [tools]). times in seconds.

    direct: plain text is the reply (`agent.speech`). when_busy: what a message does that arrives while its chat is thought about.
    """

    max_thoughts: int = 20
    max_replies: int = 50
    tool_timeout: float = 60.0
    tool_timeouts: Mapping[str, float] = attrs.field(factory=dict)
    direct: bool = False
    when_busy: str = "followup"
    steer_cap: int = 10
    burst_cap: int = 1

    def timeout_of(self, tool: str) -> float:
        """Seconds that one call of this tool may take."""
        return self.tool_timeouts.get(tool, self.tool_timeout)


@attrs.frozen(eq=False)
class Mind:
    """clock: wall clock, ms.

    make_faculties: called for every thought and gives the same each time; made at the first one, for that takes a while.
    memory_index: what a session that begins is told of memory, "" for nothing.
    """

    model: LanguageModel
    make_faculties: Callable[[], Faculties]
    clock: Callable[[], int]
    habits: Habits = attrs.field(factory=Habits)
    memory_index: Callable[[], Awaitable[str]] | None = None
