"""The files that a command names, with hashes of what is in them.

An owner who says yes to `sh do.sh` says yes to what do.sh is at that moment. So the hashes of all files that a command names belong to
its arguments: they are computed when the owner is asked, and again right before the command runs. A file that has changed, appeared
or vanished makes another call.

Nobody can tell from a line which words a program takes for files. So every word counts that leads to a regular file, in whatever
quotes, redirection or option it stands, from the folder of the command and from each folder that the line names; and so does a
module that Python would find, and what `make` and its like read without being told. That is too much rather than too little: a file
that is only read makes a yes for ever serve for its present content only.

What remains: names that the command makes up while it runs, files that named files read in turn, and the moment between the hash and
the start of the program, in which a background command of the same task may still write.
"""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from glob import iglob
from hashlib import blake2b
from itertools import islice
from typing import Final

from pegasus.guarded_open import open_regular
from pegasus.messages import Json, Metadata
from pegasus.sandbox import is_within
from pegasus.tools.base import ToolContext
from pegasus.tools.files import real_path

MOST_LOOKUPS: Final = 200_000
"""Words that are looked at for one command, once for each folder: about a second."""
LARGEST: Final = 64 << 20
"""Bytes of a file that are read. A larger one counts by its size, its times and its place on the disk."""
MOST_READ: Final = 256 << 20
"""Bytes that are read for one command."""
LONGEST: Final = 4096
"""Characters that a path may have."""
_MOST_MATCHES: Final = 2000
"""Files that a pattern of the shell may stand for here."""
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/nix", "/proc", "/sys", "/dev", "/boot")
"""Folders of the machine, which do not count where `tools.allowed_paths` has everything."""
_ENDINGS: Final = ("", ".py", ".js", ".mjs", ".cjs", ".ts")
"""Endings that programs add to the name of a module."""
_OF_FOLDERS: Final = ("__main__.py", "index.js", "package.json")
"""Files that programs run when they are given the folder."""
_IMPLIED: Final = {
    **dict.fromkeys(("make", "gmake"), ("GNUmakefile", "makefile", "Makefile")),
    **dict.fromkeys(("npm", "npx", "pnpm", "yarn", "bun"), ("package.json",)),
    "just": ("justfile", "Justfile", ".justfile"),
}
"""Files that programs run without being told, by the names of the programs."""
_QUOTED: Final = re.compile(r"'([^']+)'"), re.compile(r'"([^"]+)"')
"""Text in quotes, which may be a path with blanks."""
_COARSE: Final = re.compile(r"[\s'\"`;&|<>()]+")
"""Characters between words that no usual name of a file holds."""
_FINE: Final = re.compile(r"[\s'\"`;&|<>()={},:$!@\[\]\\]+")
"""Those and others that may stand around a path, such as the sign in `--file=do.sh`."""
_MODULES: Final = re.compile(r"(?:\bimport|\bfrom|-m)\s*([\w.]+(?:\s*,\s*[\w.]+)*)")
"""Names of modules behind the words that load them."""


class TooManyNames(Exception):
    """A command names more than can be looked at. Example: a line of a megabyte with 100,000 different words."""


def named_files(arguments: Metadata, context: ToolContext) -> dict[str, Json]:
    """Return a hash for each file that the arguments of a command name, by its path. Blocks while it reads. Raises TooManyNames.

    Paths in the workspace are relative to it. Example: `{"do.sh": "5f1d…"}` for `{"command": "cat x; sh<do.sh"}`.
    """
    texts = list(_texts(arguments))
    words = sorted({word for text in texts for word in _words(text) if "\0" not in word and len(word) <= LONGEST})
    cwd = arguments.get("cwd")
    bases = [str(context.workspace), *([real_path(context, cwd)] if isinstance(cwd, str) else [])]
    lookups = 0
    found: set[str] = set()
    # Folders that are named are starting points as well, for `cd sub && sh do.sh` and `make -C sub`.
    for base in bases:
        lookups += len(words)
        if lookups > MOST_LOOKUPS:
            raise TooManyNames
        listed = _listed(base)
        for word in words:
            path = _join(base, word)
            if not _may_lead_somewhere(word, path, base, listed):
                continue
            if os.path.isdir(path):
                found.update(filter(os.path.isfile, (os.path.join(path, name) for name in _OF_FOLDERS)))
                if path not in bases and is_within(path, str(context.workspace)):
                    bases.append(path)
            found.update(filter(os.path.isfile, _candidates(base, word, path)))
        modules = (_module_paths(base, names) for text in texts for names in _MODULES.findall(text))
        found.update(path for paths in modules for path in filter(os.path.isfile, paths))
    return _hashes(sorted(path for path in found if _counts(path, context)), str(context.workspace))


def _texts(value: Json) -> Iterator[str]:
    """Yield all texts of the arguments, such as the command, its folder and the values of its variables."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _words(text: str, levels: int = 3) -> Iterator[str]:
    """Yield whatever may be a path in a text, in several readings of it. levels: of commands within quotes that are read."""
    with suppress(ValueError):  # a quote without its end
        for word in shlex.split(text):
            yield word
            if levels and word != text and any(map(str.isspace, word)):
                yield from _words(word, levels - 1)
    for quoted in _QUOTED:
        yield from quoted.findall(text)
    yield from filter(None, _COARSE.split(text))
    yield from filter(None, _FINE.split(text))


def _join(base: str, word: str) -> str:
    """Return the path that a word names from a folder on."""
    return os.path.normpath(os.path.join(base, os.path.expanduser(word)))


def _listed(base: str) -> frozenset[str]:
    """Return the names in a folder as file systems compare them that know no capital letters; none for what is no folder."""
    try:
        return frozenset(map(_folded, os.listdir(base)))
    except (OSError, ValueError):
        return frozenset()


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _may_lead_somewhere(word: str, path: str, base: str, listed: Container[str]) -> bool:
    """Return whether anything that a word stands for may exist. Most words of a long text are told by the names in the folder.

    path: the one that the word names from the folder on. listed: the names in it.
    """
    if any(mark in word for mark in "*?[") or os.path.basename(word) in _IMPLIED or not is_within(path, base):
        return True
    first, _, rest = path[len(base) :].strip(os.sep).partition(os.sep)
    first = _folded(first)
    return not first or first in listed or (not rest and any(first + ending in listed for ending in _ENDINGS))


def _candidates(base: str, word: str, path: str) -> Iterator[str]:
    """Yield the paths of files that a word may stand for, from a folder on. path: the one that it names."""
    yield from (path + ending for ending in _ENDINGS)
    yield from (os.path.join(base, name) for name in _IMPLIED.get(os.path.basename(word), ()))
    if any(mark in word for mark in "*?[") and word.count("*") <= 3:
        with suppress(OSError, ValueError, re.error):
            yield from map(os.path.normpath, islice(iglob(os.path.join(base, word)), _MOST_MATCHES))


def _module_paths(base: str, names: str) -> Iterator[str]:
    """Yield the files in which Python looks for modules. names: `pkg.mod` or several with commas."""
    for name in names.replace(",", " ").split():
        parts = [part for part in name.split(".") if part]
        for end in range(1, len(parts) + 1):
            folder = os.path.join(base, *parts[:end])
            yield from (f"{folder}.py", os.path.join(folder, "__init__.py"), os.path.join(folder, "__main__.py"))


def _counts(path: str, context: ToolContext) -> bool:
    """Return whether a file belongs to the arguments: one of the workspace, or of another folder in which the agent may write."""
    real = os.path.realpath(path)
    workspace = str(context.workspace)
    if is_within(path, workspace) or is_within(real, workspace):
        return True
    is_kept_out = any(is_within(real, folder) for folder in (*_SYSTEM, *map(str, context.closed_paths)))
    return not is_kept_out and any(is_within(real, str(folder)) for folder in context.allowed_paths)


def _hashes(paths: Iterable[str], workspace: str) -> dict[str, Json]:
    """Return the hash of each file by its name for people."""
    left = MOST_READ
    hashes: dict[str, Json] = {}
    for path in paths:
        name = os.path.relpath(path, workspace) if is_within(path, workspace) else path
        hashes[name], read = _hash(path, min(left, LARGEST))
        left -= read
    return hashes


def _hash(path: str, most: int) -> tuple[str, int]:
    """Return the hash of a file, and how many bytes were read for it. most: bytes of a file that is read."""
    try:
        # Not to be held up by a pipe that has taken the place of the file.
        with open_regular(path, follows=True) as file:
            facts = os.fstat(file.fileno())
            if facts.st_size > most:
                # Whoever writes into a file changes its last time, which nobody can set.
                identity = facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_dev, facts.st_ino
                return f"{blake2b(repr(identity).encode(), digest_size=16).hexdigest()} (of size, times and place)", 0
            digest, read = blake2b(digest_size=16), 0
            while (part := file.read(1 << 20)) and read <= most:
                digest.update(part)
                read += len(part)
            return digest.hexdigest(), read
    except OSError as error:
        return f"cannot be read: {error.strerror}", 0
