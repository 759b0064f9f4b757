"""The command line: thin commands over the composition root and the gateway's client.

`main` runs a command line and returns its exit code. `commands` is the table of commands; each topic has a module, which
declares its commands with `options.CommandGroup`. `control` asks the running daemon, or reads the files while none runs.

A command holds no knowledge of its own: it gets an answer (a JSON object, the same that a program gets from the gateway) and
makes lines of it for people. So everything a person can see here a program can get with `--json`.
"""

from pegasus.cli.program import main

__all__ = ["main"]
