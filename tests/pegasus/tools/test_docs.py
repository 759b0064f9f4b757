"""The page about tools tells the truth, and the collections name tools that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pegasus.formatting import CHARACTERS_PER_TOKEN
from pegasus.settings import ToolSettings
from pegasus.tasks import BUILT_IN_TYPES, load_task_types
from pegasus.tools import executor, save_attachment_tool, standard
from pegasus.tools.base import MAX_RESULT
from pegasus.tools.files import changing, searching
from pegasus.tools.web.http_client import MAX_PARTS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "tools.md").read_text("utf-8")
TOOLS = {
    tool.name: tool for tool in (*standard.standard_tools(ToolSettings(), None, lambda: 0), save_attachment_tool(None))
}
ROWS = {row[0]: row for row in re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \| (\w+) \| (\w+) \|$", PAGE, re.MULTILINE)}


def test_the_table_has_every_tool_and_no_other():
    assert set(ROWS) == set(TOOLS)


@pytest.mark.parametrize("name", TOOLS)
def test_each_row_is_the_tool(name):
    tool = TOOLS[name]
    _, given, _, effect, category = ROWS[name]
    schema = tool.spec.parameters
    names = [f"{one}{'' if one in schema.get('required', []) else '?'}" for one in schema["properties"]]
    told = [] if given == "none" else [part.strip() for part in re.sub(r"\([^)]*\)", "", given).split(",")]
    assert (told, effect, category) == (names, tool.effect, tool.category)
    assert schema["additionalProperties"] is False


def test_the_numbers_are_the_real_ones():
    assert f"{standard.RESULT_SHARE:.0%}".replace("%", " %") in PAGE
    assert f"{MAX_RESULT:,} characters for 128,000 tokens" in PAGE
    assert int(128_000 * standard.RESULT_SHARE * CHARACTERS_PER_TOKEN) == MAX_RESULT
    assert f"never less than {standard.MIN_RESULT:,}" in PAGE
    assert f"Up to {changing.MAX_EDIT >> 20} MiB" in PAGE
    assert all(f"`{name}`" in PAGE for name in searching.NOT_SEARCHED)
    assert f"at most {MAX_PARTS:,} parts" in PAGE


def test_the_first_lines_of_the_executor_name_the_place_of_the_deadline():
    assert "deadline of a call is enforced here, in `_run_prepared`" in (executor.__doc__ or "").splitlines()[0]
    assert "`pegasus/tools/executor.py`, function `_run_prepared`" in PAGE


def test_the_example_runs(tmp_path):
    import subprocess
    import sys

    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "test_example.py").write_text(example, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n", "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_example.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


# ------------------------------------------------------------------ named sets and types of tasks

ELSEWHERE = {"task_list", "task_replay", "notify", "ask_user"}
"""Tools of the task system itself."""


def tools_of(kind):
    types, problems = load_task_types(BUILT_IN_TYPES)
    assert problems == ()
    return set(types.get(kind).tools)


def test_tasks_have_every_tool_that_there_is():
    assert set(standard.ALL_TASK_TOOLS) == {*TOOLS, *ELSEWHERE} - {"ask_user"}
    assert len(set(standard.ALL_TASK_TOOLS)) == len(standard.ALL_TASK_TOOLS)


@pytest.mark.parametrize("names", [tools_of("explore"), tools_of("plan"), set(standard.REFLECTION_TOOLS)])
def test_sets_name_tools_that_there_are(names):
    assert names <= {*standard.ALL_TASK_TOOLS, "ask_user"}


def test_exploring_changes_nothing():
    assert all(TOOLS[name].effect == "pure" for name in tools_of("explore") - ELSEWHERE)


def test_planning_is_exploring_and_writing_to_memory():
    assert tools_of("plan") == tools_of("explore") | {"memory_write", "memory_append"}


def test_reach_and_source_of_each_tool_are_the_documented_ones():
    told: dict[str, dict[str, set[str]]] = {"reach": {}, "source": {}}
    for table, rows in re.findall(r"^\| (reach|source) \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        for value, names in re.findall(r"^\| (\w+) \| (.*) \|$", rows, re.MULTILINE):
            told[table][value] = set(re.findall(r"`(\w+)`", names))
    found: dict[str, dict[str, set[str]]] = {"reach": {}, "source": {}}
    for name, tool in TOOLS.items():
        found["reach"].setdefault(tool.reach, set()).add(name)
        if tool.source is not None:
            found["source"].setdefault(tool.source, set()).add(name)
    assert told == found
