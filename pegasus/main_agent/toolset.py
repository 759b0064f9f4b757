"""Prompt, tools and way of speaking of the Main Agent, in a variant for each kind of model.

Each variant stays the same for the whole run, byte for byte, so that a provider finds it in its cache at every call.

A model with a small context window is shown the lean tools: a few, with short descriptions. The schemas of all tools take about
2,200 tokens, half of a window of 4,096. The eight lean ones, and `send_file` in direct speech, take a quarter of that. They were
chosen by what people ask an assistant for: to speak, to send a file, to give work to a task and answer its question, to remember
and to find again, to follow a skill, to know the time. Everything else (lists of tasks, archives, replays) people can get by
commands. A lean tool is the full tool with a shorter schema: it has the same name, is run by the same function, and its parameters
are some of the full tool's, all of whose required ones are among them. So a session can go on with the full tools when a larger
model is chosen.

**Speaking.** There are two ways. In a monologue the model's text is private, and only `reply` speaks. In direct speech its text is the
reply. Large models keep to either; many small ones write text whatever they are told, and in a monologue nobody would hear it. So
`agent.speech = "auto"` finds out with each model (`asking`). With an explicit "monologue" or "direct" nothing is found out: a
monologue is never delivered, and an empty answer is silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import attrs

from pegasus.identity import SILENCE, SMALL_WINDOW, MainPrompts
from pegasus.main_agent.replies import REPLY
from pegasus.main_agent.session import SEND_FILE
from pegasus.main_agent.skill_invocation import SkillInvoker
from pegasus.messages import Json
from pegasus.models import ModelTraits, ToolSpec
from pegasus.skills import Skill
from pegasus.tools import ToolExecutor


class AgentProfile(NamedTuple):
    """Prompt and tools for one kind of model: `system_prompt, specs = toolset.profile(is_direct=True, is_lean=True)`.

    Example: `agent.toolset.now.profile(is_direct=True).specs` are the tools of a model whose text is the reply.
    """

    system_prompt: str
    """Text before the conversation, with the persona."""
    specs: tuple[ToolSpec, ...]
    """Tools as the model is shown them."""


@attrs.define(eq=False, repr=False)
class AgentToolset:
    """Prompt, tools and skills of the Main Agent, in a variant for each kind of model.

    Example: `AgentToolset(MainPrompts(persona), ToolExecutor([clock_tool])).profile().specs` is `(REPLY, clock_tool.spec)`.
    """

    prompts: MainPrompts
    """Texts before the conversation."""
    executor: ToolExecutor
    """Runs the tools beside `reply`, within their time limits, and masks secrets in their results."""
    aliases: frozenset[str] = frozenset()
    """Names of tools that are accepted but not shown to the model."""
    sends_files: bool = False
    """True if `send_file` is offered in direct speech."""
    skills: SkillInvoker | None = None
    """Skills that people and the model can call by name."""
    _profiles: dict[tuple[bool, bool, bool], AgentProfile] = attrs.field(factory=dict, init=False)
    """Variants that were asked for."""
    _tools_version: int = attrs.field(default=0, init=False)
    """Version of the tools that they were made with."""
    _files_version: int = attrs.field(default=0, init=False)
    """Version of the owner's files that they were made with."""
    _known_skills: tuple[Skill, ...] = attrs.field(default=(), init=False)
    """Skills that they were made with."""

    async def refresh(self) -> None:
        """Look at the owner's files and at the skills, which are part of the prompt. Called before the work on a message begins.

        What changes later counts from the next call on, so that the prompt stays the same within the work on a message.
        """
        files = self.prompts.files
        if files is not None:
            await files.refresh()
            if self._files_version != files.version:
                self._files_version = files.version
                # All variants are made anew, though not all of them may have changed: it happens seldom.
                self._profiles.clear()
        if self.skills is not None:
            await self.skills.catalog.refresh()
            if (skills := self.skills.catalog.all()) != self._known_skills:
                self._known_skills = skills
                self._profiles.clear()

    def profile(self, is_direct: bool = False, is_lean: bool = False, has_tools: bool = True) -> AgentProfile:
        """Return prompt and tools for a model; the same objects at every call with the same arguments, until a change.

        A change is what `refresh` finds, and that of the tools of an MCP server.

        is_direct: the model's text is the reply. is_lean: its window is small (`SMALL_WINDOW`); prompt and tools then take about
        1,000 tokens instead of 3,800. has_tools: False for a model that does not support them; its text is then the reply in any case.
        """
        is_direct = is_direct or not has_tools
        if self._tools_version != self.executor.source.version:
            self._tools_version = self.executor.source.version
            self._profiles.clear()
        key = is_direct, is_lean, has_tools
        if key not in self._profiles:
            offered = self.executor.offered(window=SMALL_WINDOW if is_lean else 0) if has_tools else ()
            spoken_with = (REPLY, SEND_FILE) if is_direct and self.sends_files else (REPLY,)
            specs = (
                (*spoken_with, *(tool.spec for tool in offered if tool.name not in self.aliases)) if has_tools else ()
            )
            if is_lean:
                specs = (
                    *lean_specs(spec.name for spec in specs),
                    *(tool.spec for tool in offered if tool.category == "mcp"),
                )
            text = self.prompts.text(direct=is_direct, lean=is_lean, tools=tuple(spec.name for spec in specs))
            if has_tools and not is_lean and (notes := self.executor.notes()):
                text = f"{text}\n\n{notes}"
            self._profiles[key] = AgentProfile(text, specs)
        return self._profiles[key]


def _lean(name: str, description: str, required: Mapping[str, str], **optional: str) -> ToolSpec:
    """Return a tool whose parameters are all texts.

    required, optional: descriptions of the parameters by name, in order; "" for a name that says enough.
    """
    properties: dict[str, Json] = {
        key: {"type": "string", **({"description": text} if text else {})}
        for key, text in {**required, **optional}.items()
    }
    return ToolSpec(name, description, {"type": "object", "properties": properties, "required": list(required)})


LEAN_TOOLS: Final = (
    _lean(
        "reply",
        "Say something to the user. Nothing else is heard.",
        {"channelId": "id from the first line of the message", "text": "what to say"},
        replyTo="thread from that line, if it has one",
    ),
    _lean(
        "spawn_subagent",
        "Give work to a background task, which has files, shell and web.",
        {"description": "a few words", "input": "the whole task; it sees nothing of this conversation"},
    ),
    _lean("resume_task", "Give a task the answer it asked for, or more work.", {"taskId": "", "input": ""}),
    _lean("send_file", "Send a file along with your answer.", {"path": "in the workspace"}),
    _lean("use_skill", "Get the instructions of a skill.", {"skill": "its name"}, args=""),
    _lean("memory_search", "Find what was noted or said before.", {"query": "one or two words"}),
    _lean("memory_read", "Read a memory file.", {"path": "such as facts/user.md"}),
    _lean("memory_append", "Note a fact for good.", {"path": "facts/user.md or facts/TOPIC.md", "entry": "the fact"}),
    _lean("current_time", "Date and time now.", {}),
)
"""In the order in which the model is shown them."""


def lean_specs(offered: Iterable[str]) -> tuple[ToolSpec, ...]:
    """Return the lean tools among these names: an installation may offer fewer tools (`agent.tools`).

    Example: `lean_specs(["reply", "task_list"])` has only `reply`.
    """
    names = frozenset(offered)
    return tuple(spec for spec in LEAN_TOOLS if spec.name in names)


# ------------------------------------------------------------------ ways of speaking

_AROUND_SILENCE: Final = "`\"'*."
"""Characters that models put around the word for silence."""


@attrs.frozen(eq=False, repr=False)
class SpeechMode:
    """Way of speaking with one model at this moment.

    Example: `choose_speech_mode("auto", ModelTraits(writes_text=True))` is `SpeechMode(is_direct=True, is_watched=True)`.
    """

    is_direct: bool
    """Its text is the reply."""
    has_tools: bool = True
    """True if it is offered tools."""
    is_watched: bool = False
    """True while nobody knows whether its silence is deliberate (only with "auto")."""

    @property
    def speech(self) -> str:
        """Version of the prompt: "monologue" or "direct"."""
        return "direct" if self.is_direct else "monologue"


def choose_speech_mode(setting: str, traits: ModelTraits) -> SpeechMode:
    """Return how to speak with a model. setting: `agent.speech`; the owner's choice for the model goes before it.

    An explicit "monologue" for a model that refuses tools has no way to speak; the caller says so.
    """
    choice = traits.speech or setting
    if choice != "auto":
        return SpeechMode(choice == "direct", not traits.refuses_tools)
    is_direct = traits.writes_text or traits.refuses_tools
    return SpeechMode(is_direct, not traits.refuses_tools, is_watched=is_direct or not traits.calls_tools)


def describe_speech(setting: str, traits: ModelTraits) -> str:
    """Return the sentence by which `/model` and `/speech` say how a model speaks, and why."""
    manner = choose_speech_mode(setting, traits)
    how = "It speaks directly: its text is the reply" if manner.is_direct else "It speaks only through the tool reply"
    if traits.refuses_tools:
        why = "its server refuses tools"
    elif traits.speech in ("monologue", "direct"):
        why = "chosen with /speech"
    elif (traits.speech or setting) != "auto":
        why = "agent.speech of the settings"
    elif traits.writes_text:
        why = "found out: it writes text instead of calling reply"
    elif traits.calls_tools:
        why = "found out: it calls tools"
    else:
        why = "auto: it has not called a tool yet; if it only writes text, that becomes the reply"
    return f"{how} ({why})."


def is_silence(text: str) -> bool:
    """Return whether a text is the word for deliberate silence."""
    return text.strip().strip(_AROUND_SILENCE) == SILENCE


def may_become_silence(text: str) -> bool:
    """Return whether a text that is still being written may end as the word for silence; "" may."""
    return SILENCE.startswith(text.strip().strip(_AROUND_SILENCE))
