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


@pytest.mark.parametrize("name", [*SUBSYSTEMS, "task-types"])
def test_every_subsystem_has_a_page(name):
    assert len(page(name)) > 1000


def test_the_index_lists_every_page():
    listed = set(re.findall(r"\(([\w/-]+\.md)", (DOCS / "README.md").read_text("utf-8")))
    assert listed == {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - {"README.md"}


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


def test_every_folder_is_on_the_map():
    """The table of packages names each package of the product, and nothing that is not there."""
    table = page("architecture").partition("| package |")[2].partition("\n\n")[0]
    named = set(
        re.findall(r"`([\w/]+)`", "\n".join(row.split("|")[1] for row in table.splitlines() if row.count("|") > 2))
    )
    found = {path.name for path in (ROOT / "pegasus").iterdir() if (path / "__init__.py").exists()}
    found |= {path.stem for path in (ROOT / "pegasus").glob("*.py")} - {"__init__", "__main__"}
    assert named - {"actors", "examples", "tests", "scripts"} == found


def test_the_files_that_the_pages_name_are_there():
    for name in re.findall(r"`(\w+\.py)`", "".join(page(name) for name in ("agent", "cognitive", "task-fsm"))):
        assert list((ROOT / "pegasus" / "tasks").rglob(name))
