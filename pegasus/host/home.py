"""The home directory: its paths, the choice between several homes, the token in it, and the lock that keeps a second daemon out.

A home is everything that one agent owns: settings, token, data, log, workspace. Everything in it is private to the user
(folders 0700, files 0600), because sessions and keys are in it. Whole files are written aside and renamed, so that a
crash leaves the old file or the new one, never a part.

`Home` only computes paths, so that commands which merely look at a home do not create it. Errors are HomeError, whose text
a command prints as it is: the path, what was found, and what to do.

The token is 256 random bits. Every process of the user that can read the home can talk with the agent; other users of the
machine, and web pages in a browser on it, cannot.

The lock is an flock(2) on `<home>/lock`: the kernel releases it when the process ends, in whatever way, so that no lock file has
to be cleaned up after a crash. The descriptor is not inherited, so that a command that outlives the daemon does not hold it.
Commands that change files while no daemon runs (`pegasus memory undo`) hold the same lock, so that a daemon cannot start in
the middle of their change. On a network file system the lock is only as safe as that system's flock(2).

A new home whose agent has no model yet gets a sample workspace: a few small files to look around with, so that the commands of the
documentation show something. The files are ordinary ones and nothing reads them by itself.
Whoever deletes them does not get them again, because they are made only in a home that has no data yet.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pegasus.formatting import quote
from pegasus.host.process import command_name

SHORTEST_TOKEN: Final = 16
"""Characters of a token at least. A shorter one, such as a file that a full disk has cut short, can be guessed by a program on
the same machine; the one made at first start has 43."""

_PROFILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Names of profiles. They become part of a folder's name, so that neither a slash nor a leading dot is allowed."""
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
"""Flags of the file that is written aside. O_EXCL: nobody can have put a file or a link in its place."""


_ASIDE: Final = re.compile(r"\..+\.[0-9a-f]{8}")
"""Names of files that `replace_private` writes aside."""
_LEFT_BEHIND: Final = 60.0
"""Seconds after which such a file is one that a crash has left. Writing it takes milliseconds."""


class HomeError(Exception):
    """A home that cannot be used. str() is one line that names the path and what to do.

    Example::

        try:
            home = resolve_home(profile="work")
        except HomeError as error:
            print_error(f"pegasus: {error}")
            raise SystemExit(error.exit_code) from None
    """

    exit_code: int
    """78 for a home that is wrong, 2 for wrong usage, 75 for one that is in use."""

    def __init__(self, message: str, *, exit_code: int = 78) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class HomeBusy(HomeError):
    """A home that another daemon owns.

    Example: `raise HomeBusy(home, 4711)` in a second `pegasus run` of the same home, which ends with exit code 75.
    """

    pid: int | None
    """Process of that daemon, where it is known."""

    def __init__(self, home: Home, pid: int | None) -> None:
        who = f"process {pid}" if pid else "another process"
        message = f"{home}: {who} already runs Pegasus here; stop it, or give another --home or --profile"
        super().__init__(message, exit_code=75)
        self.pid = pid


class Home:
    """Paths of one home directory, all absolute. Nothing is read or made before `prepare`.

    Example::

        home = resolve_home(profile="work")
        home.prepare()
        home.log  # ~/.pegasus-work/logs/pegasus.log
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "pegasus.toml"
        """The settings, unless --config names another file."""
        self.token = path / "token"
        """The token that clients of the gateway show."""
        self.push_key = path / "push.key"
        """The key by which push services know this home; made when the first browser subscribes."""
        self.lock = path / "lock"
        """The lock that the daemon holds."""
        self.daemon = path / "run" / "daemon.json"
        """Address and process of the running daemon."""
        self.restart = path / "run" / "restart"
        """Process of the daemon that is to start again instead of ending."""
        self.environment = path / "run" / "environment.json"
        """Environment that programs get from the running daemon."""
        self.log = path / "logs" / "pegasus.log"
        """The log of the daemon; older ones have a number behind the name."""
        self.data = path / "data"
        """Sessions, messages, tasks, memory; only the journal writes there."""
        self.backups = path / "backups"
        """Backups from before updates, and from before data of an older version was changed."""
        self.versions = path / "versions"
        """Versions of the program that updates have installed."""
        self.workspace = path / "workspace"
        """The folder that tasks work in."""
        self.skills = path / "skills"
        """The user's own skills."""
        self.accepted_skills = path / "accepted-skills.json"
        """The skills of the workspace that the owner has accepted, with the hashes of their files."""
        self.installed_skills = path / "installed-skills"
        """Skills that were installed from a source, and the record of what was accepted."""
        self.owner_texts = path / "owner-texts.json"
        """The texts of the workspace's files that are part of the prompt, as the owner has written or accepted them."""
        self.subagents = path / "subagents"
        """The user's own types of tasks."""
        self.personas = path / "personas"
        """Personas to choose from in the settings."""
        self.history = path / "run" / "history"
        """Messages that were typed into the terminal chat."""

    def __str__(self) -> str:
        return str(self.path)

    def resolve(self, path: str) -> Path:
        """Return a path from the settings: `~` is the user's directory, and a relative path starts at the home."""
        return self.path / Path(path).expanduser()

    def place(self, path: str) -> Path:
        """Return the place of a file by its path below the home. What is below data may lie elsewhere, if `data` was changed."""
        top, _, rest = path.partition("/")
        return self.data / rest if top == "data" else self.path / path

    def prepare(self, *, everything: bool = False) -> None:
        """Make the folders that the daemon needs; everything: those for the user too. Raises HomeError."""
        for folder in self._folders() if everything else self._folders()[:5]:
            _make_folder(folder)

    def _folders(self) -> list[Path]:
        """Return the folders in the order in which they are made."""
        needed = [self.path, self.daemon.parent, self.log.parent, self.data, self.workspace]
        more = [self.workspace / "skills", self.workspace / "memory", self.skills, self.subagents, self.personas]
        return needed + more


def resolve_home(home: str | None = None, profile: str | None = None, environ: Mapping[str, str] = os.environ) -> Home:
    """Return the home that --home, --profile or PEGASUS_HOME names, else `~/.pegasus`. Raises HomeError."""
    if home is not None and profile is not None:
        raise HomeError("--home and --profile exclude each other: give one of them", exit_code=2)
    if home == "":
        raise HomeError("--home: found an empty name; allowed: a directory", exit_code=2)
    if profile is not None:
        if not _PROFILE.fullmatch(profile):
            raise HomeError(f"--profile: found {quote(profile)}; allowed: letters, digits, - and _", exit_code=2)
        home = f"~/.pegasus-{profile}"
    text = home or environ.get("PEGASUS_HOME") or "~/.pegasus"
    try:
        return Home(Path(text).expanduser().absolute())
    except RuntimeError:
        raise HomeError(f"{text}: the user's own directory is not known; set HOME or give --home DIR") from None


def _make_folder(path: Path) -> None:
    """Make a folder and those above it, private to the user."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise HomeError(f"{path}: is not a folder; move it away or give another --home") from None
    except (OSError, ValueError) as error:
        raise HomeError(
            f"{path}: cannot be made ({_reason(error)}); give --home a directory you can write to"
        ) from None


def _reason(error: Exception) -> str:
    """Return the reason of an OSError without the path: "Permission denied"."""
    return getattr(error, "strerror", None) or str(error)


# ------------------------------------------------------------------ token


def ensure_token(home: Home, configured: str = "") -> str:
    """Return the gateway's token: the configured one, else the one in the file, which is made (0600) if it is not there.

    Raises HomeError where the file cannot be read or made, or its token is too short: it protects everything that the
    agent can do, and a short one can be guessed. The settings check the configured one in the same way.
    """
    if configured:
        return configured
    try:
        if stat.S_IMODE(home.token.stat().st_mode) & 0o077:  # take other users' rights away
            home.token.chmod(0o600)
    except FileNotFoundError:
        token = secrets.token_urlsafe(32)  # 256 random bits
        write_private(home.token, token + "\n")
        return token
    except OSError as error:
        raise HomeError(f"{home.token}: cannot be made private ({_reason(error)}); it must be yours") from None
    token = read_token(home)
    if len(token) < SHORTEST_TOKEN:
        raise HomeError(
            f"{home.token}: found a token of {len(token)} characters, allowed: at least {SHORTEST_TOKEN}; "
            "delete the file, and the next start makes a new one"
        )
    return token


def read_token(home: Home, configured: str = "") -> str:
    """Return the token that a client has to show. Raises HomeError where there is none to read."""
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
        raise HomeError(f"{home.token}: cannot be read ({_reason(error)}); it must be a file you can read") from None
    if not token or not token.isprintable():
        raise HomeError(f"{home.token}: holds no token; delete it, and the next start makes a new one")
    return token


def read_if_there(path: Path) -> bytes:
    """Return the content of a file, b"" if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def write_private(path: Path, text: str) -> None:
    """Replace a whole file, readable by its owner only and synced. Raises HomeError; then the old file is still there."""
    try:
        replace_private(path, text)
    except OSError as error:
        raise HomeError(f"{path}: cannot be written ({_reason(error)})") from None


def replace_private(path: Path, text: str) -> None:
    """Do what `write_private` does. Raises OSError, and ValueError for a text that UTF-8 does not have."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(aside, _NEW_FILE, 0o600), "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    except (OSError, ValueError):
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# ------------------------------------------------------------------ lock


@contextmanager
def own_home(home: Home) -> Iterator[None]:
    """Make the home's folders and hold the lock while the body runs. Raises HomeBusy, HomeError."""
    home.prepare()
    try:
        descriptor = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HomeError(f"{home.lock}: cannot be opened ({_reason(error)}); the home must be writable") from None
    try:
        _acquire(descriptor, home)
        _remove_left_files(home)
        yield
    finally:
        os.close(descriptor)


def _remove_left_files(home: Home) -> None:
    """Remove files that crashes have left aside, since secrets may be in them. What cannot be removed stays.

    The folders of the journal and of the user are not looked at, and no link is followed. A command may be writing settings at this
    moment, so young files stay.
    """
    others = (home.data, home.workspace)
    with suppress(OSError):
        folders = [
            path for path in home.path.iterdir() if path.is_dir() and not path.is_symlink() and path not in others
        ]
        for path in [path for folder in (home.path, *folders) for path in folder.iterdir()]:
            if _ASIDE.fullmatch(path.name) and path.is_file() and time.time() - path.stat().st_mtime > _LEFT_BEHIND:
                path.unlink()


def _acquire(descriptor: int, home: Home) -> None:
    """Lock the file and write the pid into it, for the error message of the next daemon: daemon.json comes only later."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        raise HomeBusy(home, _owner(descriptor)) from None
    except OSError as error:
        raise HomeError(f"{home.lock}: cannot be locked ({_reason(error)}); is the disk full or read-only?") from None


def _owner(descriptor: int) -> int | None:
    """Return the pid in the lock file, None if there is none."""
    try:
        return int(os.pread(descriptor, 32, 0))
    except (OSError, ValueError):
        return None


# ------------------------------------------------------------------ sample workspace


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
    if any(path.name != "VERSION" for path in home.data.iterdir()) or any(
        files for _, _, files in os.walk(home.workspace)
    ):
        return False
    with suppress(OSError, HomeError):
        for name, text in SAMPLES.items():
            path = home.workspace / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, text.replace("{command}", command_name()))
        return True
    return False
