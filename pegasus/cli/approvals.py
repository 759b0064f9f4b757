"""`pegasus approvals …`: tool calls that wait for an owner, and answers to them.

They need the running daemon: a call can only wait while there is one, and its task goes on in it.
"""

from __future__ import annotations

from typing import Any

import click

from pegasus.cli.commands import JSON, pegasus
from pegasus.cli.control import Answer, query
from pegasus.formatting import format_duration, quote
from pegasus.host import Home, wall_clock
from pegasus.messages import ApprovalNotice, Json, Metadata
from pegasus.policy import shown_subject
from pegasus.settings import Settings
from pegasus.wire import from_wire

APPROVALS = pegasus.subgroup("approvals", "Tool calls that wait for your yes or no.")

_ID = click.Argument(["id_"], metavar="ID")
_ALWAYS = click.Option(
    ["--always", "scope"],
    flag_value="always",
    help="For each later call of this tool with exactly these arguments, too.",
)


def read_values(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> dict[str, Json] | None:
    """Return the values of a form, None if there are none. Raises click.BadParameter for a word that is none."""
    for word in words:
        if "=" not in word:
            raise click.BadParameter(f"found {quote(word)}, allowed: NAME=VALUE")
    return {word.partition("=")[0]: word.partition("=")[2] for word in words} or None


_VALUES = click.Argument(["values"], nargs=-1, metavar="[NAME=VALUE]...", callback=read_values)
_REASON = click.Argument(["reason"], required=False, metavar="[REASON]")


def list_text(answer: Answer) -> str:
    """Return the calls that wait, each with everything that would be run."""
    blocks = [_block(each) for each in answer["approvals"]]
    if not blocks:
        return "No call waits for you."
    return "\n\n".join([*blocks, "Answer with: approvals allow ID, or approvals deny ID"])


def _block(approval: Answer) -> str:
    """Return one call: its id, tool and reason, then its arguments, or what a server asks."""
    left = format_duration(max(0, approval["expires"] - wall_clock()) / 1000)
    notice = from_wire(dict(approval), ApprovalNotice)
    subject = shown_subject(notice).replace("\n", "\n    ")
    head = f"{approval['id']}  {approval['tool']}, for {_person(approval)}; {left} left"
    return f"{head}\n    why: {approval['why']}\n    {subject}"


def _person(approval: Answer) -> str:
    """Return whose work it is: `owner, cli main`."""
    channel: Any = approval.get("channel") or {}
    names = [channel.get("type"), channel.get("channelId"), channel.get("userId")]
    return ", ".join([approval.get("who", ""), " ".join(str(name) for name in names if name)])


def answer_text(answer: Answer) -> str:
    """Return what was decided."""
    approval = answer["approval"]
    return f"{approval['id']} is {approval['state']}: {approval['tool']}"


@query(APPROVALS, "list", JSON, method="approvals.list", text=list_text)
def run_list(home: Home, settings: Settings) -> Answer | None:
    """Show the calls that wait, with exactly what would be run."""
    return None


@query(APPROVALS, "allow", _ID, _VALUES, _ALWAYS, method="approvals.allow", text=answer_text)
def run_allow(
    home: Home, settings: Settings, *, id_: str, scope: str | None = None, values: Metadata | None = None
) -> Answer | None:
    """Let the call ID be made, once or always. If a server asks for values, give them."""
    return None


@query(APPROVALS, "deny", _ID, _REASON, method="approvals.deny", text=answer_text)
def run_deny(home: Home, settings: Settings, *, id_: str, reason: str | None = None) -> Answer | None:
    """Refuse the call ID; the model reads the REASON."""
    return None
