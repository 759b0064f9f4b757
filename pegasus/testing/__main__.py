"""Programs of the test kit: `python -m pegasus.testing bridge COMMAND` examines a bridge."""

from __future__ import annotations

import sys

from pegasus.testing.bridges.command import main as examine

if __name__ == "__main__":
    if sys.argv[1:2] != ["bridge"]:
        sys.exit("usage: python -m pegasus.testing bridge [--service SERVICE] COMMAND …")
    sys.exit(examine(sys.argv[2:]))
