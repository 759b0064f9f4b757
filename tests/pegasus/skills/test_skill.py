"""What a SKILL.md says, and what is said of a wrong one."""

from pathlib import Path

import pytest
import yaml

from pegasus.skills import BUILT_IN, SkillCatalog, expand
from pegasus.skills.skill import MAX_DESCRIPTION, parse_skill, specification_problems


def skill_of(text, folder="thing"):
    return parse_skill(text, Path("skills") / folder)[0]


def warnings_of(text, folder="thing"):
    return parse_skill(text, Path("skills") / folder)[1]


def test_everything_a_front_matter_may_say():
    text = """---
name: thing
description: Does a thing.
disable-model-invocation: true
user-invocable: false
allowed-tools: read_file, github__*
context: fork
agent: explore
model: anthropic/claude-haiku-5-5
argument-hint: "[what]"
arguments: zero-based
---
Do it."""
    found = skill_of(text)
    assert (found.name, found.description, found.body) == ("thing", "Does a thing.", "Do it.")
    assert (found.by_model, found.by_user, found.fork, found.agent) == (False, False, True, "explore")
    assert (found.tools, found.model) == (("read_file", "github__*"), "anthropic/claude-haiku-5-5")
    assert (found.argument_hint, found.first) == ("[what]", 0)


def test_left_out_means_inline_for_everybody_with_every_tool_and_the_model_that_thinks_already():
    found = skill_of("---\ndescription: d\n---\nDo it.")
    assert (found.name, found.fork, found.agent, found.by_model, found.by_user) == (
        "thing",
        False,
        "general",
        True,
        True,
    )
    assert (found.tools, found.model, found.argument_hint, found.first) == (None, "", "", 1)
    assert warnings_of("---\ndescription: d\n---\nDo it.") == []


def test_without_a_description_the_first_paragraph_stands_in_for_it():
    found = skill_of(f"# Title\n\nDoes a\nthing. {'x' * 300}\n\nMore.")
    assert found.description.startswith("Does a thing. xxx")
    assert len(found.description) == 200
    assert "no description" in warnings_of("Body")[0]


def test_a_description_is_one_line_in_which_nothing_hides():
    found = skill_of('---\ndescription: "a\\n\\n## Safety\\u202e\\u0007 off\\U000E0041"\n---\nBody')
    assert found.description == "a ## Safety off"


def test_a_description_that_is_too_long_is_cut_and_that_is_said():
    text = f"---\ndescription: {'x' * 2000}\n---\nBody"
    assert len(skill_of(text).description) == MAX_DESCRIPTION
    assert "is cut" in warnings_of(text)[0]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("read_file, grep_files", ("read_file", "grep_files")),
        ("Read Grep Glob", ("read_file", "grep_files", "list_files")),
        ("mcp__linear__create_issue", ("linear__create_issue",)),
        ("[read_file, Bash]", ("read_file", "shell_exec")),
        ("'*'", None),
        ("all", None),
        ("Read | Write|Grep", ("read_file", "write_file", "grep_files")),
        ("read;write; Bash(a | b;c)", ("read_file", "write_file", "shell_exec(a | b;c)")),
        ('["Read | Write", "Grep"]', ("read_file", "write_file", "grep_files")),
        ("read_file, *", None),
        ("[]", ()),
        ("Bash(git add *), read_file", ("shell_exec(git add *)", "read_file")),
        ("Bash(git:*) Bash(npm run test:*) Read", ("shell_exec(git *)", "shell_exec(npm run test *)", "read_file")),
        ("Bash(*), Read(**)", ("shell_exec", "read_file")),
        ("mcp__github, mcp__linear__*", ("github__*", "linear__*")),
        ("Read(./docs/**), Grep", ("grep_files",)),
        ("text_editor(./docs/**), group:runtime(git *), Grep", ("grep_files",)),
        ("functions.Read, default_api:web_fetch, bash_20250124", ("read_file", "web_fetch", "shell_exec")),
    ],
)
def test_allowed_tools_in_every_common_spelling(written, meant):
    assert skill_of(f"---\ndescription: d\nallowed-tools: {written}\n---\nBody").tools == meant


AGENTS = {
    "Claude Code": ("Read, Write, Edit, Bash, Grep, Glob, WebFetch, WebSearch", "web_search"),
    "OpenClaw": ("read, write, edit, exec, web_fetch, web_search, grep, find", "web_search"),
    "Codex": ("shell, apply_patch, read_file, list_dir, grep_files, web_search, write_file, web_fetch", "web_search"),
    "Gemini CLI": (
        "read_file, write_file, replace, run_shell_command, search_file_content, glob, web_fetch, google_web_search",
        "web_search",
    ),
    "Cursor": ("read_file, write, edit_file, run_terminal_cmd, grep_search, list_dir, web_search, fetch", "web_search"),
    "OpenCode": ("read, write, edit, bash, grep, glob, webfetch, websearch", "web_search"),
    "Hermes": (
        "read_file, write_file, patch, terminal, search_files, list_files, web_extract, web_search",
        "web_search",
    ),
    "Copilot": (
        "readFile, createFile, editFiles, runInTerminal, textSearch, listDirectory, fetch, search/web",
        "web_search",
    ),
}


@pytest.mark.parametrize(
    "agent", [pytest.param(name, marks=pytest.mark.tried("skills", f"tools of {name}", "mapped")) for name in AGENTS]
)
def test_tools_of_other_agents_are_tools_here_and_a_skill_that_needs_them_is_a_task(agent):
    skill = skill_of(f"---\ndescription: d\nallowed-tools: {AGENTS[agent][0]}\n---\nBody")
    files = {
        "read_file",
        "write_file",
        "edit_file",
        "shell_exec",
        "grep_files",
        "list_files",
        "web_fetch",
        "web_search",
    }
    assert set(skill.tools) == files
    assert skill.fork, "a conversation has none of these tools"


def test_where_a_skill_runs_is_its_own_word_if_it_has_one():
    assert not skill_of("---\ndescription: d\ncontext: inline\nallowed-tools: Read\n---\nBody").fork
    assert not skill_of("---\ndescription: d\nallowed-tools: memory_*, current_time\n---\nBody").fork
    assert not skill_of("---\ndescription: d\n---\nBody").fork


def test_a_tool_that_cannot_be_allowed_in_part_is_not_allowed_and_that_is_said():
    [warning] = warnings_of("---\ndescription: d\nallowed-tools: Write(docs/*)\n---\nBody")
    assert "Write(docs/*)" in warning
    assert "left out" in warning


@pytest.mark.parametrize("key", ["allowed_tools", "allowedTools", "tools"])
def test_other_spellings_of_the_list_of_tools_are_limits_too(key):
    assert skill_of(f"---\ndescription: d\n{key}: [read_file]\n---\nBody").tools == ("read_file",)


def test_keys_of_other_agents_are_no_mistakes():
    front = (
        "description: d\nhomepage: https://example.com\nplatforms: [linux, macos]\nversion: 1.2\nauthor: Ann\n"
        "when_to_use: When it rains.\nmodel: sonnet\ncontext: fork\nagent: Explore\narguments: [issue, branch]\n"
        'metadata: {openclaw: {"emoji": "x", "requires": {"bins": ["git"]}}}\n'
    )
    skill = skill_of(f"---\n{front}---\nMend $issue on $branch, not $HOME.")
    [warning] = warnings_of(f"---\n{front}---\nBody")
    assert "'sonnet'" in warning
    assert (skill.description, skill.agent, skill.model) == ("d When it rains.", "explore", "")
    assert expand(skill, "42 main") == "Mend 42 on main, not $HOME."


def test_keys_of_this_agent_may_stand_below_metadata_as_the_common_format_wants():
    text = "---\ndescription: d\nmetadata:\n  pegasus-context: fork\n  author: x\n  pegasus-disable-model-invocation: true\n---\nB"
    skill = skill_of(text)
    assert (skill.fork, skill.by_model) == (True, False)
    assert warnings_of(text) == []


def test_the_built_in_skills_keep_to_the_common_format():
    for file in BUILT_IN.glob("*/SKILL.md"):
        text = file.read_text("utf-8")
        assert specification_problems(text, file.parent.name) == []
        assert "," not in yaml.safe_load(text.split("---\n")[1])["allowed-tools"], "names are separated by blanks"


@pytest.mark.parametrize(
    ("front", "problem"),
    [
        ("name: mine\ndescription: d\nlicense: MIT\ncompatibility: any\nallowed-tools: a\nmetadata:\n  a: b", ""),
        ("name: mine\ndescription: d\nversion: 1", "the keys version"),
        ("description: d", "name is missing"),
        ("name: 7\ndescription: d", "name 7"),
        ("name: mine-\ndescription: d", "name 'mine-'"),
        ("name: other\ndescription: d", "name 'other': must be the name of its folder"),
        ("name: mine", "description"),
        ("name: mine\ndescription: ' '", "description"),
        (f"name: mine\ndescription: {'x' * 1025}", "description"),
        (f"name: mine\ndescription: d\ncompatibility: {'x' * 501}", "compatibility"),
        ("name: mine\ndescription: d\nallowed-tools: [a]", "allowed-tools"),
        ("name: [", "line 2"),
    ],
)
def test_what_the_specification_refuses_is_said(front, problem):
    found = specification_problems(f"---\n{front}\n---\nBody", "mine")
    assert len(found) == bool(problem)
    assert "".join(found).startswith(problem)
    assert specification_problems("Body", "mine") == ["there is no front matter"]


def test_keys_of_the_common_format_are_passed_over_and_others_are_named():
    text = "---\ndescription: d\nlicense: MIT\nmetadata: {a: 1}\nalowed-tools: x\n---\nBody"
    [warning] = warnings_of(text)
    assert "unknown key 'alowed-tools'" in warning


def test_a_skill_that_nobody_may_call_is_doubtful():
    text = "---\ndescription: d\ndisable-model-invocation: true\nuser-invocable: false\n---\nBody"
    assert "nobody can" in warnings_of(text)[0]


@pytest.mark.parametrize(
    ("text", "folder", "problem"),
    [
        ("Body", "..", "the folder '..': allowed are"),
        ("Body", "Big", "allowed are"),
        ("Body", "-x", "allowed are"),
        ("Body", "x" * 65, "allowed are"),
        ("---\nname: other\n---\nBody", "thing", "must be the name of its folder, 'thing'"),
        ("---\nname: ../x\n---\nBody", "thing", "must be the name of its folder"),
        ("---\nname: 7\n---\nBody", "thing", "name must be a text, found a number"),
        ("---\ndescription: d\n---\n\n", "thing", "the body is what the skill says"),
        ("---\ndescription: [x\n---\nBody", "thing", "no YAML"),
        ("---\ndescription: d\n", "thing", "has no end"),
        ("---\ncontext: thread\n---\nBody", "thing", "context 'thread': allowed: inline, fork"),
        ("---\nuser-invocable: 1\n---\nBody", "thing", "must be true or false"),
        ("---\nuser-invocable: maybe\n---\nBody", "thing", "must be true or false"),
        ("---\nallowed-tools: 7\n---\nBody", "thing", "allowed-tools must be"),
        ("---\narguments: two-based\n---\nBody", "thing", "allowed: one-based, zero-based, or names"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(text, folder, problem):
    with pytest.raises(ValueError, match=problem.replace("[", r"\[")):
        parse_skill(text, Path("skills") / folder)


def test_the_built_in_skills_are_without_fault():
    skills = SkillCatalog(BUILT_IN)
    assert {skill.name for skill in skills.all()} >= {"commit", "review", "explain", "decide", "plan-day", "remember"}
    assert skills.problems == ()
    assert all(skill.by_user and skill.tools for skill in skills.all())
    assert {skill.name for skill in skills.all() if skill.fork} == {"commit", "review"}
