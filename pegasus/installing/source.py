"""The sources that a person names: a folder, an archive, or a repository as `git+https://host/path@revision#subdirectory=folder`."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import attrs
import trio

from pegasus.installing.archives import read_archive
from pegasus.installing.repository import read_repository
from pegasus.installing.source_tree import SourceError, SourceTree, check_path, read_folder
from pegasus.tools import AddressGuard

_REVISION: Final = re.compile(r"(?!.*(?:\.\.|//|@\{|\.lock$|[/.]$))[A-Za-z0-9_][A-Za-z0-9_./+@-]{0,199}")
"""A branch, a tag or a commit. Nothing that git would read as an option or as a rule for several."""
_COMMIT: Final = re.compile(r"[0-9a-f]{4,39}")
"""The beginning of a commit, which a repository is not asked for."""
_URL: Final = re.compile(r"https://[A-Za-z0-9.\[\]:-]+/[!-~]*|file:///[^\x00-\x1f\x7f]*")


@attrs.frozen
class SkillSource:
    """A source as it was named."""

    text: str
    """Its text without credentials, as it is shown and kept."""
    path: Path | None = None
    """The folder or archive; None for a repository."""
    url: str = ""
    revision: str = ""
    subdirectory: str = ""
    credentials: str = attrs.field(default="", repr=False)
    """"user:password" of the URL."""


def parse_source(text: str) -> SkillSource:
    """Return the source that a text names. Raises SourceError, which never has the credentials in it. Blocks briefly."""
    if text.startswith("git+"):
        return _parse_repository(text.removeprefix("git+"))
    if re.match(r"[a-z][a-z0-9+.-]*://|git@", text):
        raise SourceError(
            "found an address, allowed: a folder, an archive, or git+https://HOST/PATH@REVISION "
            "(a git repository: git+ before its address)"
        )
    text = os.path.expanduser(text)
    text, _, fragment = (text, "", "") if Path(text).exists() else text.partition("#")
    path, subdirectory = Path(text).absolute(), _subdirectory(fragment)
    if not path.exists():
        raise SourceError(f"there is no folder or archive {path}")
    return SkillSource(f"{path}{_fragment(subdirectory)}", path, subdirectory=subdirectory)


def _parse_repository(text: str) -> SkillSource:
    """Return a source that is a repository. Raises SourceError."""
    address, _, fragment = text.partition("#")
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    user, at, host = host.rpartition("@")
    path, marked, revision = path.partition("@")
    url = f"{scheme}://{host}{slash}{path}"
    if not _URL.fullmatch(url) or (scheme == "file" and at) or not _has_port(url):
        raise SourceError(
            "found another address, allowed: git+https://HOST/PATH@REVISION, or git+file:///PATH@REVISION"
        )
    if marked and not _REVISION.fullmatch(revision):
        raise SourceError(f"found the revision {revision!a}, allowed: a branch, a tag, or a commit of 40 digits")
    subdirectory = _subdirectory(fragment)
    text = f"git+{url}{marked}{revision}{_fragment(subdirectory)}"
    return SkillSource(text, None, url, revision, subdirectory, user)


def _has_port(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "file" or (bool(parts.hostname) and parts.port != 0)
    except ValueError:
        return False


def _subdirectory(fragment: str) -> str:
    """Return the folder that a fragment names. Raises SourceError."""
    if not fragment:
        return ""
    key, _, folder = fragment.partition("=")
    if key != "subdirectory" or not folder:
        raise SourceError(f"found #{fragment}, allowed: #subdirectory=FOLDER")
    return check_path(unquote(folder))


def _fragment(subdirectory: str) -> str:
    return f"#subdirectory={quote(subdirectory)}" if subdirectory else ""


async def read_source(source: SkillSource, guard: AddressGuard) -> SourceTree:
    """Return the content of a source. Raises SourceError, OSError. guard: of the hosts that may be reached.

    Cancelled: git is ended; the reading of a folder or an archive is waited for.
    """
    if source.path is None:
        try:
            return await read_repository(source.url, source.credentials, source.revision, source.subdirectory, guard)
        except SourceError as error:
            hint = "; of a commit all 40 digits are needed" if _COMMIT.fullmatch(source.revision) else ""
            raise SourceError(f"{source.text}: {error}{hint}") from None
    read = read_folder if source.path.is_dir() else read_archive
    try:
        return await trio.to_thread.run_sync(partial(read, source.path, source.subdirectory))
    except SourceError as error:
        raise SourceError(f"{source.text}: {error}") from None
