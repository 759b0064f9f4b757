"""Skills out of a git repository, by the program git.

One commit is fetched into an empty bare repository in a folder for temporary files, and its files are read out of the objects. Nothing
is checked out, so no hook, filter, submodule or large-file storage has a part in it. git gets an environment of its own, without the
settings of the person and of the machine: it asks for nothing, speaks one protocol only, follows no redirect, and connects to the
addresses that `AddressGuard` has let through, whatever a name server says the second time. It runs below a guard, with a deadline and
bounds of memory, processes and disk.

Credentials of a URL go into the environment of git alone: not into its arguments, which everybody on the machine can read, into no
file, and into no message.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pegasus.installing.source_tree import SourceEntry, SourceError, SourceTree, check_count, choose_entries
from pegasus.sandbox import CommandLimits, ProcessError, run_process
from pegasus.tools import AddressGuard, ToolError

DEADLINE: Final = 180.0
"""Seconds that git has to fetch, and as many to read."""
LARGEST: Final = 256 << 20
"""Bytes of a file that git may write, which is as much as it may fetch."""
_LIMITS: Final = CommandLimits(memory=1 << 30, processes=32, file_size=LARGEST, output=8_192)
_FETCH: Final = """
git init --quiet --bare --template= repository && cd repository &&
git fetch --quiet --depth=1 --no-tags --no-recurse-submodules --no-auto-maintenance --no-write-commit-graph -- "$1" "$2" &&
git rev-parse --verify --quiet "FETCH_HEAD^{commit}" > ../commit && git ls-tree -r -z -l --full-tree FETCH_HEAD > ../tree
"""
_FATAL: Final = 128
"""Exit code with which git gives up; a shell reports that a signal has ended it by a larger one."""
_READ: Final = "cd repository && exec git cat-file --batch < ../wanted > ../contents"
_REGULAR: Final = {b"100644": False, b"100755": True}
"""Modes of files, and whether they are executable."""


async def read_repository(
    url: str, credentials: str, revision: str, subdirectory: str, guard: AddressGuard
) -> SourceTree:
    """Return the content of a commit. Raises SourceError, OSError. Cancelled: git is ended first, with all that it has started.

    url: of https or file, without credentials. credentials: "user:password", or "". revision: a branch, a tag or a whole commit; "":
    the head of the repository.
    """
    if shutil.which("git") is None:
        raise SourceError("the program git is not installed; install it, or give a folder or an archive")
    with tempfile.TemporaryDirectory(prefix="pegasus-skills-") as folder:
        environment = await _environment(url, credentials, guard, folder)
        await _run(folder, environment, _FETCH, url, revision or "HEAD")
        place, base = Path(folder), f"{subdirectory}/".encode() if subdirectory else b""
        ids: dict[str, bytes] = {}
        entries: dict[str, SourceEntry] = {}
        for line in (place / "tree").read_bytes().split(b"\0")[:-1]:
            facts, _, raw = line.partition(b"\t")
            mode, _, digest, size = facts.split()
            if not raw.startswith(base):
                continue
            path = raw[len(base) :].decode("utf-8", "surrogateescape")  # judged where a skill has it
            if mode in _REGULAR:
                entries[path], ids[path] = SourceEntry("", int(size), _REGULAR[mode]), digest
            else:
                entries[path] = SourceEntry({b"120000": "link", b"160000": "submodule"}.get(mode, "special file"))
            check_count(len(entries))
        chosen = choose_entries(entries, "")
        wanted = [path for path, entry in chosen.items() if not entry.kind]
        (place / "wanted").write_bytes(b"".join(ids[path] + b"\n" for path in wanted))
        await _run(folder, environment, _READ)
        try:
            contents = _contents((place / "contents").read_bytes(), wanted)
        except (ValueError, IndexError):
            raise SourceError("the repository lacks a part of its files") from None
        name = subdirectory.rpartition("/")[2] or url.rstrip("/").rpartition("/")[2].removesuffix(".git")
        return SourceTree(chosen, contents, name, (place / "commit").read_text("ascii").strip())


def _contents(data: bytes, wanted: list[str]) -> dict[str, bytes]:
    """Return the contents of files out of what `git cat-file --batch` has written: a line with the size, the content, a line end.

    Raises ValueError and IndexError where a file is missing.
    """
    found: dict[str, bytes] = {}
    place = 0
    for path in wanted:
        end = data.index(b"\n", place)
        size = int(data[place:end].split()[2])
        found[path] = data[end + 1 : end + 1 + size]
        place = end + 2 + size
    return found


async def _environment(url: str, credentials: str, guard: AddressGuard, folder: str) -> dict[str, str]:
    """Return the environment of git: no settings but these. Raises SourceError for a host that may not be reached."""
    parts = urlsplit(url)
    settings = {
        "protocol.allow": "never",
        f"protocol.{parts.scheme}.allow": "always",
        "core.hooksPath": os.devnull,
        "core.fsmonitor": "false",
        "credential.helper": "",
        "gc.auto": "0",
        "http.followRedirects": "false",
        "http.lowSpeedLimit": "1000",
        "http.lowSpeedTime": "30",
    }
    if parts.scheme == "https":
        host, port = parts.hostname or "", parts.port or 443
        try:
            addresses = await guard.addresses(host, port)
        except ToolError as error:
            raise SourceError(str(error)) from None
        settings["http.curloptResolve"] = f"{host}:{port}:{','.join(map(_bracketed, addresses))}"
    if credentials:
        encoded = b64encode(":".join(map(unquote, credentials.partition(":")[::2])).encode()).decode()
        settings["http.extraHeader"] = f"Authorization: Basic {encoded}"
    fixed = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": folder,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "GIT_ALLOW_PROTOCOL": parts.scheme,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_CONFIG_COUNT": str(len(settings)),
    }
    # The certificates of a company are the machine's affair, as for every other program.
    passed = {"GIT_SSL_CAINFO": os.environ["SSL_CERT_FILE"]} if "SSL_CERT_FILE" in os.environ else {}
    for number, (key, value) in enumerate(settings.items()):
        fixed |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return fixed | passed


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


async def _run(folder: str, environment: Mapping[str, str], script: str, *arguments: str) -> None:
    """Run git. Raises SourceError with what it says."""
    argv = ["/bin/sh", "-c", script, "git", *arguments]
    try:
        result = await run_process(argv, cwd=folder, env=environment, timeout=DEADLINE, limits=_LIMITS)
    except ProcessError as error:
        raise SourceError(str(error)) from None
    if result.timed_out:
        raise SourceError(f"git did not end within {DEADLINE:g} s")
    if result.exceeded or result.exit_code > _FATAL:
        raise SourceError(f"git was ended: it needs more than {LARGEST >> 20} MiB of disk, or too much memory")
    if result.exit_code:
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        text = next((line for line in lines if line.startswith(("fatal:", "error:"))), "".join(lines[-1:]))
        hint = "; redirects are not followed, give the address that it leads to" if "returned error: 30" in text else ""
        raise SourceError(f"git could not fetch it: {text.strip()[:400]}{hint}")
