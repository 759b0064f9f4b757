"""Between the agent and the places people talk in: one way in (intake), one way out (switchboard), and the adapters.

An adapter is an actor that takes AdapterMessages and hands what it hears to `submit`; the gateway is the adapter of every
channel type that has none of its own.
"""

from __future__ import annotations

from pegasus.channels.messages import AdapterMessage, CatchUp, Deliver

__all__ = ["AdapterMessage", "CatchUp", "Deliver"]
