"""Process of the daemon: its home, lock, signals, ready line, standard streams, and systemd's notify protocol.

Everything that makes a good supervised process, without knowledge of what the daemon does.
"""

from pegasus.host.collector import collector_paused
from pegasus.host.daemon import DaemonInfo, announced, read_daemon
from pegasus.host.home import Home, HomeError, ensure_token, read_token, resolve_home, write_private
from pegasus.host.lock import HomeBusy, own_home
from pegasus.host.notify import Notifier
from pegasus.host.process import forbid_inspection, raise_descriptor_limit, wall_clock
from pegasus.host.signals import Signals, handle_signals
from pegasus.host.streams import fill_standard_streams, print_error, print_line, silence_stream

__all__ = [
    "DaemonInfo",
    "Home",
    "HomeBusy",
    "HomeError",
    "Notifier",
    "Signals",
    "announced",
    "collector_paused",
    "ensure_token",
    "fill_standard_streams",
    "forbid_inspection",
    "handle_signals",
    "own_home",
    "print_error",
    "print_line",
    "raise_descriptor_limit",
    "read_daemon",
    "read_token",
    "resolve_home",
    "silence_stream",
    "wall_clock",
    "write_private",
]
