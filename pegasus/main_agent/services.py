"""What the agent thinks with, the same for every thought: model, prompt and tools, limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from pegasus.main_agent.reply_tool import REPLY
from pegasus.models import LanguageModel, ModelRequest, ToolSpec
from pegasus.tools import Tool

if TYPE_CHECKING:
    from pegasus.main_agent.compaction import Compactor
    from pegasus.main_agent.skill_invocation import SkillInvoker


@attrs.frozen(eq=False)
class AgentToolset:
    """The prompt, and the tools beside reply by their names. aliases: names that are accepted but not shown.

    skilled: what people and the model can call by name; None: nothing.
    """

    system: str
    tools: Mapping[str, Tool]
    aliases: frozenset[str] = frozenset()
    skilled: SkillInvoker | None = None

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is shown."""
        return (REPLY, *(tool.spec for name, tool in self.tools.items() if name not in self.aliases))


@attrs.frozen(eq=False)
class AgentConfig:
    """Limits and manners (settings [agent] and [tools]). times in seconds.

    direct: plain text is the reply (`agent.speech`). when_busy: what a message does that arrives while its chat is thought about.
    """

    max_thoughts: int = 20
    max_replies: int = 200
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
class AgentServices:
    """clock: wall clock, ms.

    make_faculties: called for every thought and gives the same each time; made at the first one, for that takes a while.
    memory_index: what a session that begins is told of memory, "" for nothing. model_for: by `<provider>/<model>` or role; who
    thinks where a skill wants another model. make_compactor: what keeps a session within the model's window; None: nothing does.
    tokens: about how many a request has, most exactly near the given limit.
    """

    model: LanguageModel
    make_faculties: Callable[[], AgentToolset]
    clock: Callable[[], int]
    habits: AgentConfig = attrs.field(factory=AgentConfig)
    memory_index: Callable[[], Awaitable[str]] | None = None
    model_for: Callable[[str], LanguageModel] | None = None
    make_compactor: Callable[[], Compactor] | None = None
    tokens: Callable[[ModelRequest, int], Awaitable[int]] | None = None
