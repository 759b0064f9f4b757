"""Observation of the daemon: its logs.

`get_logger(name)` works anywhere and at any time; the composition root calls `configure_logging` and `stop_logging`.
As a library Pegasus calls `forward_logging` instead.
"""

from pegasus.observe.log import Logger, configure_logging, forward_logging, get_logger, stop_logging

__all__ = ["Logger", "configure_logging", "forward_logging", "get_logger", "stop_logging"]
