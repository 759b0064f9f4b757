"""How one sees what the daemon does: logs.

`get_logger(name)` anywhere; the composition root configures, starts and stops.
"""

from pegasus.observe.log import Logger, configure_logging, get_logger, start_logging, stop_logging

__all__ = ["Logger", "configure_logging", "get_logger", "start_logging", "stop_logging"]
