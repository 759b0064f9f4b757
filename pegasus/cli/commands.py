"""The commands and their options; those about data that the user owns are in `owned.py`. What one does is imported when it is run."""

from __future__ import annotations

import gc
import os
import re
import sys

import click

from pegasus.cli.groups import Group
from pegasus.cli.options import Options
from pegasus.cli.owned import memory, persona, sessions, skills


@click.group(cls=Group, invoke_without_command=True)
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
    from pegasus.cli.chat import run_chat_command

    return run_chat_command(home, settings, channel=channel)


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


for _owned in (memory, skills, sessions, persona):
    pegasus.add_command(_owned)


def _run(options: Options, *, with_cli: bool) -> int:
    home, settings = options.load()
    from pegasus.cli.config import check_rooms

    check_rooms(home, settings)
    gc.freeze()  # modules stay for good: no collection needs to look at them again
    gc.enable()
    if with_cli and settings.channels.cli.enabled and os.isatty(0):
        from pegasus.cli.chat import run_with_chat

        return run_with_chat(home, settings, options.arguments())
    from pegasus.app import run_daemon

    return run_daemon(home, settings)


def _check_date(date: str | None) -> None:
    if date is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        raise click.BadParameter(f"found {date!r}; allowed: YYYY-MM-DD", param_hint="--date")


def _check_channel(channel: str) -> None:
    if not channel or not channel.isprintable():
        raise click.BadParameter(f"found {channel!r}; allowed: printable text", param_hint="--channel")
