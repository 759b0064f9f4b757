"""`PushServices`: the parts of the agent that notifications are made of."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from random import Random
from typing import TypeAlias

import attrs

from actors import Ref
from pegasus.access import TokenGrant
from pegasus.gateway import Listeners
from pegasus.messages import ApprovalNotice, ChannelInfo
from pegasus.push.subscriptions import PushBook
from pegasus.settings import LiveValue, PushSettings
from pegasus.storage import JournalMessage

OpenNotices: TypeAlias = Callable[[], Awaitable[Sequence[ApprovalNotice] | None]]
"""Returns the approvals that wait, None if that cannot be told now."""


@attrs.frozen(eq=False, repr=False, kw_only=True)
class PushServices:
    """The parts of the agent that notifications are made of."""

    book: PushBook
    journal: Ref[JournalMessage]
    listeners: Listeners
    """Readers of what the agent says."""
    open_notices: OpenNotices
    owners: LiveValue[Collection[str]]
    """The setting `agent.owners`."""
    settings: LiveValue[PushSettings]
    contact: Callable[[], str]
    """Returns the address by which push services reach whoever sends."""
    agent: Callable[[], str]
    """Returns the agent's name."""
    clean: Callable[[str], str]
    """Removes secrets from the arguments of calls."""
    key_file: Path
    clock: Callable[[], int]
    """Wall clock, ms."""
    random: Random
    look: float = math.inf
    """Seconds after which a browser is thought of in any case: what other nodes do is not heard here."""


def channel_of(grant: TokenGrant) -> ChannelInfo:
    """Return the conversation of a page with these rights."""
    return ChannelInfo("web", grant.channel_id or "main")


def in_settings(reason: str) -> str:
    """Return why an address is refused, with the setting that permits it here."""
    return reason.replace("tools.allowed_hosts", "push.allowed_hosts")
