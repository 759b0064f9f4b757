"""The commands about data that the user owns: persona, skills, memory, sessions. What a command does is imported when it is run."""

from __future__ import annotations

import click

from pegasus.cli.groups import Group
from pegasus.cli.options import Options


@click.group(cls=Group)
def persona() -> None:
    """Who the agent is, and what it proposes to become: also of an agent that is not running."""


@persona.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def persona_list(options: Options, as_json: bool) -> int:
    """The persona, what was proposed, and what was decided lately."""
    home, settings = options.load()
    from pegasus.cli.persona import run_list

    return run_list(home, settings, as_json=as_json)


@persona.command("accept")
@click.argument("number", type=click.IntRange(min=1), metavar="N")
@click.pass_obj
def persona_accept(options: Options, number: int) -> int:
    """Accept proposal N. It takes effect at the next start."""
    home, settings = options.load()
    from pegasus.cli.persona import run_decide

    return run_decide(home, settings, n=number, accept=True)


@persona.command("reject")
@click.argument("number", type=click.IntRange(min=1), metavar="N")
@click.pass_obj
def persona_reject(options: Options, number: int) -> int:
    """Reject proposal N; one that was accepted is taken back."""
    home, settings = options.load()
    from pegasus.cli.persona import run_decide

    return run_decide(home, settings, n=number, accept=False)


@click.group(cls=Group)
def skills() -> None:
    """Skills: instructions that are called by name."""


@skills.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def skills_list(options: Options, as_json: bool) -> int:
    """A line for each skill: name, where it comes from, who may call it, what it is for."""
    home, _ = options.load()
    from pegasus.cli.skills import run_list

    return run_list(home, as_json=as_json)


@skills.command("check")
@click.pass_obj
def skills_check(options: Options) -> int:
    """Say what is wrong with the files of skills. Exit code 1 if one cannot be used as it stands."""
    home, settings = options.load()
    from pegasus.cli.skills import run_check

    return run_check(home, settings)


@click.group(cls=Group)
def memory() -> None:
    """What the agent remembers: also of an agent that is not running."""


@memory.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def memory_list(options: Options, as_json: bool) -> int:
    """A line for each file of memory."""
    home, settings = options.load()
    from pegasus.cli.memory import run_list

    return run_list(home, settings, as_json=as_json)


@memory.command("show")
@click.argument("path")
@click.pass_obj
def memory_show(options: Options, path: str) -> int:
    """One file of memory, such as facts/user.md."""
    home, settings = options.load()
    from pegasus.cli.memory import run_show

    return run_show(home, settings, path=path)


@memory.command("log")
@click.argument("path", required=False)
@click.option("--limit", default=20, type=click.IntRange(1, 200), metavar="N", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def memory_log(options: Options, path: str | None, limit: int, as_json: bool) -> int:
    """Who changed what and why, newest first; of one file, with PATH."""
    home, settings = options.load()
    from pegasus.cli.memory import run_log

    return run_log(home, settings, path=path, limit=limit, as_json=as_json)


@memory.command("undo")
@click.argument("n", type=click.IntRange(1), metavar="N")
@click.pass_obj
def memory_undo(options: Options, n: int) -> int:
    """Take change N back; what was changed elsewhere in the file since stays."""
    home, settings = options.load()
    from pegasus.cli.memory import run_undo

    return run_undo(home, settings, n=n)


@memory.command("search")
@click.argument("query")
@click.option("--limit", default=8, type=click.IntRange(1, 30), metavar="N", show_default=True)
@click.option("--in", "where", type=click.Choice(["facts", "episodes", "sessions"]), help="Only there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def memory_search(options: Options, query: str, limit: int, where: str | None, as_json: bool) -> int:
    """Search memory and archived conversations by words, best first."""
    home, settings = options.load()
    from pegasus.cli.memory import run_search

    return run_search(home, settings, query=query, limit=limit, where=where, as_json=as_json)


@click.group(cls=Group)
def sessions() -> None:
    """The conversation with the agent, and what was archived of it; also of an agent that is not running."""


@sessions.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def sessions_list(options: Options, as_json: bool) -> int:
    """A line for each, the oldest first."""
    home, _ = options.load()
    from pegasus.cli.sessions import run_list

    return run_list(home, as_json=as_json)


@sessions.command("show")
@click.argument("file", default="current.jsonl")
@click.option("--json", "as_json", is_flag=True, help="The lines as they are stored.")
@click.pass_obj
def sessions_show(options: Options, file: str, as_json: bool) -> int:
    """All that was said and done in FILE, an archive's name; the current session if left out."""
    home, _ = options.load()
    from pegasus.cli.sessions import run_show

    return run_show(home, name=file, as_json=as_json)
