"""The pages on the agent, on thinking, on types and on the folders tell the truth."""

import re
from pathlib import Path
from typing import get_args

import pytest

from pegasus.events import Deliver
from pegasus.settings import ModelSettings, Settings, TaskSettings
from pegasus.tasks import TaskAgentMessage
from pegasus.tasks.agent.scheduler import DRAIN
from pegasus.tasks.core.task_types import BUILT_IN_TYPES, LARGEST, load_task_types, parse_task_type
from pegasus.tasks.run import task, thinker
from pegasus.tasks.run.deps import TaskLimits
from pegasus.tasks.run.thinker import OWN_TOOLS
from pegasus.tools import REFLECTION_TOOLS

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


def page(name):
    [path] = DOCS.rglob(f"{name}.md")
    return path.read_text("utf-8")


SUBSYSTEMS = ("main-agent", "events", "task-fsm", "agent", "cognitive", "task-persistence", "memory-system", "tools")


@pytest.mark.parametrize("name", [*SUBSYSTEMS, "project-structure", "task-types"])
def test_every_subsystem_has_a_page_that_the_readme_lists(name):
    [path] = DOCS.rglob(f"{name}.md")
    assert f"({path.relative_to(ROOT)})" in (ROOT / "README.md").read_text("utf-8")
    assert len(page(name)) > 1000


def test_the_readme_lists_every_page():
    listed = set(re.findall(r"\(docs/([\w/-]+\.md)", (ROOT / "README.md").read_text("utf-8")))
    assert listed == {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}


def test_what_can_be_said_to_the_agent():
    messages = {one.__name__ for one in get_args(TaskAgentMessage)} - {Deliver.__name__}
    assert messages <= set(re.findall(r"`(\w+)\(", page("agent")))


def test_limits_are_the_real_ones():
    settings, text = Settings(), page("agent")
    for section, prefix, names in (
        (TaskSettings(), "tasks", ("max_active", "max_queued", "max_concurrent_tools", "max_iterations")),
        (ModelSettings(), "models", ("max_concurrent_calls",)),
    ):
        for name in names:
            assert f"`{prefix}.{name}` ({getattr(section, name)})" in text
    assert f"`tasks.timeout` ({settings.tasks.timeout:g} s)" in text
    assert f"for {DRAIN:g} s" in text
    assert f"for {DRAIN:g} s" in page("operations")
    assert TaskLimits().max_active == settings.tasks.max_active


def test_thinking_is_as_described():
    text = page("cognitive")
    assert f"a result of {task.TRIVIAL} characters" in text
    assert f"at most {thinker.ROUNDS} model calls" in text
    assert all(f"`{tool.name}(" in text for tool in OWN_TOOLS)
    names = REFLECTION_TOOLS
    assert all(f"`{name}`" in text for name in names)


def test_the_types_are_as_described():
    text = page("task-types")
    types, _ = load_task_types(BUILT_IN_TYPES)
    assert re.findall(r"^\| `(\w+)` \| (?!names|1 to|one|<)", text, re.MULTILINE)[:3] == list(types)
    assert f"larger than {LARGEST >> 10} kB" in text
    [example] = re.findall(r"```markdown\n(.*?)```", text, re.DOTALL)
    found, warnings = parse_task_type(example, "librarian")
    assert (found.name, found.model, warnings) == ("librarian", "anthropic/claude-haiku-5-5", [])
    assert found.allows("memory_read")
    assert not found.allows("shell_exec")


def test_every_folder_is_in_the_structure():
    text = page("project-structure")
    folders = {path.name for path in (ROOT / "pegasus").iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    files = {path.name for path in (ROOT / "pegasus").glob("*.py")} - {"__init__.py"}
    assert {f"{name}/" for name in folders} | files <= set(re.findall(r"[\w.]+/|\w+\.py", text))
    named = re.findall(r"^  (\w+)/|  (\w+)/  ", text, re.MULTILINE)
    inner = {path.name for path in (ROOT / "pegasus").glob("*/*") if path.is_dir()}
    assert {name for pair in named for name in pair if name} - {"testing"} <= folders | inner


def test_the_files_of_the_agent_are_there():
    for name in re.findall(r"`(\w+\.py)`", page("agent").partition("## Where what is")[2]):
        assert list((ROOT / "pegasus" / "tasks").rglob(name))
