"""`pegasus skills list` and `pegasus skills check`: from the files, with or without a daemon.

`check` finds what is wrong with a file, and what would fail later although the file is well-formed: a name that is a
command, a tool that does not exist, a type of task that does not exist, a model without a provider.

The second kind is called a doubt, because the files alone do not decide it: tools of an MCP server exist only while that server
runs, and a model may be defined tomorrow. The daemon therefore loads such a skill, and it fails when it is called. A problem of
the first kind that is fatal keeps the skill from being loaded at all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase

from pegasus.cli.control import fit_terminal, print_text
from pegasus.cli.options import JSON, CommandGroup, program_name
from pegasus.formatting import plural
from pegasus.host import Home
from pegasus.intake import CONTROL_COMMANDS
from pegasus.messages import Json
from pegasus.models import ModelConfigError, find_providers, role_spec, split_spec
from pegasus.settings import Settings
from pegasus.skills import BUILT_IN, Skill, SkillCatalog
from pegasus.tasks import BUILT_IN_TYPES, load_task_types
from pegasus.tools import ALL_TASK_TOOLS, MAIN_AGENT_TOOLS

COMMANDS = CommandGroup()
SKILLS = COMMANDS.subgroup("skills", "List and check skills: instructions called by name.")


@SKILLS.declare("list", JSON)
def run_list(home: Home, settings: Settings, *, as_json: bool) -> int:
    """List skills: name, origin, who may call it, purpose."""
    skills = skills_of(home)
    rows = [_as_json(skill, home) for skill in sorted(skills.all(), key=lambda skill: skill.name)]
    if as_json:
        found = {"skills": rows, "problems": [str(problem) for problem in skills.problems]}
        print_text(json.dumps(found, ensure_ascii=False), always=False)
        return 0
    for row in rows:
        callers_by_right = {(True, True): "you, model", (True, False): "you", (False, True): "model"}
        callers = callers_by_right.get((bool(row["userInvocable"]), bool(row["modelInvocable"])), "nobody")
        line = f"{row['name']:<16} {row['source']:<9} {row['context']:<6} {callers:<10} {row['description']}"
        print_text(fit_terminal(line))
    if not rows:
        print("No skills.")
    if skills.problems:
        print(f"\n{plural(len(skills.problems), 'problem')}: see `{program_name()} skills check`.")
    return 0


@SKILLS.declare("check")
def run_check(home: Home, settings: Settings) -> int:
    """Check the files of skills.

    The exit code is 1 if a skill cannot be used as it stands.
    """
    skills = skills_of(home)
    for problem in skills.problems:
        print_text(str(problem))
    doubts = [f"{skill.folder}: {doubt}" for skill in skills.all() for doubt in doubts_about(skill, home, settings)]
    for doubt in doubts:
        print_text(doubt)
    if doubts or any(problem.is_fatal for problem in skills.problems):
        return 1
    print(f"{plural(len(skills.all()), 'skill')}: ok")
    return 0


def skills_of(home: Home) -> SkillCatalog:
    """Return the skills of a home: the user's win over the built-in ones, and those of the workspace over all.

    Files with mistakes are in `problems` of the result.
    """
    return SkillCatalog(BUILT_IN, home.skills, home.workspace / "skills")


def doubts_about(skill: Skill, home: Home, settings: Settings) -> Iterator[str]:
    """Yield what will not work although the file is well-formed, one sentence each."""
    if skill.by_user and f"/{skill.name}" in CONTROL_COMMANDS | {"/new"}:
        yield f"/{skill.name} is a command of Pegasus, so nobody can call the skill by it"
    yield from _doubtful_tools(skill)
    if skill.fork:
        types, _ = load_task_types(BUILT_IN_TYPES, home.subagents)
        if types.get(skill.agent) is None:
            yield f"agent {skill.agent!r}: there is no such type of task; there are: {', '.join(types.names())}"
    if skill.model:
        try:
            providers = find_providers(settings.providers)
            split_spec(role_spec(skill.model, settings.models, providers), providers, "model")
        except ModelConfigError as error:
            yield str(error)


def _doubtful_tools(skill: Skill) -> Iterator[str]:
    """Yield the tools of a skill that it will not have. Those of MCP servers are known to a running daemon only."""
    for name in skill.tools or ():
        if "__" in name:  # of an MCP server, which only a running daemon knows
            continue
        if not skill.fork and not _matches(name, MAIN_AGENT_TOOLS) and _matches(name, ALL_TASK_TOOLS):
            yield f"allowed-tools {name}: only background tasks have it; the skill wants `context: fork`"
        elif not _matches(name, (*MAIN_AGENT_TOOLS, *ALL_TASK_TOOLS, "ask_user")):
            yield f"allowed-tools {name}: there is no such tool"


def _matches(pattern: str, names: Iterable[str]) -> bool:
    """Return True if one of the names fits the pattern, as "memory_*" does. Upper and lower case differ."""
    return any(fnmatchcase(name, pattern) for name in names)


def _as_json(skill: Skill, home: Home) -> dict[str, Json]:
    """Return a skill as `--json` prints it. None: the skill leaves the value to the agent (all tools, the usual model)."""
    tools: Collection[str] | None = skill.tools
    return {
        "name": skill.name,
        "description": skill.description,
        "source": _source(skill, home),
        "folder": str(skill.folder),
        "context": "fork" if skill.fork else "inline",
        "agent": skill.agent if skill.fork else None,
        "model": skill.model or None,
        "allowedTools": None if tools is None else list(tools),
        "userInvocable": skill.by_user,
        "modelInvocable": skill.by_model,
    }


def _source(skill: Skill, home: Home) -> str:
    """Return the origin of a skill: built-in, home or workspace."""
    return {BUILT_IN: "built-in", home.skills: "home"}.get(skill.folder.parent, "workspace")
