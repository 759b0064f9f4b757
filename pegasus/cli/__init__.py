"""The command line: thin commands over the composition root and the gateway's client.

`main` runs a command line and returns its exit code. `commands` has the main command and its table of modules; each topic has a
module, which declares its commands. `program` runs them. `control` asks the running daemon, or reads the files while none runs.

A command has no logic of its own beyond its options: it gets an answer (a JSON object, the same that a program gets from the
gateway) and formats it for people. So a program gets everything that a person sees here, with `--json` or from the gateway.
"""

from pegasus.cli.program import main

__all__ = ["main"]
