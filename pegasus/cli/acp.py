"""`pegasus acp`: the agent of an editor, on stdin and stdout."""

from __future__ import annotations

from functools import partial
from typing import Final

import click
import trio

from pegasus.acp import serve_editor
from pegasus.cli.chat import ensure_daemon
from pegasus.cli.commands import Options, pegasus
from pegasus.cli.control import find_daemon
from pegasus.host import Home, folder_problem
from pegasus.settings import Settings

ENVELOPE: Final = 4096
"""Bytes of a message's frame beside its text and files."""


@pegasus.declare("acp", is_client=True)
def run_acp(home: Home, settings: Settings) -> int:
    """Be the agent of an editor, by the Agent Client Protocol.

    Editors start it and talk with it on stdin and stdout. It joins the agent that runs, and starts one in the background if none does;
    that goes on when the editor ends.
    """
    options = click.get_current_context().find_object(Options)
    start = partial(ensure_daemon, home, () if options is None else options.arguments())
    problem = partial(folder_problem, home=home.path, workspace=home.workspace)
    room = settings.gateway.max_frame_bytes - ENVELOPE
    trio.run(serve_editor, partial(find_daemon, home, settings), start, problem, room)
    return 0
