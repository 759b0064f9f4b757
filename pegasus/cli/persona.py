"""`pegasus persona …`: who the agent is and what it proposes to become; with the running daemon, or from its files."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import trio

from actors import Child, open_supervisor
from pegasus.cli.asking import Node, ask
from pegasus.gateway.client import ClientError
from pegasus.host import Home, own_home
from pegasus.identity import BUILT_IN, Persona, PersonaError, load_persona
from pegasus.identity.evolution import Evolution, read_standing
from pegasus.identity.fields import ProposalRefused
from pegasus.identity.view import decided_text, proposal_view, text_of_view, view_of
from pegasus.messages import ChannelInfo
from pegasus.settings import Settings
from pegasus.storage import FileDisk, StorageError, journal

COMMAND = "pegasus persona"
_CALLER = ChannelInfo("cli", "persona")


def run_list(home: Home, settings: Settings, *, as_json: bool) -> int:
    """The persona, what was proposed, what was decided."""

    def answer() -> str:
        def down() -> Node:
            return view_of(read_standing(_base(home, settings), home.data))

        view = ask(home, settings, _CALLER, "persona.list", {}, down)
        return json.dumps(view, ensure_ascii=False) if as_json else text_of_view(view, COMMAND)

    return _told(answer)


def run_decide(home: Home, settings: Settings, *, n: int, accept: bool) -> int:
    """Accept or reject a proposal. Without a daemon the home is held meanwhile, so that none begins."""

    def answer() -> str:
        def down() -> Node:
            with own_home(home):
                return trio.run(_decide, home, _base(home, settings), n, accept)

        method = "persona.accept" if accept else "persona.reject"
        return decided_text(ask(home, settings, _CALLER, method, {"n": n}, down))

    return _told(answer)


def _told(answer: Callable[[], str]) -> int:
    try:
        print(answer())
    except (ClientError, ProposalRefused, PersonaError, StorageError) as error:
        print(f"pegasus: {error}", file=sys.stderr)
        return 1
    return 0


def _base(home: Home, settings: Settings) -> Persona:
    return load_persona(home.resolve(settings.agent.persona)) if settings.agent.persona else BUILT_IN


async def _decide(home: Home, base: Persona, n: int, accept: bool) -> Node:
    """With a journal of our own, which ends with us."""

    def clock() -> int:
        return time.time_ns() // 1_000_000

    async def run(inbox: Any) -> None:
        await journal(inbox, FileDisk(home.data), clock=clock)

    async with open_supervisor([Child("journal", run)]) as supervisor:
        evolution = Evolution(supervisor.ref("journal"), base, clock)
        made = await evolution.decide(n, accept=accept, by="the command line")
        return proposal_view(made, (await evolution.standing()).persona)
