"""Services: everything the Main Agent works with, built by the composition root and handed over once.

All of it are finished objects. Prompt and tools stay the same for the whole run, byte for byte, so that a provider finds them in its
cache at every call. Models, windows and prices may change while the process runs; the objects that are handed over follow the
settings by themselves (a `LanguageModel` that asks for the present target at each call, for example), so nothing here knows about
reloading.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Protocol, TypeAlias

import attrs

from pegasus.conversation import OpenCall
from pegasus.main_agent.compaction import Compactor
from pegasus.main_agent.messages import EndedWork
from pegasus.main_agent.reply_tool import REPLY
from pegasus.main_agent.skill_invocation import SkillInvoker
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.models import LanguageModel, ToolSpec
from pegasus.tools import Tool

CommandAnswers: TypeAlias = Mapping[str, Callable[[InboundMessage], Awaitable[str]]]
"""By command ("/usage"), the function that answers it. It may raise StorageError, whose text is then the answer."""


class BackgroundWork(Protocol):
    """The work behind the delegating tools, as the actor sees it. It outlives a crash of the Main Agent."""

    async def stop(self, by: str, channel: ChannelInfo | None) -> tuple[EndedWork, ...]:
        """End what was begun on this channel (None: everything); return what was ended, once nothing of it runs. Never raises."""

    async def running(self) -> tuple[str, ...]:
        """Return a short description of each task that is being worked on. Never raises; () if they are not known."""

    async def result_of(self, open_call: OpenCall, key: str) -> str | None:
        """Return the true result (JSON) of a call that a crash interrupted; None if it had not taken effect."""


@attrs.frozen(eq=False)
class AgentToolset:
    """Prompt, tools and skills of the Main Agent, the same at every call.

    Example: `AgentToolset("You are …", {"task_status": status_tool}).specs` is `(REPLY, status_tool.spec)`.
    """

    system_prompt: str
    """Text before the conversation, with the persona."""
    tools: Mapping[str, Tool]
    """Tools beside `reply`, by name."""
    aliases: frozenset[str] = frozenset()
    """Names of tools that are accepted but not shown to the model."""
    skills: SkillInvoker | None = None
    """Skills that people and the model can call by name."""

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Tools as the model is shown them."""
        return (REPLY, *(tool.spec for name, tool in self.tools.items() if name not in self.aliases))


@attrs.frozen(eq=False)
class AgentConfig:
    """Limits and manners of the Main Agent (settings [agent] and [tools])."""

    max_thoughts: int = 20
    """Model calls that one queue item may take."""
    max_replies: int = 200
    """Replies that one queue item may have."""
    tool_timeout: float = 60.0
    """Seconds that a tool call may take."""
    tool_timeouts: Mapping[str, float] = attrs.field(factory=dict)
    """The same for single tools, by name."""
    direct: bool = False
    """True if a text without tool calls is the reply (`agent.speech = "direct"`)."""
    when_busy: str = "followup"
    """Effect of a message whose chat is being thought about: "followup", "steer" or "interrupt"."""
    steer_cap: int = 10
    """Messages that may join one thought."""
    burst_cap: int = 1
    """Messages that have waited together and are taken up as one."""

    def timeout_of(self, tool: str) -> float:
        """Return the seconds that one call of this tool may take."""
        return self.tool_timeouts.get(tool, self.tool_timeout)


@attrs.frozen(eq=False)
class AgentServices:
    """Everything that the Main Agent is given when it starts.

    Example: `AgentServices(model=client, toolset=AgentToolset(prompt, tools), clock=wall_clock)`. The rest is optional.
    """

    model: LanguageModel
    """Model that thinks."""
    toolset: AgentToolset
    clock: Callable[[], int]
    """Returns the wall-clock time in ms."""
    config: AgentConfig = attrs.field(factory=AgentConfig)
    memory_index: Callable[[], Awaitable[str]] | None = None
    """Returns the text about long-term memory for a session that begins; "" for none."""
    model_for: Callable[[str], LanguageModel] | None = None
    """Returns the model of a name `<provider>/<model>` or a role, for skills that want another one. Raises ValueError."""
    work: BackgroundWork | None = None
    """Tasks that the tools delegate to; None: there are none."""
    compactor: Compactor | None = None
    """Keeps the session within the model's window; None: nothing does."""
