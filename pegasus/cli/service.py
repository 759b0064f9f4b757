"""`pegasus service`: the agent as a service of the user, by systemd or launchd.

The service runs this installation with this home, from the sign-in on, and is started again when it fails. Its unit is written by
`service_unit`, which says why it is as it is.

A shell has what a service lacks: the PATH, which the unit keeps, and variables with keys. A model that works in the shell would be
missing in the service. So the variables that the settings use are named, and a person is asked whether they are to be kept: in a file
of mode 0600 beside the unit's other settings (launchd: in the property list). Without a terminal they are kept with --yes only.

Everything that can be refused is found before the first write: no service manager, an installation that will vanish, an agent that
runs in the home already and would make the service fail. A service that does not become ready stays installed, so that it can be
looked at; the command then ends with exit code 1 and says where.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import plistlib
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import click

from pegasus.cli.commands import JSON, Options, pegasus, program_name
from pegasus.cli.control import is_terminal, print_text, report_failure
from pegasus.cli.program import check_settings_in_use
from pegasus.cli.service_unit import ServiceUnit, environment_file, launchd_plist, service_path, systemd_unit
from pegasus.host import Home, print_error, read_daemon, write_private
from pegasus.launching import CURRENT
from pegasus.settings import Settings, settings_text
from pegasus.wire import encode_line, to_wire

SERVICE = pegasus.subgroup("service", "Run the agent as a service of systemd or launchd.")
PRINT: Final = click.Option(["--print", "only_print"], is_flag=True, help="Print the unit, and change nothing.")

_SECONDS: Final = 330.0
"""Seconds that a call of the service manager may take: it waits until the agent is ready."""
_PASSING: Final = ("/archive-v0/", "/builds-v0/", "/environments-v2/", "/pipx/.cache/", "/.cache/pipx/")
"""Parts of paths of environments that `uvx` and `pipx run` make for one call and clear away."""
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")
_OF_NETWORK: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables without which a machine behind a proxy reaches nothing; also in small letters."""
_OF_SEARCH: Final = ("TAVILY_API_KEY", "BRAVE_API_KEY", "SEARXNG_BASE_URL")
"""Variables of services that search the web, which are read when a search is made."""


class ServiceRefused(Exception):
    """A service that cannot be installed or asked about. str() is one line that says what to do."""


@attrs.frozen
class ServiceState:
    """State of the service of a home, as its manager tells it."""

    manager: str
    """"systemd" or "launchd"."""
    unit: str
    """Path of its file."""
    installed: bool
    enabled: bool
    """True if it is started at the next sign-in."""
    state: str
    """Word of the manager: "active", "failed", "inactive" …"""
    pid: int | None
    """Its process, None while it does not run."""


# ------------------------------------------------------------------ the commands


@SERVICE.declare(
    "install",
    PRINT,
    click.Option(["--yes"], is_flag=True, help="Ask nothing: keep the keys of this shell for the service."),
    options_only=True,
)
def run_install(options: Options, *, only_print: bool, yes: bool) -> int:
    """Start the agent now and at each sign-in.

    The unit has the PATH of this shell. Run it again after an update that moved the installation, or when your PATH has changed.
    """
    home, settings = options.load()
    try:
        return _install(options, home, settings, only_print=only_print, yes=yes)
    except (ServiceRefused, ValueError) as error:
        return report_failure(str(error))


@SERVICE.declare("uninstall", PRINT, options_only=True)
def run_uninstall(options: Options, *, only_print: bool) -> int:
    """Stop the service and remove its unit. The home stays as it is."""
    manager = _manager_of(options)
    if only_print:
        print_text(str(manager.file))
        return 0
    try:
        if not manager.file.exists():
            print_text(f"no service is installed ({manager.file} is not there)")
            return 0
        manager.remove()
    except ServiceRefused as error:
        return report_failure(str(error))
    print_text(f"removed {manager.file}")
    keys = _environment_file(options)
    if keys.exists():
        print_text(f"The keys that it had are in {keys} still.")
    return 0


@SERVICE.declare("status", JSON, PRINT, options_only=True)
def run_status(options: Options, *, as_json: bool, only_print: bool) -> int:
    """Show whether the service is installed and runs; exit code 1 if it does not run."""
    manager = _manager_of(options)
    try:
        if only_print:
            if not manager.file.exists():
                raise ServiceRefused(f"no service is installed; {program_name()} service install")
            print_text(manager.file.read_text("utf-8", "replace").rstrip("\n"))
            return 0
        state = manager.state()
    except ServiceRefused as error:
        return report_failure(str(error))
    print_text(encode_line(to_wire(state)).decode().rstrip("\n") if as_json else _state_text(state))
    return 0 if state.pid else 1


def restart_service(options: Options) -> bool:
    """Restart the service of this home; return False if none is installed. Raises ServiceRefused."""
    manager = _manager_of(options)
    if not manager.file.exists():
        return False
    manager.restart()
    return True


def can_install() -> bool:
    """Return whether a service manager of this user answers, so that `pegasus init` may ask about a service."""
    try:
        _manager("pegasus").check()
    except ServiceRefused:
        return False
    return True


def _state_text(state: ServiceState) -> str:
    """Return the state for a person."""
    if not state.installed:
        return f"not installed; {program_name()} service install"
    runs = f"runs as process {state.pid}" if state.pid else f"does not run ({state.state})"
    enabled = "starts at each sign-in" if state.enabled else "is not started at a sign-in"
    return f"the service {runs} and {enabled} ({state.unit})"


# ------------------------------------------------------------------ installation


def _install(options: Options, home: Home, settings: Settings, *, only_print: bool, yes: bool) -> int:
    """Write the unit and start it, or print it. Raises ServiceRefused, ValueError, HomeError, SettingsError."""
    check_settings_in_use(home, settings)
    if passing := next((part for part in _PASSING if part in f"{sys.prefix}/"), ""):
        raise ServiceRefused(
            f"this installation is for one call ({passing.strip('/')} in {sys.prefix}); "
            "install it first: uv tool install pegasus-agent, or pipx install pegasus-agent"
        )
    manager = _manager_of(options)
    kept = _variables_of_shell(options, home, settings)
    unit = ServiceUnit(
        _unit_name(options),
        (_lasting_interpreter(home), "-P", "-m", "pegasus", *options.lasting_arguments(), "run", "--no-cli"),
        service_path(os.environ),
        environment_file=str(_environment_file(options)),
        log=str(home.log.parent / "service.log"),
        grace=settings.run.shutdown_grace,
    )
    if only_print:
        print_text(manager.text(unit).rstrip("\n"))
        return 0
    manager.text(unit)  # a path that cannot be written down is refused before anything is
    manager.check()
    _check_nobody_runs(home, manager)
    keeps = bool(kept) and (yes or _asks_to_keep(kept))
    home.prepare()
    if keeps and isinstance(manager, _Launchd):
        unit = attrs.evolve(unit, variables=kept)
    elif keeps:
        _keep_variables(_environment_file(options), kept)
    manager.file.parent.mkdir(parents=True, exist_ok=True)
    write_private(manager.file, manager.text(unit))
    print_text(f"wrote  {manager.file}")
    if kept and not keeps:
        print_error(f"pegasus: the service does not have {', '.join(kept)} of this shell; --yes keeps them for it")
    manager.start()
    print_text("The service runs, and starts at each sign-in.")
    daemon = read_daemon(home)
    if daemon is not None and daemon.http:
        print_text(f"The web page is at {daemon.http}; `{program_name()} open` signs you in.")
    if hint := _linger_hint(manager):
        print_text(hint)
    return 0


def _lasting_interpreter(home: Home) -> str:
    """Return the interpreter of this installation; in a version that an update has installed, the one of the version that counts."""
    if os.path.realpath(Path(sys.prefix).parent) == os.path.realpath(home.versions):
        return str(home.versions / CURRENT / "bin" / "python")
    return sys.executable


def _check_nobody_runs(home: Home, manager: _ServiceManager) -> None:
    """Raise ServiceRefused for an agent that runs in the home and is not the service's: the service could not start."""
    daemon = read_daemon(home)
    if daemon is not None and daemon.pid != manager.state().pid:
        raise ServiceRefused(f"an agent runs in {home} (process {daemon.pid}); end it, then run this again")


def _asks_to_keep(kept: Mapping[str, str]) -> bool:
    """Return whether the person wants the variables of the shell to be kept; False where nobody is there."""
    if not is_terminal(sys.stdin):
        return False
    click.echo(f"Set in this shell and unknown to a service: {', '.join(kept)}")
    return click.confirm("Keep them for the service, in a file that only you can read?", default=True)


def _keep_variables(file: Path, kept: Mapping[str, str]) -> None:
    """Add variables to the file of the service, in place of those of the same name. Raises HomeError, OSError."""
    try:
        old = file.read_text("utf-8").splitlines()
    except FileNotFoundError:
        old = []
    others = [line for line in old if line.partition("=")[0].strip() not in kept]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_private(file, "".join(f"{line}\n" for line in others) + environment_file(kept))
    print_text(f"wrote  {file}")


def _variables_of_shell(options: Options, home: Home, settings: Settings) -> dict[str, str]:
    """Return the variables of this environment that the agent would use, by name."""
    names = {origin for origin in settings.origins.values() if origin in os.environ}
    names |= set(_VARIABLE.findall(settings_text(options.source(home))))
    names |= {name for name in os.environ if name.startswith("PEGASUS__") or name.upper() in _OF_NETWORK}
    names |= {name for name in _OF_SEARCH if name in os.environ}
    own = {"HOME", "PATH", "USER", "LOGNAME", "SHELL", "TMPDIR"}
    return {name: os.environ[name] for name in sorted(names - own) if os.environ.get(name)}


def _unit_name(options: Options) -> str:
    """Return the name of the service: "pegasus" for the usual home, with the profile or the folder for another."""
    home = options.home().path
    usual = Path("~").expanduser()
    if home == usual / ".pegasus":
        return "pegasus"
    if home.parent == usual and home.name.startswith(".pegasus-"):
        name = home.name.removeprefix(".pegasus-")
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            return f"pegasus-{name}"
    plain = re.sub(r"[^A-Za-z0-9]+", "-", home.name).strip("-")[:40] or "home"
    return f"pegasus-{plain}-{hashlib.sha256(os.fsencode(home)).hexdigest()[:8]}"


def _environment_file(options: Options) -> Path:
    """Return the file with keys for the service."""
    return _config_folder() / f"{_unit_name(options)}.env"


def _config_folder() -> Path:
    """Return the folder of the user's settings."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(named) if named.startswith("/") else Path("~/.config").expanduser()


def _linger_hint(manager: _ServiceManager) -> str:
    """Return how to keep the service running after signing out, "" where it does or nobody knows."""
    if not isinstance(manager, _Systemd):
        return ""
    user = getpass.getuser()
    try:
        answer = _call(["loginctl", "show-user", user, "-p", "Linger", "--value"])
    except ServiceRefused:
        return ""
    if answer.stdout.strip() == "yes":
        return ""
    keep = f"loginctl enable-linger {shlex.quote(user)}"
    return f"It ends when you sign out. To keep it running, also after a restart of the machine: {keep}"


# ------------------------------------------------------------------ service managers


def _manager_of(options: Options) -> _ServiceManager:
    """Return the manager of this system for the home of the command line. Raises HomeError."""
    return _manager(_unit_name(options))


def _manager(name: str) -> _ServiceManager:
    """Return the manager of this system for a service of this name."""
    return _Launchd(name) if sys.platform == "darwin" else _Systemd(name)


class _Systemd:
    """The user's own systemd. `_Launchd` has the same methods."""

    def __init__(self, name: str) -> None:
        self._name = f"{name}.service"
        self.file = _config_folder() / "systemd" / "user" / self._name
        """File of the unit."""

    def text(self, unit: ServiceUnit) -> str:
        """Return the text of the unit. Raises ValueError."""
        return systemd_unit(unit)

    def check(self) -> None:
        """Raise ServiceRefused where the manager does not answer."""
        answer = self._call("show-environment")
        if answer.returncode:
            raise ServiceRefused(
                f"systemd does not answer for this user ({_reason(answer)}). `{program_name()} service install --print` shows "
                "the unit; without systemd see docs/user/operations.md"
            )

    def state(self) -> ServiceState:
        """Return what the manager knows. Raises ServiceRefused."""
        fields = ("ActiveState", "UnitFileState", "MainPID")
        answer = self._call("show", self._name, "-p", ",".join(fields), refusal="systemd does not answer for this user")
        known = dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)
        pid = known.get("MainPID", "0")
        return ServiceState(
            manager="systemd",
            unit=str(self.file),
            installed=self.file.exists(),
            enabled=known.get("UnitFileState") in ("enabled", "enabled-runtime"),
            state=known.get("ActiveState") or "unknown",
            pid=int(pid) if pid.isdigit() and int(pid) else None,
        )

    def start(self) -> None:
        """Take the unit's file up, and start or restart the service. Raises ServiceRefused when it does not become ready."""
        for arguments in (("daemon-reload",), ("enable", self._name), ("restart", self._name)):
            answer = self._call(*arguments)
            if answer.returncode:
                raise ServiceRefused(
                    f"systemctl --user {arguments[0]} failed ({_reason(answer)}); "
                    f"look with: journalctl --user -u {self._name} -n 20"
                )

    def restart(self) -> None:
        """Start or restart the service, and do not wait until it is ready. Raises ServiceRefused."""
        self._call("--no-block", "restart", self._name, refusal=f"systemctl --user restart {self._name} failed")

    def remove(self) -> None:
        """Stop the service, and remove its file. Raises ServiceRefused, OSError."""
        self._call("disable", "--now", self._name, refusal=f"systemctl --user disable --now {self._name} failed")
        self.file.unlink(missing_ok=True)
        self._call("daemon-reload")

    def _call(self, *arguments: str, refusal: str = "") -> subprocess.CompletedProcess[str]:
        """Call systemctl for the user. Raises ServiceRefused. refusal: see the function `_call`."""
        environ = dict(os.environ)
        runtime = f"/run/user/{os.getuid()}"
        # `su` and cron leave it out, and systemctl does not find the user's manager then.
        if "XDG_RUNTIME_DIR" not in environ and os.path.isdir(runtime):
            environ["XDG_RUNTIME_DIR"] = runtime
        return _call(["systemctl", "--user", *arguments], environ, refusal=refusal)


class _Launchd:
    """launchd, for the user who is signed in at the screen."""

    def __init__(self, name: str) -> None:
        self._label = f"agent.{name}"
        self._domain = f"gui/{os.getuid()}"
        self.file = Path("~/Library/LaunchAgents").expanduser() / f"{self._label}.plist"

    def text(self, unit: ServiceUnit) -> str:
        return launchd_plist(attrs.evolve(unit, variables={**self._kept(), **unit.variables}))

    def check(self) -> None:
        answer = _call(["launchctl", "print", self._domain])
        if answer.returncode:
            raise ServiceRefused(
                f"launchd does not answer for this user ({_reason(answer)}); sign in at the screen and run this again"
            )

    def state(self) -> ServiceState:
        answer = _call(["launchctl", "print", f"{self._domain}/{self._label}"])
        state = re.search(r"^\s*state = (.+)$", answer.stdout, re.MULTILINE)
        pid = re.search(r"^\s*pid = (\d+)$", answer.stdout, re.MULTILINE)
        return ServiceState(
            manager="launchd",
            unit=str(self.file),
            installed=self.file.exists(),
            enabled=self.file.exists(),
            state=state[1] if state else "not loaded",
            pid=int(pid[1]) if pid else None,
        )

    def start(self) -> None:
        _call(["launchctl", "bootout", f"{self._domain}/{self._label}"])  # one that is loaded keeps its old text
        _call(["launchctl", "bootstrap", self._domain, str(self.file)], refusal="launchctl bootstrap failed")

    def restart(self) -> None:
        _call(["launchctl", "kickstart", "-k", f"{self._domain}/{self._label}"], refusal="launchctl kickstart failed")

    def remove(self) -> None:
        answer = _call(["launchctl", "bootout", f"{self._domain}/{self._label}"])
        if answer.returncode and self.state().pid:
            raise ServiceRefused(f"launchctl bootout failed ({_reason(answer)})")
        self.file.unlink(missing_ok=True)

    def _kept(self) -> dict[str, str]:
        """Return the variables of the property list that is there, which an installation from another shell must not lose."""
        try:
            variables = plistlib.loads(self.file.read_bytes()).get("EnvironmentVariables", {})
        except (OSError, ValueError, plistlib.InvalidFileException):
            return {}
        return {name: value for name, value in variables.items() if name != "PATH"}


_ServiceManager: TypeAlias = _Systemd | _Launchd


def _call(
    command: Sequence[str], environ: Mapping[str, str] | None = None, *, refusal: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program of the system to its end. Raises ServiceRefused where it is not there or does not end.

    refusal: beginning of the error for another exit code than 0; "": the caller looks at the code.
    """
    try:
        answer = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise ServiceRefused(
            f"{command[0]} is not installed, so there is no service manager that this command knows. Any other one, or a "
            f"container, can start `{program_name()} run --no-cli`; `{program_name()} service install --print` shows a unit of systemd"
        ) from None
    except OSError as error:
        raise ServiceRefused(
            f"{command[0]}: {error.strerror}; `{program_name()} service install --print` shows the unit"
        ) from None
    except subprocess.TimeoutExpired:
        raise ServiceRefused(f"{shlex.join(command)}: no answer within {_SECONDS:g} s") from None
    if refusal and answer.returncode:
        raise ServiceRefused(f"{refusal} ({_reason(answer)})")
    return answer


def _reason(answer: subprocess.CompletedProcess[str]) -> str:
    """Return the first line that a program wrote about its failure."""
    lines = (answer.stderr.strip() or answer.stdout.strip()).splitlines()
    return lines[0].rstrip(".") if lines else f"exit code {answer.returncode}"
