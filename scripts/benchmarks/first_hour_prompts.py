"""How many tokens the prompt and the tools of the Main Agent take, in full and for a model with a small context window.

The tokens are estimated by their letters, as the agent does before a call (`pegasus.models.TokenCounter`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import trio
from trio.testing import MockClock

from benchmarks.report import Result
from pegasus.main_agent import AgentToolset
from pegasus.models.tokens import prompt_parts
from pegasus.testing.scripted import ScriptedModel
from pegasus.testing.world import open_world

LEAN_LIMIT: Final = 1_100
"""Tokens that the lean prompt and tools may take together; what is aimed at is 1,000."""


def measure_prompts() -> Iterator[Result]:
    """Yield the sizes, for both ways of speaking."""
    toolset = trio.run(_toolset, clock=MockClock(autojump_threshold=0))
    for speech in ("monologue", "direct"):
        profiles = (toolset.profile(speech == "direct", is_lean) for is_lean in (False, True))
        full, lean = (prompt_parts(*profile).tokens for profile in profiles)
        yield Result(f"prompt and tools, {speech}, full", full, lean, "lean", "tokens", full / lean)
        yield Result(f"prompt and tools, {speech}, lean", lean, LEAN_LIMIT, "limit", "tokens", lean / LEAN_LIMIT, 1.0)


async def _toolset() -> AgentToolset:
    async with open_world(ScriptedModel([])) as world:
        return world.tree.services.main_agent.toolset.now
