"""The composition root, the only room that knows everybody: settings become a supervision tree inside a process.

`tree` builds it from `parts` that a simulation can replace, `tasks` the background work in it; `daemon` is the real world; `control`
is what programs may ask.
"""

from pegasus.app.daemon import run_daemon
from pegasus.app.parts import Parts
from pegasus.app.tree import Grown, grow, open_channels

__all__ = ["Grown", "Parts", "grow", "open_channels", "run_daemon"]
