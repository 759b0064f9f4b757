"""The rule about text from outside is in every prompt, and costs what the page says."""

from pathlib import Path

import pytest

from pegasus.identity import lean_task_prompt, task_prompt
from pegasus.identity.lean import LEAN_OUTSIDE, lean_main_prompt
from pegasus.identity.persona import BUILT_IN
from pegasus.identity.prompt import FROM_OUTSIDE, MainPrompts
from pegasus.outside import Untrusted, fenced

PAGE = (Path(__file__).parents[3] / "docs" / "main-agent.md").read_text("utf-8")


def main_prompt(persona, *, tools, direct=False, skills="", **parts):
    prompts = MainPrompts(persona, list_skills=lambda: (skills, ()), **parts)
    return prompts.text(direct=direct, lean=False, tools=tuple(tools))


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("tools", [[], ["reply"], ["reply", "spawn_subagent"]])
def test_the_rule_is_in_every_prompt(tools, direct):
    prompts = [main_prompt(BUILT_IN, tools=tools, direct=direct), task_prompt(BUILT_IN, "Work.")]
    lean = [lean_main_prompt(BUILT_IN, tools=tools, direct=direct), lean_task_prompt(BUILT_IN, "Work.")]
    assert all(prompt.count(FROM_OUTSIDE) == 1 for prompt in prompts)
    assert all(prompt.count(LEAN_OUTSIDE) == 1 for prompt in lean)


def test_what_the_rule_costs_is_documented():
    costs = len(FROM_OUTSIDE), len(LEAN_OUTSIDE), len(fenced("", (Untrusted.WEB,), "k" * 10))
    assert "{} characters, {} in the lean prompt. A fence adds {} to a text.".format(*costs) in PAGE
