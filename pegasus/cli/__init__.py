"""The command line: thin commands over the composition root and the gateway's client.

`program.py` turns what goes wrong into one line and an exit code; `commands.py` and `owned.py` say what commands and options
there are.
"""

from pegasus.cli.program import main

__all__ = ["main"]
