"""All commands and their options. What a command does is imported when it is run."""

from __future__ import annotations

import gc
import os
import re
import sys
from typing import Any

import click

from pegasus.cli.options import GLOBAL_OPTIONS, Options

_HELP = {"help_option_names": ["-h", "--help"]}


class _Command(click.Command):
    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, context_settings=_HELP, **attributes)
        self.params += GLOBAL_OPTIONS


class _Group(click.Group):
    command_class = _Command
    group_class = type

    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, context_settings=_HELP, **attributes)
        self.params += GLOBAL_OPTIONS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of definition


@click.group(cls=_Group, invoke_without_command=True)
@click.pass_context
def pegasus(ctx: click.Context) -> int | None:
    """Pegasus, an always-on agent. Without a command: run, and a chat if this is a terminal."""
    if ctx.invoked_subcommand is None:
        return _run(ctx.ensure_object(Options), with_cli=True)
    if ctx.invoked_subcommand != "run":
        gc.enable()
    return None


@pegasus.command()
@click.option("--no-cli", is_flag=True, help="No chat, also if this is a terminal.")
@click.pass_obj
def run(options: Options, no_cli: bool) -> int:
    """Run the agent until it is stopped."""
    return _run(options, with_cli=not no_cli)


@pegasus.command()
@click.option("--channel", default="main", metavar="ID", show_default=True, help="The conversation.")
@click.pass_obj
def chat(options: Options, channel: str) -> int:
    """Chat in the terminal with an agent that is running."""
    home, settings = options.load()
    _check_channel(channel)
    from pegasus.cli.chat import run_chat

    return run_chat(home, settings, channel=channel)


@pegasus.command()
@click.argument("text")
@click.option("--channel", default="send", metavar="ID", show_default=True, help="The conversation.")
@click.option("--wait", default=60.0, metavar="SECONDS", show_default=True, help="How long to wait for a reply.")
@click.pass_obj
def send(options: Options, text: str, channel: str, wait: float) -> int:
    """Send TEXT ("-": what stdin has) to an agent that is running, and print its replies.

    The exit code is 0 if there was at least one.
    """
    home, settings = options.load()
    _check_channel(channel)
    if not 0 <= wait <= 86400:
        raise click.BadParameter(f"found {wait}; allowed: 0 to 86400 seconds", param_hint="--wait")
    text = sys.stdin.read().strip() if text == "-" else text
    if not text.strip():
        raise click.BadParameter("found nothing to send; allowed: a text", param_hint="TEXT")
    from pegasus.cli.send import run_send

    return run_send(home, settings, text=text, channel=channel, wait=wait)


@pegasus.command()
@click.option("--yes", is_flag=True, help="Ask nothing: add what is missing, overwrite nothing.")
@click.pass_obj
def init(options: Options, yes: bool) -> int:
    """Set up a home: settings, token, workspace files."""
    from pegasus.cli.init import run_init

    return run_init(options, ask=not yes)


@pegasus.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def status(options: Options, as_json: bool) -> int:
    """Show what the running agent is doing."""
    home, settings = options.load()
    from pegasus.cli.status import run_status

    return run_status(home, settings, as_json=as_json)


@pegasus.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --watch one a line.")
@click.option("--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
@click.pass_obj
def tree(options: Options, as_json: bool, watch: bool) -> int:
    """Show the supervision tree of the running agent."""
    home, settings = options.load()
    from pegasus.cli.status import run_tree

    return run_tree(home, settings, as_json=as_json, watch=watch)


@pegasus.group()
def tasks() -> None:
    """Background tasks: also of an agent that is not running, where that is possible."""


@tasks.command("list")
@click.option("--date", metavar="YYYY-MM-DD", help="Those of a day (UTC) instead of those in memory.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def tasks_list(options: Options, date: str | None, as_json: bool) -> int:
    """A line for each task."""
    home, settings = options.load()
    _check_date(date)
    from pegasus.cli.tasks import run_list

    return run_list(home, settings, date=date, as_json=as_json)


@tasks.command("show")
@click.argument("task_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def tasks_show(options: Options, task_id: str, as_json: bool) -> int:
    """How a task stands, and what came of it."""
    home, settings = options.load()
    from pegasus.cli.tasks import run_show

    return run_show(home, settings, task_id=task_id, as_json=as_json)


@tasks.command("replay")
@click.argument("task_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def tasks_replay(options: Options, task_id: str, as_json: bool) -> int:
    """The whole conversation of a task."""
    home, settings = options.load()
    from pegasus.cli.tasks import run_replay

    return run_replay(home, settings, task_id=task_id, as_json=as_json)


@tasks.command("cancel")
@click.argument("task_id", metavar="ID")
@click.pass_obj
def tasks_cancel(options: Options, task_id: str) -> int:
    """End a task, with everything it has started."""
    home, settings = options.load()
    from pegasus.cli.tasks import run_cancel

    return run_cancel(home, settings, task_id=task_id)


@tasks.command("resume")
@click.argument("task_id", metavar="ID")
@click.argument("text", default="")
@click.pass_obj
def tasks_resume(options: Options, task_id: str, text: str) -> int:
    """Let a suspended or finished task go on, with TEXT as what it needs to know."""
    home, settings = options.load()
    from pegasus.cli.tasks import run_resume

    return run_resume(home, settings, task_id=task_id, text=text)


@pegasus.group()
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


@pegasus.group()
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


@pegasus.group()
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


@pegasus.group()
def config() -> None:
    """Check and show the settings."""


@config.command("check")
@click.pass_obj
def config_check(options: Options) -> int:
    """Check the settings just as the daemon does. Exit code 78 if something is wrong."""
    from pegasus.cli.config import run_check

    return run_check(options)


@config.command("show")
@click.pass_obj
def config_show(options: Options) -> int:
    """Print the settings in effect, secrets masked, and where they came from."""
    from pegasus.cli.config import run_show

    return run_show(options)


@pegasus.group()
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


def _run(options: Options, *, with_cli: bool) -> int:
    home, settings = options.load()
    from pegasus.app import run_daemon
    from pegasus.cli.config import check_rooms

    check_rooms(home, settings)
    gc.freeze()  # modules stay for good: no collection needs to look at them again
    gc.enable()
    return run_daemon(home, settings, with_cli=with_cli and settings.channels.cli.enabled and os.isatty(0))


def _check_date(date: str | None) -> None:
    if date is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        raise click.BadParameter(f"found {date!r}; allowed: YYYY-MM-DD", param_hint="--date")


def _check_channel(channel: str) -> None:
    if not channel or not channel.isprintable():
        raise click.BadParameter(f"found {channel!r}; allowed: printable text", param_hint="--channel")
