"""Observation of the daemon: its logs, and what it has done since its start (`activity`).

`get_logger(name)` works anywhere and at any time; the composition root calls `configure_logging` and `stop_logging`.
As a library Pegasus calls `forward_logging` instead.

Example::

    configure_logging(home.log, level="info", secrets=[token])
    get_logger("gateway").info("client connected", peer=address)
    stop_logging()

An entry is an event, in a few fixed words, and fields. Secrets are masked in the text of the whole entry, so a caller need
not know which value is one. Writing raises nothing and waits for no reader: lines that cannot be written are counted,
and the number stands before the next one that gets through.
"""

from pegasus.observe.activity import (
    BUCKETS,
    COUNTERS,
    DURATIONS,
    GAUGES,
    Activity,
    FinishedWork,
    MessageDone,
    ModelCallEnded,
    ReplyPosted,
    ToolCallEnded,
)
from pegasus.observe.log import Logger, configure_logging, forward_logging, get_logger, stop_logging

__all__ = [
    "BUCKETS",
    "COUNTERS",
    "DURATIONS",
    "GAUGES",
    "Activity",
    "FinishedWork",
    "Logger",
    "MessageDone",
    "ModelCallEnded",
    "ReplyPosted",
    "ToolCallEnded",
    "configure_logging",
    "forward_logging",
    "get_logger",
    "stop_logging",
]
