"""Searching folders: list_files and grep_files, with their regular expressions and globs. Links are listed, never followed.

A search must end, whatever it is asked and wherever it looks. Four things see to that. Regular
expressions are RE2, whose time is linear in the text. Folders are entered to a fixed depth, and
without following links, so there are no circles. After every entry and every match, the search looks
whether it was cancelled. And when three quarters of the time are used up, it returns what it has found
so far.

Folders are walked in the order of names, so that the same search gives the same result, and the
first results of a listing that is cut are not a random choice. Each folder is opened relative to the
one above it and held open while its content is visited. That is why the depth is limited, and why a
folder that is moved during the walk does not lead it elsewhere.

A file is searched in blocks of whole lines of about one megabyte, as bytes. A match is then found
without decoding the whole file, and a file in any encoding that contains ASCII can be searched. A
line without end, as in minified files, is searched in parts of a megabyte or two, so that memory
is bounded; a match across two parts is not found.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from fnmatch import translate
from typing import Final, NamedTuple, cast

from trio.from_thread import check_cancelled

from pegasus.guarded_open import open_folder
from pegasus.messages import Json
from pegasus.tools.base import ToolContext, ToolError
from pegasus.tools.files.paths import (
    closed_identities,
    folder_of,
    locate,
    located_folder,
    open_file,
    refusing,
)
from pegasus.tools.files.reading import ENVELOPE
from pegasus.tools.text import PROBE
from pegasus.wire import encode_json

MAX_DEPTH: Final = 64
"""Levels of folders that are entered. Each level holds a descriptor open."""
CHUNK: Final = 1 << 20
"""Bytes of a file that are searched at a time."""
MAX_LINE: Final = 400
"""Characters of a line that are shown around a match."""
NOT_SEARCHED: Final = frozenset({".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv"})
"""Folders that grep_files enters only if its path leads there. People neither write nor look for
their content."""


# ------------------------------------------------------------------ walking


class _Entry(NamedTuple):
    """A file, folder or link that a walk has reached."""

    path: str
    """The path to show, which every tool accepts."""
    folder: int
    """Descriptor of the folder that holds it."""
    name: str
    """Name in that folder; together with the descriptor it is immune to renames above it."""
    status: os.stat_result
    """Status of the entry itself, not of a link's target."""


class _Progress:
    """The time of a search, and what it has left out.

    Both stand in the result, because an incomplete search must not be taken for "there is nothing".
    """

    def __init__(self, until: float) -> None:
        """until: value of `time.monotonic` at which the search returns what it has."""
        self._until = until
        self.unreadable = 0
        """Files and folders that could not be read."""
        self.is_cut_short = False
        """True if the search ended because its time was nearly up."""

    def is_time_up(self) -> bool:
        """Return whether the search has to end now. Raises Cancelled if the call was cancelled."""
        check_cancelled()
        self.is_cut_short = self.is_cut_short or time.monotonic() >= self._until
        return self.is_cut_short

    def notes(self, first: str = "") -> dict[str, Json]:
        """Return the field `note` of a result, if there is something to say. first: a note that comes before the others."""
        notes = [first] if first else []
        if self.is_cut_short:
            notes.append("the time was up before everything was looked at: look into a smaller folder")
        if self.unreadable:
            notes.append(f"{self.unreadable} could not be read")
        return {"note": "; ".join(notes)} if notes else {}


def _walk(
    folder: int,
    prefix: str,
    progress: _Progress,
    enters: Callable[[str], bool],
    closed: frozenset[tuple[int, int]],
    levels: int = MAX_DEPTH,
) -> Iterator[_Entry]:
    """Yield everything in the open folder and below, in the order of names, until the time is up.

    closed: device and inode of what is left out. prefix: shown before the names. enters: whether a folder of this name is
    entered. levels: folders that may still be entered.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError:
        progress.unreadable += 1
        return
    for name in names:
        if progress.is_time_up():
            return
        try:
            # By descriptor and name: a folder above that is swapped for a link meanwhile leads nowhere.
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:  # deleted since the listing
            continue
        if (status.st_dev, status.st_ino) in closed:
            continue
        yield _Entry(f"{prefix}{name}", folder, name, status)
        if stat.S_ISDIR(status.st_mode) and levels and enters(name):
            try:
                with open_folder(name, folder) as inner:
                    yield from _walk(inner, f"{prefix}{name}/", progress, enters, closed, levels - 1)
            except OSError as error:
                if error.errno == errno.EMFILE:  # not a property of this folder, so the whole walk fails
                    raise
                progress.unreadable += 1


def _walk_from(context: ToolContext, path: str, progress: _Progress, enters: Callable[[str], bool]) -> Iterator[_Entry]:
    """Yield everything in the folder of a path; see `_walk`. Raises ToolError and OSError, NotADirectoryError for a file."""
    with located_folder(locate(context, path)) as folder:
        yield from _walk(folder, _prefix(path), progress, enters, closed_identities(context))


def _prefix(path: str) -> str:
    """Return the text in front of names, so that each shown path can be given back to any tool."""
    return "" if path in (".", "./") else path.rstrip("/") + "/"


# ------------------------------------------------------------------ list_files


def list_folder(
    context: ToolContext, path: str = ".", recursive: bool = False, pattern: str | None = None, *, until: float
) -> Json:
    r"""Return the result of list_files. Entries beyond the room of the result are counted but not shown.

    pattern: searched in names, not in paths. Raises ToolError if the path is no folder or the pattern cannot be
    compiled. A missing folder is an empty listing with a note.
    """
    wanted = compile_pattern(pattern) if pattern else None
    progress = _Progress(until)
    shown: list[Json] = []
    count = 0
    room = context.max_result - ENVELOPE - len(encode_json(path))
    with refusing(path):
        try:
            for entry in _walk_from(context, path, progress, lambda _: recursive):
                # Names are bytes for the system, and need not be UTF-8.
                if wanted is None or wanted.search(os.fsencode(entry.name)):
                    count += 1
                    described = _describe_entry(entry)
                    room -= len(encode_json(described)) + 1
                    # Counting goes on without room, so that the model knows how much it has not seen.
                    if room >= 0:
                        shown.append(described)
        except FileNotFoundError:
            return {"path": path, "recursive": recursive, "files": [], "count": 0, "note": "there is no such folder"}
        except NotADirectoryError:
            raise ToolError(f"{path} is not a folder; get_file_info shows what it is") from None
    note = f"the first {len(shown)} are shown: list a folder below, or give a pattern" if len(shown) < count else ""
    truncated: dict[str, Json] = {"truncated": True} if note or progress.is_cut_short else {}
    return {
        "path": path,
        "recursive": recursive,
        "files": shown,
        "count": count,
        **truncated,
        **progress.notes(note),
    }


def _describe_entry(entry: _Entry) -> dict[str, Json]:
    """Return an entry of list_files. The size of a folder or link is that of the entry itself."""
    mode = entry.status.st_mode
    described: dict[str, Json] = {
        "name": entry.name,
        "path": entry.path,
        "isDir": stat.S_ISDIR(mode),
        "size": entry.status.st_size,
    }
    return {**described, "isLink": True} if stat.S_ISLNK(mode) else described


# ------------------------------------------------------------------ grep_files


def grep(
    context: ToolContext,
    pattern: str,
    path: str = ".",
    include: str | None = None,
    max_results: int = 50,
    *,
    until: float,
) -> Json:
    """Return the result of grep_files: the first match of each line that has one.

    include: a glob that file paths must match. max_results: lines to show; further ones
    are counted.
    """
    progress = _Progress(until)
    search = _LineSearch(compile_pattern(pattern), max_results, context.max_result - ENVELOPE, progress)
    matches_glob = compile_glob(include) if include else None
    prefix = _prefix(path)
    with refusing(path):
        try:
            # The path itself is entered even if its name is one of those that are not searched.
            for entry in _walk_from(context, path, progress, lambda name: name not in NOT_SEARCHED):
                relative = entry.path.removeprefix(prefix)
                if stat.S_ISREG(entry.status.st_mode) and (matches_glob is None or matches_glob(relative)):
                    try:
                        search.search_file(entry.folder, entry.name, entry.path)
                    # One file that cannot be read, such as a pipe, does not end the search. The result counts it.
                    except (OSError, ToolError):
                        progress.unreadable += 1
        except NotADirectoryError:
            located = locate(context, path)
            with folder_of(located) as above:
                search.search_file(above, located.name, path)
    return search.result()


class _LineSearch:
    """Matching lines: as many as are wanted and there is room for are kept, all are counted."""

    def __init__(self, pattern: re.Pattern[bytes], limit: int, room: int, progress: _Progress) -> None:
        self._pattern = pattern
        self._limit = limit
        """Matches that are shown."""
        self._room = room
        """Characters that the kept matches may still take in the JSON of the result."""
        self._progress = progress
        self._matches: list[Json] = []
        """Matches that are shown, as JSON."""
        self._total = 0
        """Lines with a match, shown or not."""

    def search_file(self, folder: int, name: str, path: str) -> None:
        """Search one file, until the time is up. Binary files are skipped. Raises OSError, and ToolError for a pipe etc."""
        file, _ = open_file(folder, name, path)
        with file:
            if b"\0" in os.pread(file.fileno(), PROBE, 0):  # binary, by the rule of grep and git
                return
            number = 1
            # A block ends with a line end, except for the last line of the file and for parts of a line without end.
            while (block := file.read(CHUNK) + file.readline(CHUNK)) and not self._progress.is_time_up():
                self._search_block(block, number, path)
                number += block.count(b"\n")

    def _search_block(self, block: bytes, number: int, path: str) -> None:
        """Search some lines, the first of which has this number.

        Each round finds the next match and continues after the end of its line, because a line is
        reported once. Line ends are counted from the last match on, so counting costs one pass.
        """
        position = counted = 0
        while position < len(block) and (match := self._pattern.search(block, position)) is not None:
            line_start = block.rfind(b"\n", 0, match.start()) + 1
            if line_start == len(block) or self._progress.is_time_up():  # an empty match after the last line
                return
            line_end = block.find(b"\n", match.end())
            line_end = len(block) if line_end < 0 else line_end
            number += block.count(b"\n", counted, line_start)
            counted, position = line_start, line_end + 1
            self._total += 1
            if len(self._matches) < self._limit and self._room > 0:
                start, end = match.start() - line_start, match.end() - line_start
                self._keep(path, number, block[line_start:line_end], start, end)

    def _keep(self, path: str, number: int, line: bytes, start: int, end: int) -> None:
        """Keep a match, unless there is no room left for it in the result.

        The room is counted in characters of JSON, in which a control character takes six.
        """
        shown, matched = _excerpt(line, start, end), _decode(line[start:end])[:MAX_LINE]
        match: Json = {"file": path, "line": shown, "lineNumber": number, "match": matched}
        self._room -= len(encode_json(match)) + 1
        if self._room > 0:
            self._matches.append(match)

    def result(self) -> Json:
        """Return the result of grep_files."""
        truncated = len(self._matches) < self._total or self._progress.is_cut_short
        return {
            "matches": self._matches,
            "totalMatches": self._total,
            "truncated": truncated,
            **self._progress.notes(),
        }


def _excerpt(line: bytes, start: int, end: int) -> str:
    """Return the line, or the part of a long line around the match."""
    line = line.rstrip(b"\r")
    if len(line) <= MAX_LINE:
        return _decode(line)
    # A quarter of the excerpt stands before the match; at the end of the line the excerpt moves back.
    begin = max(0, min(start - MAX_LINE // 4, len(line) - MAX_LINE))
    part = _decode(line[begin : begin + MAX_LINE])
    return f"{'…' if begin else ''}{part}{'…' if begin + MAX_LINE < len(line) else ''}"


def _decode(line: bytes) -> str:
    """Return a line as text. A result is JSON, so invalid UTF-8 has to be replaced."""
    return line.decode("utf-8", "replace")


# ------------------------------------------------------------------ patterns

# Python's `re` backtracks: ten characters of pattern can make it run for ever, in a thread that cannot be stopped. `regex` has
# timeouts, but a short pattern of nested counts makes it use all memory while compiling. RE2 takes linear time and bounded memory,
# releases the interpreter lock while it searches, and refuses patterns that are too big. The price is that lookaround and
# backreferences are missing, and that `\d \w \b` match ASCII only.

MAX_PATTERN: Final = 4_000
"""Characters of a pattern."""
MAX_GLOBS: Final = 64
"""Patterns that the braces of one glob may stand for."""
PATTERN_SYNTAX: Final = r"RE2 syntax: as in Perl or Go, without lookaround and backreferences; (?i) ignores case"
"""Description of the syntax, for the schemas and for errors."""
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
"""Innermost braces of a glob."""


def compile_pattern(pattern: str) -> re.Pattern[bytes]:
    """Return a regular expression that is applied to each line alone. Raises ToolError with the reason it cannot be used.

    For example:

        compile_pattern(r"(?i)todo").search(b"a TODO here").start() == 2
    """
    import re2  # type: ignore[import-untyped]  # a native library, loaded when something is first searched

    if not pattern or len(pattern) > MAX_PATTERN:
        raise ToolError("pattern is empty" if not pattern else f"pattern is longer than {MAX_PATTERN:,} characters")
    options = re2.Options()
    options.never_nl = True  # a match never continues in the next line
    options.log_errors = False  # to stderr; the error is raised as well
    try:
        # RE2 has no type information of its own; its patterns are used as those of `re`.
        return cast("re.Pattern[bytes]", re2.compile(f"(?m){pattern}", options))
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else ""
        words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)
        raise ToolError(f"pattern {pattern!r} cannot be used: {words}. {PATTERN_SYNTAX}") from None


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """Return a test of paths by a glob with `*`, `?`, `[…]` and `{a,b}`. Raises ToolError.

    A glob without a `/` is applied to the last name of the path, one with a `/` to the whole path.
    """
    choices = _expand_braces(pattern.removeprefix("./"))
    choices += [choice.removeprefix("**/") for choice in choices if choice.startswith("**/")]  # `**/` may match nothing
    tests = [("/" in choice, re.compile(translate(choice)).match) for choice in choices]

    def matches(path: str) -> bool:
        """Return whether a path fits one of the patterns."""
        name = path.rpartition("/")[2]
        return any(match(path if on_whole_path else name) for on_whole_path, match in tests)

    return matches


def _expand_braces(pattern: str) -> list[str]:
    """Return the patterns that the braces stand for: `*.{a,b}` is `*.a` and `*.b`.

    Two groups of ten choices are a hundred patterns, so the number is bounded while they are made.
    """
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(done) + len(waiting) > MAX_GLOBS:
            raise ToolError(f"include {pattern!r} stands for more than {MAX_GLOBS} patterns")
        choice = waiting.pop()
        if (group := _BRACES.search(choice)) is None:
            done.append(choice)
        else:
            waiting += [choice[: group.start()] + part + choice[group.end() :] for part in group[1].split(",")]
    return done
