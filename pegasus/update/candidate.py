"""The candidate of an update: another version of the program, installed in an environment of its own.

The running installation is never changed. Whoever has made it, pip, pipx or uv, may keep it as it is, and it can go on when the
candidate turns out to be useless. The environment has the Python of this one.

A folder of source is installed as `scripts/run` does it: the packages that `requirements.lock` pins, with their hashes, and then the
product without asking an index again. Anything else is installed with whatever its metadata asks for.

pip is not part of every environment: `uv tool install` and pipx leave it out. So pip is looked for here, then uv, and last the pip
that Python brings along. What they print is kept in a log; people get a sentence.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, STDOUT
from typing import Final

import attrs
import trio

from pegasus.wire import decode_json

PACKAGE: Final = "pegasus-agent"
"""Name in the index of packages."""
_LONGEST: Final = 1800.0
"""Seconds that an installation may take."""
_ANSWER: Final = 60.0
"""Seconds within which the candidate must say what it is."""
_ARCHIVES: Final = (".whl", ".tar.gz", ".zip")
_VERSION: Final = re.compile(r"[0-9][0-9A-Za-z.!+_-]{0,63}")
_OF_ANOTHER: Final = ("PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "VIRTUAL_ENV")
"""Variables that would lead an installation, or the candidate, to another folder."""
_QUESTION: Final = (
    "import json, pegasus, pegasus.host; print(json.dumps([pegasus.__version__, getattr(pegasus.host, 'FORMAT', 0)]))"
)
_REASONS: Final = (
    (r"No space left|Disk quota exceeded|os error 28\b", "the disk is full"),
    (
        r"DO NOT MATCH THE HASHES|Hash mismatch",
        "a package is not the one that was pinned; an index of your own may have another",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|invalid peer certificate",
        "the index of packages shows a certificate that is not trusted",
    ),
    (
        r"requires a different Python|Requires-Python|does not satisfy Python",
        "it needs another version of Python than this one",
    ),
    (
        r"Retrying|NewConnectionError|name resolution|Name or service|unreachable|ConnectTimeout|ReadTimeout|timed out|ProxyError"
        r"|Connection refused|ConnectionError|dns error|Could not connect",
        "the index of packages cannot be reached; behind a proxy set HTTPS_PROXY",
    ),
    (r"Permission denied|Operation not permitted|os error 13\b", "a file or folder cannot be read or written"),
    (r"No matching distribution found for pegasus-agent|pegasus-agent was not found", "the index has no such version"),
    (r"No matching distribution|No solution found", "a package that it needs is not there for this Python or system"),
    (r"is not a supported wheel|not a supported wheel", "it is made for another Python or system"),
    (
        r"invalid wheel|\.whl is invalid|BadZipFile|zip file|not a zip|ReadError|not a gzip|EOFError|truncated",
        "the file is damaged",
    ),
    (r"subprocess-exited-with-error|build backend|metadata-generation-failed|Failed to build", "it cannot be built"),
)
"""By what pip and uv print, in the order of looking, why an installation has failed."""


_EXTRAS: Final = {"telemetry": "opentelemetry.sdk", "postgres": "psycopg"}
"""Extras that a new version gets if this one has them, by a module of each. The lock of a clone holds "postgres" in any case."""


class UpdateError(Exception):
    """An update that cannot be made. str() is a sentence for people."""


@attrs.frozen
class Candidate:
    """Version that is installed and answers: `Candidate(Path("…/versions/2/bin/python"), "0.2.0", 3, "~/pegasus")`."""

    interpreter: Path
    """Python of its environment; `interpreter -P -m pegasus` runs it."""
    version: str
    format: int
    """Form of data that it reads and writes (`pegasus.host.FORMAT`)."""
    source: str
    """Source as it was named: a folder, a file, a version."""


async def prepare(what: str, into: Path, environ: Mapping[str, str] = os.environ) -> Candidate:
    """Install a version in a new environment. Raises UpdateError; then `into` is not there.

    what: a folder of source, a wheel, an sdist, a version of the index, or "" for the newest. into: folder of the environment, which
    must not exist. The words of the installer are in `<into>.log` if it fails. Cancelling ends the installer, and removes the folder.
    """
    try:
        steps = _steps(what)
    except OSError as error:
        raise UpdateError(f"{what}: cannot be read ({error.strerror})") from None
    log = into.with_name(f"{into.name}.log")
    environ = {name: value for name, value in environ.items() if name not in _OF_ANOTHER}
    try:
        into.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        await _run([sys.executable, "-I", "-m", "venv", "--without-pip", str(into)], log, environ, what)
        python = into / "bin" / "python"
        installer = await _installer(python, log, environ, what)
        for step in steps:
            await _run([*installer, *step], log, environ, what)
        candidate = await _ask(python, what, environ)
        log.unlink(missing_ok=True)
    except BaseException as error:
        with suppress(OSError):
            shutil.rmtree(into)
        if isinstance(error, OSError):
            raise UpdateError(f"{error.filename or into}: cannot be written ({error.strerror})") from None
        raise
    return candidate


def _steps(what: str) -> list[list[str]]:
    """Return the arguments of each call of the installer. Raises UpdateError for what is no version, OSError."""
    extras = [name for name, module in _EXTRAS.items() if find_spec(module)]
    extra = f"[{','.join(extras)}]" if extras else ""
    path = Path(what).expanduser() if what else Path()
    if not what:
        return [[f"{PACKAGE}{extra}"]]
    if path.is_dir():
        project = path / "pyproject.toml"
        if not project.is_file() or f'name = "{PACKAGE}"' not in project.read_text("utf-8", "replace"):
            raise UpdateError(f"{what}: found a folder without the source of Pegasus; give the folder of a clone")
        lock = path / "requirements.lock"
        if not lock.is_file():
            return [[f"{path.absolute()}{extra}"]]
        pinned = ["--no-deps", "--require-hashes", "-r", str(lock.absolute())]
        unpinned = ["[telemetry]"] if "telemetry" in extras else []
        built = [
            "--no-build-isolation",
            *([] if unpinned else ["--no-deps"]),
            "".join([str(path.absolute()), *unpinned]),
        ]
        return [pinned, built]
    if path.is_file():
        if not path.name.endswith(_ARCHIVES):
            raise UpdateError(
                f"{what}: found a file that is neither a wheel nor an sdist; allowed: {', '.join(_ARCHIVES)}"
            )
        with path.open("rb"):  # so that missing rights are found before anything is made
            return [[f"{path.absolute()}{extra}"]]
    if os.sep in what or what.startswith((".", "~")) or what.endswith(_ARCHIVES):
        raise UpdateError(f"{what}: there is no such file or folder")
    version = what.removeprefix("v")
    if not _VERSION.fullmatch(version):
        raise UpdateError(
            f"{what}: found neither a file nor a version; allowed: a folder of source, a wheel, an sdist, 1.2.3"
        )
    return [[f"{PACKAGE}{extra}=={version}"]]


async def _installer(python: Path, log: Path, environ: Mapping[str, str], what: str) -> list[str]:
    """Return the beginning of the command that installs packages into the environment."""
    options = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    if find_spec("pip"):
        return [sys.executable, "-I", "-m", "pip", "--python", str(python), "install", *options]
    if uv := shutil.which("uv", path=environ.get("PATH")):
        return [uv, "pip", "install", "--no-progress", "--python", str(python)]
    await _run([str(python), "-I", "-m", "ensurepip"], log, environ, what)
    return [str(python), "-I", "-m", "pip", "install", *options]


async def _run(command: Sequence[str], log: Path, environ: Mapping[str, str], what: str) -> None:
    """Run a step of the installation. Raises UpdateError with the reason of a failure, OSError."""
    name = f"{what or 'the newest version'}: cannot be installed"
    with trio.move_on_after(_LONGEST):
        done = await trio.run_process(
            command, stdin=DEVNULL, capture_stdout=True, stderr=STDOUT, env=environ, check=False
        )
        with suppress(OSError), log.open("ab") as stream:  # a full disk must not hide the reason
            stream.write(done.stdout)
        if done.returncode == 0:
            return
        reason = _reason(done.stdout.decode("utf-8", "replace"), done.returncode)
        raise UpdateError(f"{name}: {reason} (the installer's own words: {log})")
    raise UpdateError(f"{name}: the installer did not end within {_LONGEST:g} s")


def _reason(text: str, code: int) -> str:
    """Return why an installation has failed, in the words of people where they are known."""
    for pattern, reason in _REASONS:
        if re.search(pattern, text, re.IGNORECASE):
            return reason
    if code < 0:
        return f"the installer was ended by signal {-code}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"^error:\s*", "", lines[-1], flags=re.IGNORECASE)[:200].rstrip(".") if lines else f"exit code {code}"


async def _ask(python: Path, what: str, environ: Mapping[str, str]) -> Candidate:
    """Return the candidate as it describes itself. Raises UpdateError where it cannot."""
    with trio.move_on_after(_ANSWER):
        done = await trio.run_process(
            [str(python), "-I", "-c", _QUESTION],
            stdin=DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            env=environ,
            check=False,
        )
        with suppress(ValueError):
            match decode_json(done.stdout):
                case [str(version), int(format)]:
                    return Candidate(python, version, format, what)
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1][:200] if lines else f"exit code {done.returncode}"
        raise UpdateError(f"{what}: is installed and does not start: {why}")
    raise UpdateError(f"{what}: is installed and does not start: no answer within {_ANSWER:g} s")
