"""The place where a server that is a program runs: a folder of its own in the home, and the walls around it.

Most ways to start a program look for code where it is started: `python -m` for modules, `npx` for `.npmrc` and `node_modules`, others
for files of their own. The workspace is no such place. The agent writes there, guests do, and so does every page that talks the agent
into it; a file of theirs would become code with the server's keys, and without walls with all rights of the person. So a server starts
in `<home>/mcp/<name>/`, where nobody writes but the server, and its walls hide the workspace. `cwd = "workspace"` is for a server
whose work is files of the workspace.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from pegasus.mcp.faults import ServerDown
from pegasus.sandbox import Sandbox, is_within
from pegasus.settings import McpServerSettings, Settings

WORKSPACE: Final = "workspace"
"""Value of `cwd` that stands for the workspace."""
_LONGEST_LINE: Final = 512
"""Bytes of the first line of a script that are read."""
RISK: Final = (
    "guests and the agent write there, and what they write may become its code: set sandbox = true, or another place"
)
"""Reason why a server without walls should not run files of the workspace, with what to do."""


@attrs.frozen(eq=False, repr=False)
class ServerPlace:
    """Folders of a server.

    Example::

        place = ServerPlace(home.path / "mcp" / "time", home.workspace)
        place.cwd(settings)                 # "/home/me/.pegasus/mcp/time"
        place.walls(settings, sandbox, os.environ["PATH"])  # walls in which the workspace is not there
    """

    folder: Path
    """Its own folder in the home."""
    workspace: Path
    """The agent's workspace."""

    def cwd(self, settings: McpServerSettings) -> str:
        """Return its working directory. A relative one starts at its own folder."""
        if settings.cwd == WORKSPACE:
            return str(self.workspace)
        return os.path.join(self.folder, os.path.expanduser(settings.cwd)).rstrip("/") or "/"

    def make(self) -> None:
        """Make its own folder, for its user alone. Raises ServerDown."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = os.stat(self.folder, follow_symlinks=False)
            # Whoever could put a link in its place has written to the home; the program must not run where that leads.
            if not stat.S_ISDIR(status.st_mode):
                raise ServerDown(f"{self.folder} is not a folder; remove it")
            if stat.S_IMODE(status.st_mode) & 0o077:
                os.chmod(self.folder, 0o700)
        except OSError as error:
            raise ServerDown(f"its folder {self.folder} cannot be made: {error.strerror}") from None

    def walls(self, settings: McpServerSettings, sandbox: Sandbox, path: str) -> Sandbox:
        """Return its walls. It writes to its own folder, and to the workspace only if it works there.

        It reads what its program is made of, even in the person's home: a virtual environment, a package of npm. path: where programs
        are searched.
        """
        folders = sandbox.folders
        own = os.path.realpath(self.folder)
        others = [path for path in folders.writable if path != folders.workspace]
        if self._is_in_workspace(self.cwd(settings)):
            others.append(folders.workspace)
        closed = [*folders.hidden, *folders.homes, os.path.realpath(self.workspace)]
        needed = [
            folder
            for folder in self._installations(settings, path)
            if not any(is_within(other, folder) for other in closed) and not self._is_in_workspace(folder)
        ]
        readable = (*folders.readable, *needed)
        folders = attrs.evolve(folders, workspace=own, writable=(own, *others), readable=readable)
        found = attrs.evolve(sandbox, folders=folders)
        workspace = os.path.realpath(self.workspace)
        if sandbox.kind != "none" and folders.kind_of(workspace) != "write":
            # Nothing that it does can be a change of the owner's files there.
            found = attrs.evolve(found, witness=None)
        return found

    def environment(self, settings: McpServerSettings) -> Mapping[str, str]:
        """Return variables of a program within walls, which takes an empty folder for the person's home, at each start a new one.

        What `npx` and `uvx` have downloaded stays in its own folder.
        """
        return {
            "XDG_CACHE_HOME": str(self.folder / ".cache"),
            "npm_config_cache": str(self.folder / ".npm"),
            **settings.env,
        }

    def hidden(self, settings: McpServerSettings, walls: Sandbox, path: str) -> list[str]:
        """Return the files of its command that the walls hide from it, and its working directory. path: as for `walls`.

        Such a program exists for the person, and within the walls there is "No such file", or a Python without its modules.
        """
        cwd = self.cwd(settings)
        words = [os.path.join(cwd, word) for word in settings.args if "/" in word]
        found = [cwd, *self._program_files(settings, path), *words]
        return [file for file in dict.fromkeys(found) if os.path.exists(file) and _is_hidden(file, walls)]

    def _program_files(self, settings: McpServerSettings, path: str) -> list[str]:
        """Return its program and the interpreter of that, with what these are links to; [] if there is none."""
        command = (
            settings.command if "/" not in settings.command else os.path.join(self.cwd(settings), settings.command)
        )
        program = shutil.which(command, path=path)
        if program is None:
            return []
        return [file for each in (program, *_interpreter_of(program, path)) for file in (each, os.path.realpath(each))]

    def _installations(self, settings: McpServerSettings, path: str) -> list[str]:
        """Return the real folders that its program and its interpreter are installed in, as far as these hold nothing else."""
        found: list[str] = []
        for file in self._program_files(settings, path):
            above = os.path.dirname(os.path.dirname(file))
            if os.path.isfile(os.path.join(above, "pyvenv.cfg")):
                python = os.path.realpath(os.path.join(above, "bin", "python"))
                found += [above, os.path.dirname(os.path.dirname(python))]
            folder, mark, rest = file.partition("/node_modules/")
            if mark:
                names = rest.split("/")
                found.append(folder + mark + "/".join(names[: 2 if names[0].startswith("@") else 1]))
        return [os.path.realpath(folder) for folder in dict.fromkeys(found)]

    def _is_in_workspace(self, path: str) -> bool:
        return is_within(os.path.realpath(path), os.path.realpath(self.workspace))

    def risk(self, settings: McpServerSettings, *, is_confined: bool) -> str:
        """Return why files of the workspace may become code of the server with all rights of the person; "" if they do not.

        is_walled: whether there are walls for programs that are to have them.
        """
        if not settings.command or (settings.sandbox and is_confined):
            return ""
        if self._is_in_workspace(self.cwd(settings)):
            return f"it runs in the workspace without walls (cwd = {settings.cwd!r})"
        for word in (settings.command, *settings.args):
            path = os.path.join(self.cwd(settings), os.path.expanduser(word))
            if "/" in word and os.path.isfile(path) and self._is_in_workspace(path):
                return f"it runs {word}, a file of the workspace, without walls"
        return ""


def _is_hidden(file: str, walls: Sandbox) -> bool:
    return any(walls.folders.kind_of(path) in ("hide", "home") for path in (file, os.path.realpath(file)))


def _interpreter_of(program: str, path: str) -> list[str]:
    """Return the interpreter that the first line of a script names. path: where programs are searched."""
    try:
        with open(program, "rb") as file:
            line = file.readline(_LONGEST_LINE)
    except OSError:
        return []
    words = line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [found for word in words[1:2] if (found := shutil.which(word, path=path))]
    return words[:1]


def risks(settings: Settings, folder: Path, workspace: Path, *, is_confined: bool) -> list[str]:
    """Return a line for each server that may run files of the workspace with all rights of the person.

    folder: `mcp` of the home. is_walled: whether this machine has walls for programs.
    """
    found = {
        name: ServerPlace(folder / name, workspace).risk(server, is_confined=is_confined)
        for name, server in settings.mcp.servers.items()
        if server.enabled
    }
    return [f"the MCP server {name}: {risk}; {RISK}" for name, risk in found.items() if risk]
