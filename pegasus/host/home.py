"""The home directory: what is where (interfaces.md, section 5), which one is meant, and the token in it."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

_PROFILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


class HomeError(Exception):
    """The home cannot be used. str() is one line that names the path and what to do; exit_code is 78, or 2 for wrong usage."""

    def __init__(self, message: str, *, exit_code: int = 78) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@attrs.frozen(repr=False)
class Home:
    """The paths of one home directory, all absolute. Nothing is read or made before `prepare`."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def config(self) -> Path:
        """The settings, unless --config names another file."""
        return self.path / "pegasus.toml"

    @property
    def token(self) -> Path:
        return self.path / "token"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def daemon(self) -> Path:
        """What the running daemon says about itself."""
        return self.path / "run" / "daemon.json"

    @property
    def log(self) -> Path:
        return self.path / "logs" / "pegasus.log"

    @property
    def data(self) -> Path:
        """What the journal keeps; nobody else writes there."""
        return self.path / "data"

    @property
    def workspace(self) -> Path:
        return self.path / "workspace"

    @property
    def skills(self) -> Path:
        return self.path / "skills"

    @property
    def subagents(self) -> Path:
        return self.path / "subagents"

    @property
    def personas(self) -> Path:
        return self.path / "personas"

    @property
    def history(self) -> Path:
        """What was typed into the terminal chat."""
        return self.path / "run" / "history"

    def resolve(self, path: str) -> Path:
        """A path from the settings: `~` is the user's directory, and a relative path starts at the home."""
        return self.path / Path(path).expanduser()

    def prepare(self, *, everything: bool = False) -> None:
        """Make the folders the daemon needs, or all of section 5. Raises HomeError naming the one that cannot be made."""
        for folder in self._folders() if everything else self._folders()[:5]:
            _make_folder(folder)

    def _folders(self) -> list[Path]:
        needed = [self.path, self.daemon.parent, self.log.parent, self.data, self.workspace]
        more = [self.workspace / "skills", self.workspace / "memory", self.skills, self.subagents, self.personas]
        return needed + more


def resolve_home(home: str | None = None, profile: str | None = None, environ: Mapping[str, str] = os.environ) -> Home:
    """The home that --home, --profile or PEGASUS_HOME means, else `~/.pegasus`. Raises HomeError."""
    if home is not None and profile is not None:
        raise HomeError("--home and --profile exclude each other: give one of them", exit_code=2)
    if home == "":
        raise HomeError("--home: found an empty name; allowed: a directory", exit_code=2)
    if profile is not None:
        if not _PROFILE.fullmatch(profile):
            raise HomeError(f"--profile: found {profile!r}; allowed: letters, digits, - and _", exit_code=2)
        home = f"~/.pegasus-{profile}"
    text = home or environ.get("PEGASUS_HOME") or "~/.pegasus"
    try:
        return Home(Path(text).expanduser().absolute())
    except RuntimeError:
        raise HomeError(f"{text}: the user's own directory is not known; set HOME or give --home DIR") from None


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise HomeError(f"{path}: is not a folder; move it away or give another --home") from None
    except (OSError, ValueError) as error:
        raise HomeError(f"{path}: cannot be made ({reason(error)}); give --home a directory you can write to") from None


def reason(error: Exception) -> str:
    """What the system says, without the path: "Permission denied"."""
    return getattr(error, "strerror", None) or str(error)


# ------------------------------------------------------------------ token


def ensure_token(home: Home, configured: str = "") -> str:
    """The gateway's token: the configured one, else the one in the file, which is made (0600) if it is not there.

    Raises HomeError where the file cannot be read, made, or holds nothing.
    """
    if configured:
        return configured
    try:
        _make_private(home.token)
    except FileNotFoundError:
        return _new_token(home.token)
    except OSError as error:
        raise HomeError(f"{home.token}: cannot be made private ({reason(error)}); it must be yours") from None
    return read_token(home)


def read_token(home: Home, configured: str = "") -> str:
    """The token a client has to show. Raises HomeError where there is none to read."""
    if configured:
        return configured
    try:
        token = home.token.read_text("ascii").strip()
    except FileNotFoundError:
        raise HomeError(
            f"{home.token}: there is no token yet; it is made when the daemon starts", exit_code=1
        ) from None
    except UnicodeDecodeError:
        raise HomeError(f"{home.token}: is not a token; delete it, and the next start makes a new one") from None
    except OSError as error:
        raise HomeError(f"{home.token}: cannot be read ({reason(error)}); it must be a file you can read") from None
    if not token or not token.isprintable():
        raise HomeError(f"{home.token}: holds no token; delete it, and the next start makes a new one")
    return token


def _make_private(path: Path) -> None:
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        path.chmod(0o600)


def _new_token(path: Path) -> str:
    """Written aside and renamed, so that a crash leaves a whole token or none."""
    token = secrets.token_urlsafe(32)
    write_private(path, token + "\n")
    return token


def write_private(path: Path, text: str) -> None:
    """Put a whole file in place, readable by its owner only. Raises HomeError; then the old one is still there."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(aside, _NEW_FILE, 0o600), "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise HomeError(f"{path}: cannot be written ({reason(error)})") from None
