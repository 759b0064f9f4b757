"""Entry of `python -m pegasus` and of the console script `pegasus`."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and exit with its code.

    The command line is imported inside the `try`, so that Ctrl-C during the imports ends without a traceback. The garbage collector
    is off meanwhile, and leaves out for good what they have made: modules live as long as the process. `imports_uncollected`, which
    says more, is not imported yet.
    """
    try:
        gc.disable()
        from pegasus.cli import main as run

        gc.freeze()
        gc.enable()
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
