"""`python -m pegasus` and the console script `pegasus`."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    gc.disable()  # nothing becomes garbage while modules are imported, and looking for it costs a sixth of the start
    try:
        from pegasus.cli import main as run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
