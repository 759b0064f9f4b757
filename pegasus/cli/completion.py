"""`pegasus completion`: the script that completes commands and options in a shell.

The script calls `pegasus` with a variable set, and click answers with what may stand at the cursor. So it knows the commands of
the version that is installed, and need not be renewed with it.
"""

from __future__ import annotations

import sys
from typing import Final

import click
from click.shell_completion import get_completion_class

from pegasus.cli.commands import COMPLETE_VARIABLE, OneOf, Options, pegasus
from pegasus.cli.control import is_terminal
from pegasus.host import print_error

HOW: Final = {
    "bash": "pegasus completion bash >> ~/.bashrc",
    "zsh": "pegasus completion zsh >> ~/.zshrc",
    "fish": "pegasus completion fish > ~/.config/fish/completions/pegasus.fish",
}
"""Command that makes the completion last, for each shell."""


@pegasus.declare("completion", click.Argument(["shell"], type=OneOf(list(HOW))), options_only=True)
def run_completion(options: Options, *, shell: str) -> int:
    """Print the completion script for SHELL: bash, zsh or fish.

    To use it in this shell: eval "$(pegasus completion bash)", and accordingly for zsh; in fish: pegasus completion fish | source
    """
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click knows the three
    script = made(pegasus, {}, "pegasus", COMPLETE_VARIABLE)
    # `source()` of bash starts a bash to warn about an old version, which need not be the one that reads the script.
    print(script.source_template % script.source_vars(), flush=True)
    if is_terminal(sys.stdout):
        print_error(f"To have it in each new shell: {HOW[shell]}")
    return 0
