"""The channels that the system prompt names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pegasus.identity import ChannelNote
from pegasus.messages import Address, escape_field
from pegasus.settings import Settings

LONGEST_NAME: Final = 64
"""Characters of a channel's name that the system prompt may contain. Ids of real services are far shorter."""


def channel_notes(settings: Settings, known: Sequence[Address]) -> tuple[ChannelNote, ...]:
    """Return the channels that the system prompt names: the configured ones, then those that wrote before this start.

    They are sorted, because an order by time would give the next start another prompt and nothing of it would be cached. An id that is
    no plain name is left out: strangers choose their ids, and one that is a sentence would read as ours. Programs that call
    over the terminal's channel are not listed. Where each chat has a conversation of its own, no chat is told of the others.
    """
    configured = [ChannelNote("cli", "main")] if settings.channels["cli"].enabled else []
    listed = () if settings.agent.scope == "chat" else known
    plain = sorted(
        (address.type, address.channel_id) for address in listed if address.type != "cli" and _is_plain(address)
    )
    return (*configured, *(ChannelNote(escape_field(kind), escape_field(channel_id)) for kind, channel_id in plain))


def _is_plain(address: Address) -> bool:
    """Return whether type and id of an address are single words of a reasonable length."""
    names = (address.type, address.channel_id)
    return all(len(name) <= LONGEST_NAME and len(name.split()) == 1 for name in names)
