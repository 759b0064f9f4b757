"""Entry of `python -m pegasus` and of the console script `pegasus`."""

from __future__ import annotations

import sys

from pegasus.launching import go_on_as_current


def main() -> None:
    """Run the command line and exit with its code.

    All that takes time is imported inside the `try`, so that Ctrl-C during the imports ends without a traceback.
    """
    try:
        go_on_as_current(sys.argv[1:])
        from pegasus.collector import imports_uncollected

        with imports_uncollected():
            from pegasus.cli import main as run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
