"""Searching folders: list_files and grep_files, with their regular expressions and globs. Links are listed, never followed.

A search must end, whatever it is asked and wherever it looks. Four things see to that. Regular
expressions are RE2, whose time is linear in the text. Folders are entered to a fixed depth, and
without following links, so there are no circles. The work yields after every entry and every match.
And when three quarters of the time are used up, it returns what it has found so far.

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
from collections.abc import Callable
from contextlib import suppress
from fnmatch import translate
from typing import Final, NamedTuple, Protocol, cast

from pegasus.messages import Json
from pegasus.tools.base import ToolContext, ToolError
from pegasus.tools.files.blocking import Steps
from pegasus.tools.files.paths import (
    LocatedPath,
    folder_of,
    locate,
    open_file,
    open_folder,
    open_inner_folder,
    refusing,
)
from pegasus.tools.text import PROBE
from pegasus.wire import encode_json

MAX_DEPTH: Final = 64
"""Levels of folders that are entered. Each level holds a descriptor open."""
CHUNK: Final = 1 << 20
"""Bytes of a file that are searched at a time."""
ENVELOPE: Final = 400
"""Characters of a result beside its entries."""
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


class _Walk:
    """A walk through a folder in the order of names, with the visits and the decisions given by the caller.

    For example:

        walk = _Walk(visit, lambda name: name != ".git")
        yield from walk.through(folder, "", MAX_DEPTH)
    """

    def __init__(self, visit: Callable[[_Entry], Steps[bool]], enters: Callable[[str], bool]) -> None:
        """visit: handles an entry, and returns False to end the walk. enters: whether a folder of this name is entered."""
        self._visit = visit
        """Called for each entry, in the order of names."""
        self._enters = enters
        """Decides about folders by their name."""
        self.unreadable = 0
        """Files and folders that could not be read."""
        self.is_cut_short = False
        """True if the walk ended because its time was nearly up."""

    def through(self, folder: int, prefix: str, levels: int) -> Steps[bool]:
        """Visit everything in the folder. Return False if the whole walk is to end.

        folder: a descriptor, which stays open. prefix: shown before the names. levels: folders that may still
        be entered.
        """
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError:
            self.unreadable += 1
            return True
        for name in names:
            hurry = yield
            if hurry:
                self.is_cut_short = True
                return False
            with suppress(FileNotFoundError):  # deleted since the listing
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                entry = _Entry(f"{prefix}{name}", folder, name, status)
                if not (yield from self._visit(entry)):
                    return False
                inside = stat.S_ISDIR(status.st_mode) and levels and self._enters(name)
                if inside and not (yield from self._enter(entry, levels - 1)):
                    return False
        return True

    def _enter(self, entry: _Entry, levels: int) -> Steps[bool]:
        """Visit everything in a folder of the walk. A folder that cannot be opened is counted and skipped.

        Too many open files are not a property of this folder, so that error ends the walk.
        """
        try:
            inner = open_inner_folder(entry.folder, entry.name)
        except OSError as error:
            if error.errno == errno.EMFILE:
                raise
            self.unreadable += 1
            return True
        try:
            return (yield from self.through(inner, f"{entry.path}/", levels))
        finally:
            os.close(inner)

    def notes(self, first: str = "") -> dict[str, Json]:
        """Return the field `note` of a result, if there is something to say. first: a note that comes before the others."""
        notes = [first] if first else []
        if self.is_cut_short:
            notes.append("the time was up before everything was looked at: look into a smaller folder")
        if self.unreadable:
            notes.append(f"{self.unreadable} could not be read")
        return {"note": "; ".join(notes)} if notes else {}


def _prefix(path: str) -> str:
    """Return the text in front of names, so that each shown path can be given back to any tool."""
    return "" if path in (".", "./") else path.rstrip("/") + "/"


# ------------------------------------------------------------------ list_files


def list_folder(
    context: ToolContext, path: str = ".", recursive: bool = False, pattern: str | None = None
) -> Steps[Json]:
    r"""Return the result of list_files. Entries beyond the room of the result are counted but not shown.

    pattern: searched in names, not in paths. Raises ToolError if the path is no folder or the pattern cannot be
    compiled. A missing folder is an empty listing with a note.

        steps = list_folder(context, "src", recursive=True, pattern=r"\.py$")
    """
    yield
    wanted = compile_pattern(pattern) if pattern else None
    located = locate(context, path)
    shown: list[Json] = []
    count = 0
    room = context.max_result - ENVELOPE - len(encode_json(path))

    def visit(entry: _Entry) -> Steps[bool]:
        nonlocal count, room
        yield
        if wanted is None or wanted.search(os.fsencode(entry.name)):
            count += 1
            described = _describe_entry(entry)
            room -= len(encode_json(described)) + 1
            if room >= 0:
                shown.append(described)
        return True

    walk = _Walk(visit, lambda _: recursive)
    result: dict[str, Json] = {"path": path, "recursive": recursive, "files": shown, "count": 0}
    with refusing(path):
        try:
            folder = open_folder(located)
        except FileNotFoundError:
            return {**result, "note": "there is no such folder"}
        except NotADirectoryError:
            raise ToolError(f"{path} is not a folder; get_file_info shows what it is") from None
        try:
            yield from walk.through(folder, _prefix(path), MAX_DEPTH)
        finally:
            os.close(folder)
    result["count"] = count
    note = f"the first {len(shown)} are shown: list a folder below, or give a pattern" if len(shown) < count else ""
    if note or walk.is_cut_short:
        result["truncated"] = True
    return {**result, **walk.notes(note)}


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
    context: ToolContext, pattern: str, path: str = ".", include: str | None = None, max_results: int = 50
) -> Steps[Json]:
    r"""Return the result of grep_files: the first match of each line that has one.

    include: a glob that file paths must match. max_results: lines to show; further ones
    are counted.

    For example:

        steps = grep(context, r"def \w+_file", "src", include="*.py")
    """
    yield
    search = _LineSearch(compile_pattern(pattern), max_results, context.max_result - ENVELOPE)
    matches_glob = compile_glob(include) if include else None
    located = locate(context, path)
    prefix = _prefix(path)

    def visit(entry: _Entry) -> Steps[bool]:
        relative = entry.path.removeprefix(prefix)
        if stat.S_ISREG(entry.status.st_mode) and (matches_glob is None or matches_glob(relative)):
            try:
                yield from search.search_file(entry.folder, entry.name, entry.path)
            except (OSError, ToolError):
                walk.unreadable += 1
        return not search.is_cut_short

    # The path itself is entered even if its name is on that list.
    walk = _Walk(visit, lambda name: name not in NOT_SEARCHED)
    with refusing(path):
        yield from _search_path(located, path, walk, search)
    # Either may have noticed first that the time is nearly up: the walk between two files, the search
    # within a file.
    walk.is_cut_short = search.is_cut_short = walk.is_cut_short or search.is_cut_short
    return search.result(walk.notes())


def _search_path(located: LocatedPath, path: str, walk: _Walk, search: _LineSearch) -> Steps[None]:
    """Search a folder with all below it, or a single file."""
    try:
        folder = open_folder(located)
    except NotADirectoryError:
        with folder_of(located) as above:
            yield from search.search_file(above, located.name, path)
        return
    try:
        yield from walk.through(folder, _prefix(path), MAX_DEPTH)
    finally:
        os.close(folder)


class _LineSearch:
    """Matching lines: as many as are wanted and there is room for are kept, all are counted."""

    def __init__(self, pattern: LinePattern, limit: int, room: int) -> None:
        self._pattern = pattern
        """Compiled pattern, over bytes."""
        self._limit = limit
        """Matches that are shown."""
        self._room = room  # characters that the kept matches may still take in the JSON of the result
        self._matches: list[Json] = []
        """Matches that are shown, as JSON."""
        self._total = 0
        """Lines with a match, shown or not."""
        self.is_cut_short = False
        """True if the search ended because its time was nearly up."""

    def search_file(self, folder: int, name: str, path: str) -> Steps[None]:
        """Search one file in blocks of whole lines. Binary files are skipped. Raises OSError, and ToolError for a pipe etc."""
        fd, _ = open_file(folder, name, path)
        try:
            # `rest` is the beginning of a line whose end was not read yet, `number` the line that it has.
            number, rest = 1, b""
            while chunk := os.read(fd, CHUNK):
                # Binary, by the rule of grep and git: a NUL among the first bytes.
                if number == 1 and not rest and b"\0" in chunk[:PROBE]:
                    return
                end = chunk.rfind(b"\n") + 1
                if not end and len(rest) < CHUNK:  # a long line continues; one without any end is searched in parts
                    rest += chunk
                    continue
                block, rest = (rest + chunk[:end], chunk[end:]) if end else (rest + chunk, b"")
                self.is_cut_short |= yield from self._search_block(block, number, path)
                number += block.count(b"\n")
                if self.is_cut_short:
                    return
            yield from self._search_block(rest, number, path)
        finally:
            os.close(fd)

    def _search_block(self, block: bytes, number: int, path: str) -> Steps[bool]:
        """Search some lines, the first of which has this number. Return whether time is nearly up."""
        position = counted = 0
        hurry = False
        # Each round finds the next match and continues after the end of its line, because a line is
        # reported once. Line ends are counted from the last match on, so counting costs one pass.
        while position < len(block) and (match := self._pattern.search(block, position)) is not None:
            start, end = match.start(), match.end()
            line_start = block.rfind(b"\n", 0, start) + 1
            line_end = block.find(b"\n", end)
            line_end = len(block) if line_end < 0 else line_end
            if line_start == len(block):
                break  # an empty match after the last line
            number += block.count(b"\n", counted, line_start)
            counted, position = line_start, line_end + 1
            self._total += 1
            if len(self._matches) < self._limit and self._room > 0:
                self._keep(path, number, block[line_start:line_end], start - line_start, end - line_start)
            hurry = yield
            if hurry:
                return True
        hurry |= yield
        return hurry

    def _keep(self, path: str, number: int, line: bytes, start: int, end: int) -> None:
        """Keep a match, unless there is no room left for it in the result.

        The room is counted in characters of JSON, in which a control character takes six.
        """
        shown, matched = _excerpt(line, start, end), _decode(line[start:end])[:MAX_LINE]
        match: Json = {"file": path, "line": shown, "lineNumber": number, "match": matched}
        self._room -= len(encode_json(match)) + 1
        if self._room > 0:
            self._matches.append(match)

    def result(self, notes: dict[str, Json]) -> Json:
        """Return the result of grep_files."""
        truncated = len(self._matches) < self._total or self.is_cut_short
        return {"matches": self._matches, "totalMatches": self._total, "truncated": truncated, **notes}


def _excerpt(line: bytes, start: int, end: int) -> str:
    """Return the line, or the part of a long line around the match."""
    line = line.rstrip(b"\r")
    if len(line) <= MAX_LINE:
        return _decode(line)
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


class PatternMatch(Protocol):
    """A match of RE2, which has no type information of its own.

    Positions are bytes of the text that was searched.
    """

    def start(self) -> int:
        """Return the first byte of the match."""

    def end(self) -> int:
        """Return the byte behind the match."""


class LinePattern(Protocol):
    """A compiled RE2 pattern over UTF-8."""

    def search(self, text: bytes, pos: int = 0) -> PatternMatch | None:
        """Return the first match at or behind byte `pos`, None if there is none."""


def compile_pattern(pattern: str) -> LinePattern:
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
        return cast("LinePattern", re2.compile(f"(?m){pattern}", options))
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
        name = path.rpartition("/")[2]
        return any(match(path if on_whole_path else name) for on_whole_path, match in tests)

    return matches


def _expand_braces(pattern: str) -> list[str]:
    """Return the patterns that the braces stand for: `*.{a,b}` is `*.a` and `*.b`."""
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
