"""The system prompt of seed 000, in its order; built once, so that providers can take it from their cache."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import attrs

from pegasus.identity import sections
from pegasus.identity.persona import Persona
from pegasus.identity.sections import SAFETY

SILENCE = "(silence)"
"""What the model writes in direct speech to say nothing; the section "How You Speak" says so."""


@attrs.frozen
class ChannelNote:
    """A channel that is configured: its type, and its channelId where there is a fixed one."""

    type: str
    channel_id: str | None = None


def identity_section(persona: Persona) -> str:
    """Who speaks; equal in both modes (checklist 82, 157)."""
    lines = [
        f"You are {persona.name}, {persona.role}.",
        "",
        f"Personality: {', '.join(persona.personality)}.",
        f"Speaking style: {persona.style}.",
        f"Core values: {', '.join(persona.values)}.",
    ]
    return "\n".join([*lines, persona.background] if persona.background else lines)


def main_prompt(
    persona: Persona,
    *,
    tools: Collection[str],
    channels: Sequence[ChannelNote] = (),
    subagents: Mapping[str, str] | None = None,
    skills: str = "",
    direct: bool = False,
) -> str:
    """The Main Agent's prompt (mode "main"). tools: names of the tools it has; channels: the configured ones.

    subagents: description by name of each kind of task that it can spawn. skills: the listing of those it may use, a line each.
    direct: plain text is the reply (`agent.speech`, seed 002).
    """
    spawns = "spawn_subagent" in tools
    parts = [
        identity_section(persona),
        SAFETY,
        sections.SPEAKING if direct else sections.THINKING,
        _tools_section(tools),
        sections.STYLE_OF_WORK if direct else sections.STYLE_OF_THOUGHT,
        _when_to_reply(spawns=spawns, direct=direct),
        _subagents_section(subagents) if spawns and subagents else "",
        sections.CHANNELS.format(known=_known(channels)),
        sections.HISTORY if "session_archive_read" in tools else sections.HISTORY_ONLY,
        f"## Available Skills\n\n{skills}" if skills and "use_skill" in tools else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _when_to_reply(*, spawns: bool, direct: bool) -> str:
    if not spawns:
        return "" if direct else sections.REPLY_ONLY
    return sections.ANSWER_OR_SPAWN if direct else sections.REPLY_OR_SPAWN


def task_prompt(persona: Persona, body: str) -> str:
    """A task agent's prompt (mode "task"): identity, safety and the body of its SUBAGENT.md, nothing else."""
    return "\n\n".join(part for part in (identity_section(persona), SAFETY, body.strip()) if part)


def _tools_section(tools: Collection[str]) -> str:
    parts = ["## Tools"]
    for group, entries in sections.GROUPS:
        lines = [f"- {text}" for name, text in entries if name in tools]
        if lines:
            parts.append("\n".join([f"### {group}", *lines]))
    return "\n\n".join(parts)


def _subagents_section(subagents: Mapping[str, str]) -> str:
    lines = [f"- {name}: {description}" for name, description in subagents.items()]
    return "\n".join(["## Subagent Types", "", "The type you give to spawn_subagent is one of:", *lines])


def _known(channels: Sequence[ChannelNote]) -> str:
    if not channels:
        return ""
    names = [f"- {c.type}" + (f" (channelId {c.channel_id})" if c.channel_id else "") for c in channels]
    return "Channels that exist (there may be more by now; messages show theirs):\n" + "\n".join(names) + "\n"
