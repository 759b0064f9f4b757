"""`pegasus skills …`: list, check, accept, install, update and remove skills; from the files, whether or not a daemon runs.

`check` finds what is wrong with a file, and what would fail later although the file is well-formed: a name that is a command, a tool
that does not exist, a type of task that does not exist, a model without a provider. The second kind is called a
doubt, because the files alone do not decide it: a tool may come with another version, and a model may be
defined tomorrow. The daemon therefore loads such a skill, and it fails when it is called. A problem of the first kind that is
fatal keeps the skill from being loaded at all.

`install` and `update` show what a skill asks for, or what has changed, and wait for a yes to exactly that. The yes is given on a
terminal, also with --yes, and not in a command of the agent's: a model that was told to install something can ask its owner to.
Within walls such a command does not even see the home; without them its owner is asked about the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import attrs
import click
import trio

from pegasus.cli.commands import JSON, pegasus, program_name
from pegasus.cli.control import Answer, answering_command, fit_terminal, is_terminal, print_text, report_failure
from pegasus.formatting import plural, quote
from pegasus.host import Home, wall_clock
from pegasus.installing import (
    SkillOffer,
    SourceError,
    describe_changes,
    describe_offer,
    find_offers,
    parse_source,
    read_source,
)
from pegasus.intake import COMMANDS
from pegasus.messages import Json
from pegasus.models import ModelConfigError, find_providers, role_spec, split_spec
from pegasus.sandbox import CALL_MARK
from pegasus.settings import Settings
from pegasus.skills import (
    BUILT_IN,
    FILE,
    AcceptedSkills,
    InstalledSkill,
    InstalledSkills,
    NotAcceptable,
    Skill,
    SkillCatalog,
    format_accepted,
    format_proposed,
    skill_view,
    specification_problems,
)
from pegasus.tasks import BUILT_IN_TYPES, load_task_types
from pegasus.tools import ALL_TASK_TOOLS, MAIN_AGENT_TOOLS, AddressGuard

SKILLS = pegasus.subgroup("skills", "Install, list and check skills: instructions called by name.")

# ------------------------------------------------------------------ list, check, accept


def skills_text(answer: Answer) -> str:
    """Return a table of the skills: name, origin, context, who may call it, purpose.

    Skills of the workspace that wait to be accepted stand below the table, each with the command for it.
    """
    # Columns have a fixed width: names are short by rule, and a long one moves only its own row.
    row = "{:<16} {:<9} {:<7} {:<10} {}".format
    # By `userInvocable` and `modelInvocable`.
    callers = {(True, True): "you, model", (True, False): "you", (False, True): "model", (False, False): "nobody"}
    lines = [
        fit_terminal(
            row(
                skill["name"],
                skill["source"],
                skill["context"],
                callers[skill["userInvocable"], skill["modelInvocable"]],
                skill["description"],
            )
        )
        for skill in answer["skills"]
    ]
    if lines:
        lines.insert(0, fit_terminal(row("NAME", "ORIGIN", "CONTEXT", "CALLED BY", "PURPOSE")))
    lines += [
        f"{skill['name']}: installed from {skill['installedFrom']}"
        + (f", commit {skill['revision']}" if skill["revision"] else "")
        for skill in answer["skills"]
        if skill["installedFrom"]
    ]
    lines += [
        format_proposed(skill["name"], skill["problem"] or "", was_accepted=skill["changed"], program=program_name())
        for skill in answer["proposed"]
    ]
    # Each proposed skill is one of the problems; it has a line of its own already.
    problems = len(answer["problems"]) - len(answer["proposed"])
    hint = [f"\n{plural(problems, 'problem')}: see `{program_name()} skills check`."] if problems else []
    return "\n".join([*(lines or ["No skills."]), *hint])


@answering_command(SKILLS, "list", JSON, method=None, text=skills_text)
def run_list_of_skills(home: Home, settings: Settings) -> Answer:
    """List skills: name, origin, who may call it, purpose."""
    skills = skills_of(home)
    rows = [_skill_json(skill, home) for skill in sorted(skills.all(), key=lambda skill: skill.name)]
    proposed: list[Json] = [
        {"name": each.name, "changed": each.was_accepted, "problem": each.problem or None} for each in skills.proposed()
    ]
    return {"skills": rows, "proposed": proposed, "problems": [str(problem) for problem in skills.problems]}


@SKILLS.declare(
    "check",
    click.Argument(["name"], required=False),
    click.Option(["--strict"], is_flag=True, help="Also what the format's specification refuses and is read here."),
)
def run_check(home: Home, settings: Settings, *, name: str | None = None, strict: bool = False) -> int:
    """Check the files of skills, or of the one with this NAME.

    The exit code is 1 if a skill cannot be used as it stands.
    """
    catalog = skills_of(home)
    skills, problems = catalog.all(), catalog.problems
    if name is not None:
        # A skill that is left out is known by its folder only.
        problems = tuple(problem for problem in problems if name in Path(problem.file).parts[-2:])
        skills = tuple(skill for skill in skills if skill.name == name)
        if not skills and not problems:
            names = ", ".join(sorted(skill.name for skill in catalog.all()))
            return report_failure(f"there is no skill {quote(name)}; there are: {names or 'none'}")
    for problem in problems:
        print_text(str(problem))
    # Doubts are printed below problems: first what keeps a skill from being loaded, then what makes it fail later.
    doubts = [f"{skill.folder}: {doubt}" for skill in skills for doubt in doubts_about(skill, home, settings)]
    if strict:
        doubts += [f"{skill.folder}: {problem}" for skill in skills for problem in _against_specification(skill)]
    for doubt in doubts:
        print_text(doubt)
    if doubts or any(problem.is_fatal for problem in problems):
        return 1
    print(f"{plural(len(skills), 'skill')}: ok")
    return 0


@SKILLS.declare("accept", click.Argument(["name"]))
def run_accept(home: Home, settings: Settings, *, name: str) -> int:
    """Accept a skill of the workspace, exactly as its files are now.

    Any later change of a file takes the acceptance back. Read the files before: whoever can write in the workspace has written them.
    """
    if refusal := _refuse_agent():
        return report_failure(refusal)
    try:
        accepted = skills_of(home).accept_now(name, wall_clock())
    except (NotAcceptable, OSError) as error:
        return report_failure(str(error))
    print_text(format_accepted(accepted))
    return 0


# ------------------------------------------------------------------ install, update, remove

_YES = click.Option(["--yes"], is_flag=True, help="Ask nothing; on a terminal only.")


@SKILLS.declare(
    "install",
    click.Argument(["source"]),
    click.Argument(["names"], nargs=-1, metavar="[NAME]..."),
    click.Option(["--all", "everything"], is_flag=True, help="All skills of the source."),
    _YES,
)
def run_install(
    home: Home, settings: Settings, *, source: str, names: tuple[str, ...], everything: bool, yes: bool
) -> int:
    """Install skills of others: shows what they ask for, and asks.

    SOURCE: a folder, an archive (.zip, .skill, .tar.gz, .tar) or git+https://HOST/PATH@REVISION#subdirectory=FOLDER.

    What the skills ask for is shown, and they count once you have said yes to exactly these files.
    """
    try:
        text, revision, offers = _read(settings, source)
    except (SourceError, OSError) as error:
        return report_failure(str(error))
    there = ", ".join(offer.name for offer in offers)
    if missing := set(names) - {offer.name for offer in offers}:
        return report_failure(f"there is no skill {quote(min(missing))} in {text}; there are: {there}")
    if len(offers) > 1 and not names and not everything:
        return report_failure(f"found {len(offers)} skills in {text}: {there}; name those that you want, or give --all")
    chosen = [(text, revision, offer) for offer in offers if offer.name in names or not names]
    return _install(home, settings, chosen, yes=yes)


@SKILLS.declare("update", click.Argument(["name"], required=False), _YES)
def run_update(home: Home, settings: Settings, *, name: str | None, yes: bool) -> int:
    """Read sources again, show what has changed, and ask.

    NAME: of one installed skill; without it all.
    """
    installed = InstalledSkills(home.installed_skills).load()
    if name is not None and name not in installed:
        return report_failure(f"{quote(name)} is not installed; there are: {', '.join(installed) or 'none'}")
    wanted = [skill for skill in installed.values() if name in (None, skill.name)]
    found: list[tuple[str, str, SkillOffer]] = []
    failed = False
    for source in dict.fromkeys(skill.source for skill in wanted):
        try:
            text, revision, offers = _read(settings, source)
        except (SourceError, OSError) as error:
            failed = bool(report_failure(str(error)))
            continue
        by_name = {offer.name: offer for offer in offers}
        for skill in (skill for skill in wanted if skill.source == source):
            if skill.name in by_name:
                found.append((text, revision, by_name[skill.name]))
            else:
                failed = bool(report_failure(f"there is no skill {skill.name} in {source} any more; it stays as it is"))
    if not wanted:
        print("No skill was installed.")
    return _install(home, settings, found, yes=yes) or int(failed)


@SKILLS.declare("remove", click.Argument(["name"]))
def run_remove(home: Home, settings: Settings, *, name: str) -> int:
    """Remove an installed skill."""
    try:
        if not home.installed_skills.is_dir() or not InstalledSkills(home.installed_skills).remove(name):
            names = ", ".join(InstalledSkills(home.installed_skills).load()) or "none"
            return report_failure(f"{quote(name)} is not installed; there are: {names}")
    except OSError as error:
        return report_failure(f"{name} was not removed: {error}")
    print_text(f"Removed the skill {name}.")
    return 0


def _read(settings: Settings, text: str) -> tuple[str, str, list[SkillOffer]]:
    """Return a source as it is shown and kept, its commit, and its skills. Raises SourceError, OSError."""
    source = parse_source(text)
    guard = AddressGuard(settings.tools.allowed_hosts, only=settings.tools.web_hosts)
    tree = trio.run(read_source, source, guard)
    return source.text, tree.revision, find_offers(tree)


def _install(home: Home, settings: Settings, chosen: Sequence[tuple[str, str, SkillOffer]], *, yes: bool) -> int:
    """Show skills with their sources and commits, ask about them, and install them; return the exit code."""
    store = InstalledSkills(home.installed_skills)
    installed = store.load()
    new: list[tuple[str, str, SkillOffer]] = []
    is_refused = False
    for source, revision, offer in chosen:
        old = installed.get(offer.name)
        if problem := offer.problem or _taken(home, offer.name):
            is_refused = bool(report_failure(f"{offer.name} cannot be installed: {problem}"))
        elif old is not None and old.manifest == offer.manifest and (old.source, old.revision) == (source, revision):
            print_text(f"{offer.name}: is as in {source}{f', commit {revision}' if revision else ''}")
        else:
            new.append((source, revision, offer))
            doubts = () if offer.skill is None else doubts_about(offer.skill, home, settings)
            _show(source, revision, attrs.evolve(offer, notices=(*offer.notices, *doubts)), old)
    if not new:
        return int(is_refused)
    names = ", ".join(offer.name for _, _, offer in new)
    if refusal := _refuse_agent():
        return report_failure(refusal)
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        return report_failure("nothing was installed: your yes is needed, on a terminal")
    if not yes and not click.confirm(f"Install {names} with exactly these files?", default=False):
        print("Nothing was installed.")
        return 1
    try:
        home.prepare()
        for source, revision, offer in new:
            before = installed.get(offer.name)
            store.put(
                offer.name,
                offer.files,
                source=source,
                revision=revision,
                at=wall_clock(),
                old=None if before is None else before.manifest,
            )
            print_text(f"Installed {offer.name}; it counts from the next message on.")
    except OSError as error:
        return report_failure(f"{offer.name} was not installed: {error}")
    return int(is_refused)


def _show(source: str, revision: str, offer: SkillOffer, old: InstalledSkill | None) -> None:
    """Print what the owner is asked about: the skill, or the changes of one that is installed."""
    print_text(describe_offer(offer, source, revision))
    if old is None:
        return
    print_text(f"  {'in place of':<10} that from {old.source}{f', commit {old.revision}' if old.revision else ''}")
    files = old.read()
    if not files:
        print_text(f"  {'notice':<10} the files that are installed are not what was accepted; all are shown as new")
    print_text(describe_changes(files, offer.files) or "  no file has changed")


def _taken(home: Home, name: str) -> str:
    """Return why a skill cannot have this name; "" if it can."""
    if f"/{name}" in COMMANDS:
        return f"/{name} is a command of Pegasus"
    present = SkillCatalog(BUILT_IN, home.skills).get(name)
    if present is not None:
        where = "built in" if present.folder.parent == BUILT_IN else f"in {home.skills}"
        return f"there is a skill {name} already, {where}, which it must not replace"
    if name in AcceptedSkills(home.accepted_skills, home.workspace / "skills").load():
        return f"there is a skill {name} already, in the workspace, which it must not replace"
    return ""


def _refuse_agent() -> str:
    """Return why nothing is accepted here: this is a command of the agent's, and an owner accepts. "" elsewhere."""
    return "only an owner accepts a skill, not a command of the agent's" if CALL_MARK in os.environ else ""


# ------------------------------------------------------------------ what is there


def skills_of(home: Home) -> SkillCatalog:
    """Return the skills of a home: the user's win over the built-in ones. Those of the workspace count as far as they are accepted.

    Files with mistakes are in `problems` of the result.

    The catalog is made anew and reads the folders as they are now. The daemon has one of its own.
    """
    accepted = AcceptedSkills(home.accepted_skills, home.workspace / "skills")
    return SkillCatalog(BUILT_IN, home.skills, accepted=accepted, installed=InstalledSkills(home.installed_skills))


def _against_specification(skill: Skill) -> list[str]:
    """Return what the specification of the format refuses in the file of a skill."""
    try:
        return specification_problems((skill.folder / FILE).read_text("utf-8"), skill.name)
    except (OSError, ValueError) as error:
        return [str(error)]


def doubts_about(skill: Skill, home: Home, settings: Settings) -> Iterator[str]:
    """Yield what will not work although the file is well-formed, one sentence each.

    `pegasus doctor` counts them, too. They depend on the settings and on types of tasks, not on the file alone.
    """
    if skill.by_user and f"/{skill.name}" in COMMANDS:
        yield f"/{skill.name} is a command of Pegasus, so nobody can call the skill by it"
    yield from _doubtful_tools(skill)
    if skill.fork:
        # Problems with the files of types are not reported here: they are not the skill's.
        types, _ = load_task_types(BUILT_IN_TYPES, home.subagents)
        if skill.agent not in types:
            yield f"agent {quote(skill.agent)}: there is no such type of task; there are: {', '.join(types)}"
    if skill.model:
        try:
            providers = find_providers(settings.providers)
            # Raises for a provider that is not configured. Whether the provider has the model is known to the provider alone.
            split_spec(role_spec(skill.model, settings.models, providers), providers, "model")
        except ModelConfigError as error:
            yield str(error)


def _doubtful_tools(skill: Skill) -> Iterator[str]:
    """Yield the tools of a skill that it will not have.

    Names with "__" are passed over. They are those of MCP servers, whose tools are known to an agent that runs.
    """
    for name in (entry.partition("(")[0] for entry in skill.tools or ()):
        if "__" in name:
            continue
        # A skill without `context: fork` runs in the conversation, with the tools of the Main Agent only.
        if not skill.fork and not _matches(name, MAIN_AGENT_TOOLS) and _matches(name, ALL_TASK_TOOLS):
            yield f"allowed-tools {name}: only background tasks have it; the skill wants `context: fork`"
        elif not _matches(name, (*MAIN_AGENT_TOOLS, *ALL_TASK_TOOLS, "ask_user")):
            yield f"allowed-tools {name}: there is no such tool"


def _matches(pattern: str, names: Iterable[str]) -> bool:
    """Return True if one of the names fits the pattern, as "memory_*" does. Upper and lower case differ."""
    return any(fnmatchcase(name, pattern) for name in names)


def _skill_json(skill: Skill, home: Home) -> dict[str, Json]:
    """Return a skill as `--json` prints it.

    `folder` and `agent` are of use on this machine only, so the control plane does not send them.
    """
    more: dict[str, Json] = {"folder": str(skill.folder), "agent": skill.agent if skill.fork else None}
    return {**skill_view(skill, home.skills), **more}
