"""The way from the installed program to the version that an update of the home has put in its place.

`pegasus update` installs versions in `<home>/versions`, and the link `current` there names the one that counts. The installation by
pip, pipx or uv, a service's unit and a shell's PATH stay as they are: whatever starts Pegasus with a home goes on as that version, in
the same process. It costs a look at one link, and nothing else is imported for it.

Whoever installs another version by hand means that one. So an update notes the installed version that it took over from (`over`), and
an installation of another version runs itself. So does a clone, which is updated by git.

The home is found before the command line is read, since only the version that counts knows its commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from pegasus import __version__

FOLDER: Final = "versions"
"""Name of the folder in the home."""
CURRENT: Final = "current"
"""Name of the link in it."""
OVER: Final = "over"
"""Name of the file of a version with the installed version that it took over from."""
AS_IT_IS: Final = "PEGASUS_AS_IT_IS"
"""Variable by which a version is tried that does not count yet."""


def go_on_as_current(args: Sequence[str], environ: Mapping[str, str] = os.environ) -> None:
    """Become the version that counts in the home of this command line; return if it is this one. args: without the program's name."""
    if not environ.get(AS_IT_IS) and (python := current_python(_home_of(args, environ))) is not None:
        try:
            os.execv(python, [python, "-P", "-m", "pegasus", *args])  # noqa: S606
        except OSError as error:
            print(f"pegasus: {python}: cannot be started ({error.strerror}); this is {__version__}", file=sys.stderr)  # noqa: T201


def current_python(home: str) -> str | None:
    """Return the interpreter of the version that counts in this home, None if that is the running one."""
    versions = os.path.join(home, FOLDER)
    try:
        name = os.readlink(os.path.join(versions, CURRENT))
    except OSError:
        return None
    folder = os.path.join(versions, name)
    python = os.path.join(folder, "bin", "python")
    own = os.path.realpath(sys.prefix)
    # A process that was started by the link goes on by the folder: after an update the link would give it modules of two versions.
    is_current = own == os.path.realpath(folder) and os.path.basename(sys.prefix) != CURRENT
    if is_current or is_clone() or not os.access(python, os.X_OK):
        return None
    if os.path.dirname(own) != os.path.realpath(versions) and _read(os.path.join(folder, OVER)) != __version__:
        return None
    return python


def is_clone() -> bool:
    """Return whether this program is run from a folder of source."""
    return os.path.isfile(os.path.join(os.path.dirname(os.path.dirname(__file__)), "pyproject.toml"))


def _home_of(args: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the home that a command line means. One that names none, or a wrong one, is judged by the version that reads it."""
    home = environ.get("PEGASUS_HOME") or "~/.pegasus"
    for option, value in zip(args, [*args, ""][1:], strict=True):
        name, equals, inline = option.partition("=")
        if name == "--home":
            home = inline if equals else value
        elif name == "--profile":
            home = f"~/.pegasus-{inline if equals else value}"
    return os.path.abspath(os.path.expanduser(home))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(100).strip()
    except (OSError, ValueError):
        return ""
