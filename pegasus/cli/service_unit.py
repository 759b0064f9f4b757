"""The texts by which a service manager starts the daemon: a user unit of systemd, a property list of launchd.

Only text is made here; who writes it and calls the manager is `pegasus service`.

A service manager starts programs with a short PATH, in which `uvx`, `npx` and a person's own programs are missing, so that servers
of tools that work in a shell fail in the service. So the PATH of the shell that installs is written down, with the folders in
which such programs usually are (`service_path`). Folders that end with the shell, as those of fnm, are replaced by what they lead
to.

In systemd's files a `%` begins a specifier, a `$` in a command a variable, and a backslash an escape sequence. Each of them
can be part of a path, so that every value is quoted.
"""

from __future__ import annotations

import math
import os
import plistlib
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

WATCHDOG_SECONDS: Final = 30
"""Seconds after which a process whose event loop hangs is started again."""
_START_SECONDS: Final = 300
"""Seconds until READY=1. A long journal is read again before that, and a newer version may have to change its files."""
_BEYOND_GRACE: Final = 10
"""Seconds that a stop may take beyond the grace of the settings; the daemon ends itself before they are over."""
_STANDARD: Final = ("/usr/local/bin", "/usr/bin", "/bin")
_OWN_PROGRAMS: Final = (".local/bin",)
"""Folders below the user's own directory that are always in the PATH, since `pip`, `pipx` and `uv` install into them."""
_WANTED: Final = ("uvx", "npx")
"""Programs that start most MCP servers."""
_USUAL_PLACES: Final = (
    "~/.cargo/bin",
    "~/.volta/bin",
    "~/.local/share/fnm/aliases/default/bin",
    "~/.nvm/versions/node/*/bin",
    "~/.local/share/mise/shims",
    "~/.asdf/shims",
    "~/.linuxbrew/bin",
    "/home/linuxbrew/.linuxbrew/bin",
    "/opt/homebrew/bin",
    "/opt/local/bin",
    "/snap/bin",
)
"""Folders that are looked through for programs in `_WANTED` which the PATH does not have."""


@attrs.frozen
class ServiceUnit:
    """Service as its manager must know it: `ServiceUnit("pegasus", ("/usr/bin/pegasus", "run", "--no-cli"), "/usr/bin")`."""

    name: str
    """Name without a suffix: "pegasus", "pegasus-work"."""
    command: tuple[str, ...]
    """Program and arguments; the program is an absolute path."""
    path: str
    """The variable PATH."""
    environment_file: str = ""
    """File with further variables, which need not exist; "" for none. Only systemd reads it."""
    variables: Mapping[str, str] = attrs.field(factory=dict)
    """Further variables of launchd, which reads no file."""
    log: str = "/dev/null"
    """File that launchd appends stderr to; systemd has the journal."""
    grace: float = 10.0
    """Seconds that a stop may take."""

    @property
    def label(self) -> str:
        """Name for launchd, where names are reversed domains."""
        return f"agent.{self.name}"

    @property
    def stop_seconds(self) -> int:
        """Seconds after which the manager kills a process that does not stop."""
        return math.ceil(self.grace) + _BEYOND_GRACE


def systemd_unit(unit: ServiceUnit) -> str:
    """Return the text of a user unit. Raises ValueError for a path that systemd cannot be given."""
    # systemd refuses these characters in a program, but for "$", whose doubling it does not undo there.
    has_odd_name = any(char in unit.command[0] for char in "$\\\"'")
    command = ("/usr/bin/env", *unit.command) if has_odd_name else unit.command
    program, *arguments = command
    start = " ".join([_quoted(program), *(_quoted(argument).replace("$", "$$") for argument in arguments)])
    lines = [
        "# Written by `pegasus service install`, which replaces it. Changes of your own: systemctl --user edit "
        + unit.name,
        "[Unit]",
        "Description=Pegasus, an always-on agent",
        # A service that fails at every start is left alone after ten times, instead of filling the journal.
        "StartLimitIntervalSec=600",
        "StartLimitBurst=10",
        "",
        "[Service]",
        "Type=notify",
        f"ExecStart={start}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        f"Environment={_quoted(f'PATH={unit.path}')}",
    ]
    if unit.environment_file:
        lines.append(f"EnvironmentFile=-{_checked(unit.environment_file).replace('%', '%%')}")
    lines += [
        "Restart=on-failure",
        "RestartSec=2",
        # Wrong usage, a home that is in use, wrong settings: another start fails in the same way.
        "RestartPreventExitStatus=2 75 78",
        f"WatchdogSec={WATCHDOG_SECONDS}",
        f"TimeoutStartSec={_START_SECONDS}",
        f"TimeoutStopSec={unit.stop_seconds}",
        # The daemon ends the programs that it started; what is left after the stop is killed.
        "KillMode=mixed",
        "",
        "[Install]",
        "WantedBy=default.target",
    ]
    return "\n".join(lines) + "\n"


def launchd_plist(unit: ServiceUnit) -> str:
    """Return the text of a property list for ~/Library/LaunchAgents."""
    content = {
        "Label": unit.label,
        "ProgramArguments": list(unit.command),
        "EnvironmentVariables": {**unit.variables, "PATH": unit.path},
        "RunAtLoad": True,
        # As systemd's on-failure. launchd cannot leave out exit codes, so that wrong settings are tried again every ten seconds.
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": unit.stop_seconds,
        "ProcessType": "Interactive",
        "StandardOutPath": "/dev/null",
        "StandardErrorPath": unit.log,
    }
    return plistlib.dumps(content, sort_keys=False).decode()


def environment_file(variables: Mapping[str, str]) -> str:
    """Return the text of a file for EnvironmentFile=. Raises ValueError for a value with control characters."""
    return "".join(f"{name}={_escaped_value(value)}\n" for name, value in variables.items())


def service_path(environ: Mapping[str, str]) -> str:
    """Return the PATH of the service: that of this environment, and the folders where `uvx`, `npx` and the user's own programs are.

    Folders with a relative name are left out, as they depend on where the shell stood.
    """
    own = Path(environ.get("HOME") or "~").expanduser()
    given = [_lasting(folder) for folder in environ.get("PATH", "").split(":") if folder.startswith("/")]
    folders = [*given, *(str(own / name) for name in _OWN_PROGRAMS), *_STANDARD]
    for program in _WANTED:
        if shutil.which(program, path=":".join(folders)) is None:
            folders += [folder for folder in _usual_places(own) if shutil.which(program, path=folder)][:1]
    return ":".join(dict.fromkeys(folder for folder in folders if folder.isprintable()))


def _lasting(folder: str) -> str:
    """Return what a folder leads to that exists as long as the shell only; another one as it is."""
    return os.path.realpath(folder) if folder.startswith("/run/") or "fnm_multishells" in folder else folder


def _usual_places(own: Path) -> Iterator[str]:
    """Return the folders in which a program may be that the PATH does not have; of several versions the newest first."""
    for place in _USUAL_PLACES:
        root, pattern = (own, place[2:]) if place.startswith("~/") else (Path("/"), place[1:])
        yield from sorted(map(str, root.glob(pattern)), key=_version_key, reverse=True)


def _version_key(folder: str) -> list[int]:
    """Return the numbers in the name of a folder, which order versions: v9 before v20."""
    return [int(number) for number in re.findall(r"[0-9]+", folder)]


def _quoted(text: str) -> str:
    """Return a value in quotation marks for systemd. Raises ValueError for control characters."""
    escaped = _checked(text).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _escaped_value(text: str) -> str:
    """Return the value of a variable for EnvironmentFile=, where quotation marks protect everything but four characters."""
    escaped = _checked(text)
    for char in '\\"$`':
        escaped = escaped.replace(char, f"\\{char}")
    return f'"{escaped}"'


def _checked(text: str) -> str:
    """Return the text. Raises ValueError where systemd would refuse it: a line break, or bytes that are no UTF-8."""
    if any(ord(char) < 32 or ord(char) == 127 or "\ud800" <= char <= "\udfff" for char in text):
        raise ValueError(f"found control characters or bytes that are no UTF-8 in {text!r}")
    return text
