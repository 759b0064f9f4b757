"""The sample workspace: a few small files to look around with, made at the first start of an agent that has no model yet.

The commands of the documentation (`list`, `read notes.txt`, `search TODO`) then show something. The files are ordinary ones and
nothing reads them by itself. Whoever deletes them does not get them again, because they are made only in a home that has no data yet.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from pegasus.host.home import Home, HomeError, write_private
from pegasus.host.process import command_name

SAMPLES: Final = {
    "notes.txt": """\
This is the workspace: tasks read and write here. You may delete these sample files.

- The kitchen tap drips. TODO: call the plumber.
- Ada's birthday is on 10 December.
""",
    "todo.md": """\
# This week

- [x] start Pegasus
- [ ] TODO: say "demo" in the chat
- [ ] TODO: give it a real model with `{command} init`
""",
    "recipes/soup.md": """\
# Tomato soup

Onions, a kilo of tomatoes, basil. TODO: try it with lentils.
""",
}
"""Content by path below the workspace; {command} stands for the command that starts Pegasus."""


def make_samples(home: Home) -> bool:
    """Make the sample files if the home is new: no data yet, and no file in the workspace. Return whether they were made.

    A disk that refuses is no reason not to start; the agent then has no samples.
    """
    if any(home.data.iterdir()) or any(files for _, _, files in os.walk(home.workspace)):
        return False
    with suppress(OSError, HomeError):
        for name, text in SAMPLES.items():
            path = home.workspace / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, text.replace("{command}", command_name()))
        return True
    return False
