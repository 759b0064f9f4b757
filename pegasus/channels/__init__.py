"""The way out: the switchboard and what it sends to the adapters of the channel types.

An adapter is an actor that takes AdapterMessages and hands what it hears to `pegasus.intake`; the gateway is the adapter of
every channel type that has none of its own.
"""

from __future__ import annotations

from pegasus.channels.messages import AdapterMessage, CatchUp, DeliverReply, SwitchboardMessage
from pegasus.channels.switchboard import run_switchboard

__all__ = ["AdapterMessage", "CatchUp", "DeliverReply", "SwitchboardMessage", "run_switchboard"]
