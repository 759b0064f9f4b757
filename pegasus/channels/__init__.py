"""Channels: what an adapter is, and the switchboard that routes replies to adapters.

A *channel type* is a kind of place where people talk: `cli`, `web`, `sms`. Its *adapter* is the actor that connects it with
the agent. The gateway is the adapter of every type that has none of its own, so most channels need no code here: a program in
any language connects to it as a bridge. docs/channels.md shows both ways of adding a channel.

* `adapter`: the messages to an adapter, and the base class of an adapter inside the process.
* `switchboard`: routes each reply to the adapter of its channel type.
"""

from __future__ import annotations

from pegasus.channels.adapter import Adapter, AdapterMessage, CatchUp, DeliverReply, ReplyRefused
from pegasus.channels.switchboard import SwitchboardMessage, run_switchboard

__all__ = [
    "Adapter",
    "AdapterMessage",
    "CatchUp",
    "DeliverReply",
    "ReplyRefused",
    "SwitchboardMessage",
    "run_switchboard",
]
