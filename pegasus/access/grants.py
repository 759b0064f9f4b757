"""Grants: what a yes to a call allows beyond that call.

An owner who says yes chooses how far it reaches (`AnswerScope`). Everything beyond "once" makes a grant, a row in the file of the
approvals that is listed and can be revoked. A grant for a tool is bound to the tool as it was: its server's command or URL, its
name, description, schema and annotations. A grant for a server names each of its tools in the same way, so a tool that was changed
or came later is not covered.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import attrs

from pegasus.formatting import format_time
from pegasus.messages import Metadata

HOUR: Final = 3_600_000
"""Milliseconds that a grant of the scope "hour" lasts."""


class AnswerScope(StrEnum):
    """Reach of a yes. Stored, so the values must not change."""

    ONCE = "once"
    """The calls that were asked about."""
    ARGUMENTS = "arguments"
    """Each later call of the same tool with the same arguments."""
    TOOL = "tool"
    """Each later call of the tool in this task, with any arguments."""
    SERVER = "server"
    """Each later call of a tool of the same server in this task."""
    HOUR = "hour"
    """Each call of the tool within an hour."""
    FOREVER = "forever"
    """Each later call of the tool."""


IN_TASK: Final = (AnswerScope.TOOL, AnswerScope.SERVER)
"""Scopes that end with the task."""
ALWAYS: Final = "always"
"""Another name of the scope "arguments"."""


def parse_scope(word: str) -> AnswerScope | None:
    """Return the scope of this name, None if there is none."""
    if word == ALWAYS:
        return AnswerScope.ARGUMENTS
    return AnswerScope(word) if word in list(AnswerScope) else None


@attrs.frozen
class CallGrant:
    """A yes that serves for later calls."""

    id: str
    """Short name by which people revoke it."""
    scope: AnswerScope
    """Reach; never ONCE."""
    tool: str
    """Name of the tool, "" for all tools of a server."""
    server: str
    """MCP server that has the tool, "" for a tool of this program."""
    hash: str
    """Digest of the call for ARGUMENTS, of all `tools` for SERVER, otherwise the fingerprint of the tool."""
    by: str
    """Author of the yes."""
    at: int
    """Time of the yes, wall clock, ms."""
    task_id: str = ""
    """The task in which it serves; "" = everywhere."""
    until: int = 0
    """Wall clock at which it ends, ms; 0 = never by itself."""
    tools: Metadata = attrs.field(factory=dict)
    """Of a server: the fingerprint of each tool by its name."""
    shown: str = ""
    """Beginning of the arguments, for the list that people see."""


def describe_grant(grant: CallGrant) -> str:
    """Return a grant for people: what it is for and how far it reaches, then since when and by whom, and the arguments."""
    what = grant.tool or f"all tools of the MCP server {grant.server}"
    reach = {AnswerScope.ARGUMENTS: "with the arguments below", AnswerScope.HOUR: "for an hour"}
    where = f"in the task {grant.task_id}" if grant.task_id else reach.get(grant.scope, "until it is revoked")
    lines = [f"{grant.id}  {what}, {where}", f"since {format_time(grant.at, local=True)}, by {grant.by}"]
    return "\n".join([*lines, *([grant.shown] if grant.shown else [])]).replace("\n", "\n    ")


def describe_revoked(grant: CallGrant) -> str:
    """Return what does not count any more."""
    what = grant.tool or f"the MCP server {grant.server}"
    return (
        f"{grant.id} is revoked. Unless another grant is for {what}, it needs a yes again where the rules ask for one."
    )
