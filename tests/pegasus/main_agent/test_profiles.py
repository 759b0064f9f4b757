"""The variants of the Main Agent's prompt and tools: for both ways of speaking, for small windows, with and without tools."""

from itertools import product

import attrs
import pytest

from pegasus.identity import BUILT_IN, MainPrompts, WorkspaceFiles
from pegasus.identity.lean import lean_identity, lean_task_prompt
from pegasus.main_agent.toolset import LEAN_TOOLS, AgentToolset
from pegasus.models.tokens import prompt_parts
from pegasus.settings import AgentSettings, ModelSettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import ScriptedModel, call, reply, say
from pegasus.testing.world import CLI, open_world
from pegasus.tools import ToolExecutor, lean_task_specs
from pegasus.tools.standard import standard_tools

VARIANTS = list(product([False, True], repeat=3))
MOST = 1_100
"""Tokens of lean prompt and tools together."""


@pytest.fixture
async def toolset(autojump_clock):
    async with open_world(ScriptedModel([])) as world:
        yield world.tree.services.main_agent.toolset.now


def tokens(profile):
    return prompt_parts(profile.system_prompt, profile.specs).tokens


@pytest.mark.parametrize("is_direct", [False, True])
async def test_lean_prompt_and_tools_take_about_a_thousand_tokens(toolset, is_direct):
    lean, full = toolset.profile(is_direct, is_lean=True), toolset.profile(is_direct)
    assert tokens(lean) <= MOST
    assert tokens(full) > 3 * tokens(lean)


@pytest.mark.parametrize(("is_direct", "lean", "tools"), VARIANTS)
async def test_a_variant_is_the_same_object_at_every_call(toolset, is_direct, lean, tools):
    assert toolset.profile(is_direct, lean, tools) is toolset.profile(is_direct, lean, tools)


@pytest.mark.parametrize("lean", [False, True])
async def test_a_model_without_tools_is_told_that_text_is_its_reply_and_of_no_tool(toolset, lean):
    prompt, specs = toolset.profile(is_lean=lean, has_tools=False)
    assert specs == ()
    assert "is your answer to the user" in prompt
    for tool in ("reply()", *(tool.name for tool in LEAN_TOOLS[1:])):
        assert tool not in prompt


async def test_the_lean_prompt_speaks_only_of_tools_that_are_offered(toolset):
    settings = Settings(agent=AgentSettings(tools=["current_time"]))
    async with open_world(ScriptedModel([]), settings=settings) as world:
        prompt, specs = world.tree.services.main_agent.toolset.now.profile(is_lean=True)
    assert [spec.name for spec in specs] == ["reply", "current_time"]
    assert "spawn_subagent" not in prompt
    assert "memory_" not in prompt
    assert "skill" not in prompt


async def test_lean_tools_are_accepted_by_the_full_ones(toolset):
    full = {spec.name: spec.parameters for spec in toolset.profile(is_direct=True).specs}
    for spec in LEAN_TOOLS:
        assert set(spec.parameters["properties"]) <= set(full[spec.name]["properties"])
        assert set(full[spec.name].get("required", [])) <= set(spec.parameters["required"])


async def test_the_lean_prompt_names_the_skills(toolset):
    assert "Skills: commit, decide, explain" in toolset.profile(is_lean=True).system_prompt


def test_a_long_persona_is_bounded():
    long = attrs.evolve(BUILT_IN, name="n" * 999, role="r " * 999, style="é" * 999, background="line\n" * 999)
    assert len(lean_identity(long)) < 700


def test_the_body_of_a_task_type_is_bounded():
    assert len(lean_task_prompt(BUILT_IN, "# Rules\n" * 5_000)) < 4_000
    assert "# A\n\n# B" in lean_task_prompt(BUILT_IN, "# A\n\n# B\n")


async def test_a_small_window_gets_the_lean_profile_by_itself(autojump_clock):
    model = ScriptedModel([say("", reply("c", "hello"))])
    settings = Settings(models=ModelSettings(context_window=8_192))
    async with open_world(model, settings=settings) as world:
        await world.say("hi", CLI)
        assert (await world.next_reply()).text == "hello"
        lean = world.tree.services.main_agent.toolset.now.profile(is_lean=True)
    assert (model.requests[0].system, model.requests[0].tools) == tuple(lean)


@pytest.mark.parametrize(("window", "most"), [(4_096, 4_500), (100_000, 21_000)])
async def test_memory_index_and_results_of_tools_are_bounded_by_the_window(autojump_clock, window, most):
    disk = MemoryDisk()
    disk.put("memory/facts/long.md", b"# Long\n\n" + b"word " * 4_000)
    for n in range(200):
        disk.put(f"memory/facts/{n}.md", b"# Fact\n\n> Summary: " + b"s" * 150)
    model = ScriptedModel([say("", call("memory_read", "c", path="facts/long.md")), say("")])
    settings = Settings(models=ModelSettings(context_window=window))
    async with open_world(model, disk=disk, settings=settings) as world:
        await world.say("hi", CLI)
        await world.idle()
    index, _, result = (entry["content"] for entry in world.session() if entry["role"] != "assistant")
    assert "memory_search finds them" in index
    assert (len(index) < 2_000) == (window == 4_096)
    assert most // 2 < len(result) < most


async def test_a_task_with_a_small_window_gets_lean_prompt_and_tools(autojump_clock):
    model = ScriptedModel([say("", call("spawn_subagent", "c", description="d", input="i")), *[say("")] * 3])
    work = ScriptedModel([say("done")])
    settings = Settings(models=ModelSettings(context_window=8_192))
    async with open_world(model, task_model=work, settings=settings) as world:
        await world.say("do it", CLI)
        await world.idle()
    request = work.requests[0]
    assert prompt_parts(request.system, request.tools).tokens < MOST
    assert "task_replay" not in {tool.name for tool in request.tools}
    assert "notify" in {tool.name for tool in request.tools}


def test_lean_tools_of_tasks_keep_what_is_needed():
    specs = [tool.spec for tool in standard_tools(Settings().tools, None, lambda: 0)]
    lean = {spec.name: spec for spec in lean_task_specs(specs)}
    assert prompt_parts("", tuple(lean.values())).tokens < 700
    assert set(lean["read_file"].parameters["properties"]) == {"path", "offset"}
    assert lean["shell_exec"].parameters["required"] == ["command"]
    assert "run_python" not in lean


def test_a_tool_of_the_installation_stays_as_it_is():
    own = attrs.evolve(LEAN_TOOLS[0], name="tickets__search", description="One. Two.")
    assert lean_task_specs([own]) == (own,)


async def test_a_file_that_changes_in_the_middle_of_a_message_counts_from_the_next_one(tmp_path):
    files = WorkspaceFiles(tmp_path)
    toolset = AgentToolset(MainPrompts(BUILT_IN, files=files), ToolExecutor([]))
    (tmp_path / "AGENTS.md").write_text("Write tests first.")
    await toolset.refresh()  # the work on a message begins
    first = toolset.profile().system_prompt
    (tmp_path / "AGENTS.md").write_text("Write tests last, or none.")
    await files.refresh()  # the heartbeat looks as well
    assert toolset.profile().system_prompt == first
    await toolset.refresh()
    assert "Write tests last" in toolset.profile().system_prompt
