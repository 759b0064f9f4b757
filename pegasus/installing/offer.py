"""Skills of a source as they are offered to the owner: what each asks for, why one cannot be installed, what an update changes.

What stands here is found in the files, without running any. It is a help for reading them and no proof: words of the network are a
search for names, and a script can do more than its text shows.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from pegasus import frontmatter
from pegasus.formatting import plural
from pegasus.installing.source_tree import SourceEntry, SourceTree, check_path, is_below, skill_folders
from pegasus.skills import (
    FILE,
    MAX_BYTES,
    MOST_BYTES,
    MOST_FILES,
    NAME,
    Skill,
    file_hash,
    parse_skill,
    specification_problems,
)

MOST_NAMED: Final = 20
"""Hosts that are named."""
_LANGUAGES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("py", "pyw", "ipynb"), "Python"),
    **dict.fromkeys(("sh", "bash", "zsh", "fish", "ksh"), "shell"),
    **dict.fromkeys(("js", "mjs", "cjs", "ts", "mts", "tsx", "jsx"), "JavaScript"),
    **dict.fromkeys(("ps1", "psm1", "bat", "cmd", "vbs"), "Windows"),
    **dict.fromkeys(
        ("rb", "pl", "php", "lua", "r", "go", "rs", "java", "jar", "swift", "scpt", "applescript"), "program"
    ),
    **dict.fromkeys(("exe", "dll", "so", "dylib", "bin", "com", "msi", "deb", "rpm", "whl"), "binary program"),
}
"""Kinds of programs by the end of a file's name."""
_BINARIES: Final = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\0asm")
_POINTER: Final = b"version https://git-lfs.github.com/spec/"
"""Beginning of a file whose content lies in a large-file storage."""
MOST_COMPARED: Final = 5_000
"""Lines of a file up to which the shortest difference is looked for. That takes the square of the time."""
_HOST: Final = re.compile(r"\b(?:https?|wss?|ftp|ssh|git)://(?:[^\s/@\"'<>]{1,200}@)?([A-Za-z0-9][A-Za-z0-9.-]{0,252})")
_NETWORK: Final = re.compile(
    r"\b(curl|wget|netcat|ncat|nc -|ssh |scp |rsync |ftp |telnet |requests\.|urllib|httpx|aiohttp|http\.client|socket\.|websocket|"
    r"fetch\(|axios|XMLHttpRequest|Invoke-WebRequest|pip3? install|npm install|npx |uvx |pipx |git clone|git push|WebFetch|"
    r"WebSearch|web_fetch|web_search|smtplib|paramiko|boto3)"
)
"""Words by which texts and scripts reach the network."""


@attrs.frozen(eq=False, repr=False)
class SkillOffer:
    """A skill of a source."""

    name: str
    folder: str
    """Folder in the source; "" for the top."""
    files: Mapping[str, bytes] = attrs.field(factory=dict)
    skill: Skill | None = None
    """None if it cannot be installed."""
    executables: Collection[str] = ()
    notices: tuple[str, ...] = ()
    problem: str = ""
    """Reason why it cannot be installed; "" if it can."""

    @property
    def manifest(self) -> dict[str, str]:
        """Hashes of the files."""
        return {path: file_hash(data) for path, data in self.files.items()}


def find_offers(tree: SourceTree) -> list[SkillOffer]:
    """Return the skills of a source by name, those too that cannot be installed."""
    folders = skill_folders(path for path, entry in tree.entries.items() if not entry.kind)
    offers = sorted((_offer(tree, folder) for folder in folders), key=lambda offer: (offer.name, offer.folder))
    names = [offer.name for offer in offers]
    return [
        attrs.evolve(offer, skill=None, problem="the source has several skills of this name; give a #subdirectory=")
        if names.count(offer.name) > 1
        else offer
        for offer in offers
    ]


def _offer(tree: SourceTree, folder: str) -> SkillOffer:
    """Return the skill in a folder of the source."""
    base = f"{folder}/" if folder else ""
    inner = {path[len(base) :]: entry for path, entry in tree.entries.items() if is_below(path, folder)}
    called = folder.rpartition("/")[2] or tree.name
    marker = FILE if FILE in inner else next(path for path in inner if path.lower() == FILE.lower())
    notices = [f"its file is called {marker}, which other agents may not find"] if marker != FILE else []
    name, found = called, SkillOffer(called, folder)
    try:
        _check_inner(inner)
        data = tree.contents[base + marker]
        if len(data) > MAX_BYTES:
            raise ValueError(f"{marker} has {len(data):,} bytes, allowed: {MAX_BYTES:,}")
        text = data.decode()
        declared = frontmatter.split(text)[0].get("name")
        if isinstance(declared, str) and NAME.fullmatch(declared.strip()):
            name = declared.strip()
        found = attrs.evolve(found, name=name)
        skill, warnings = parse_skill(text, Path(name))
    except UnicodeDecodeError as error:
        return attrs.evolve(found, problem=f"{marker} is not UTF-8 text (byte {error.start:,})")
    except ValueError as error:
        return attrs.evolve(found, problem=str(error))
    if folder and name != called:
        notices.append(f"its folder is called {called!a}")
    notices += warnings
    notices += [f"not as the format wants it: {problem}" for problem in specification_problems(text, name)]
    files = {FILE if path == marker else path: tree.contents[base + path] for path in sorted(inner)}
    if pointer := next((path for path, data in files.items() if data.startswith(_POINTER)), ""):
        return attrs.evolve(found, problem=f"{pointer} has only the name of its content in a large-file storage (LFS)")
    executables = [path for path, entry in inner.items() if entry.executable]
    return attrs.evolve(found, files=files, skill=skill, executables=executables, notices=tuple(notices))


def _check_inner(inner: Mapping[str, SourceEntry]) -> None:
    """Raise ValueError for what a skill must not have in it. inner: entries of the source, by path in the skill."""
    seen: dict[str, str] = {}
    size = 0
    for path, entry in inner.items():
        if entry.kind:
            raise ValueError(f"{path!a} is a {entry.kind}, allowed: files")
        parts = check_path(path).split("/")
        for depth in range(1, len(parts) + 1):
            upper = "/".join(parts[:depth])
            other = seen.setdefault(unicodedata.normalize("NFC", upper).casefold(), upper)
            if other != upper:
                raise ValueError(
                    f"{upper!a} and {other!a} are one name on some machines, allowed: names that differ by more"
                )
        size += entry.size
    if len(inner) > MOST_FILES:
        raise ValueError(f"found {len(inner):,} files, allowed: {MOST_FILES}")
    if size > MOST_BYTES:
        raise ValueError(f"found {size:,} bytes, allowed: {MOST_BYTES:,}")


# ------------------------------------------------------------------ for the owner


def describe_offer(offer: SkillOffer, source: str, revision: str) -> str:
    """Return what a skill is and asks for. Its words are a stranger's."""
    skill = offer.skill
    if skill is None:
        return f"{offer.name}: cannot be installed: {offer.problem}"
    tools = "all that the conversation or the task has" if skill.tools is None else ", ".join(skill.tools) or "none"
    callers = " and ".join(who for who, can in (("you", skill.by_user), ("the model", skill.by_model)) if can)
    rows = [
        ("from", f"{source}{f', commit {revision}' if revision else ''}"),
        ("says", skill.description),
        ("tools", tools),
        ("model", skill.model or "the usual one"),
        ("runs", f"as a task ({skill.agent})" if skill.fork else "in the conversation"),
        ("called by", callers or "nobody"),
        ("network", _network(offer.files) or "no words of it were found"),
        ("scripts", ", ".join(_scripts(offer)) or "none"),
        ("files", f"{plural(len(offer.files), 'file')}, {sum(map(len, offer.files.values())):,} bytes"),
        *(("", f"{len(data):>9,}  {path}") for path, data in offer.files.items()),
        *(("notice", notice) for notice in offer.notices),
    ]
    return "\n".join([offer.name, *(f"  {label:<10} {text}" for label, text in rows)])


def _scripts(offer: SkillOffer) -> Iterator[str]:
    """Yield the files that can be run, each with its kind."""
    for path, data in offer.files.items():
        kind = _LANGUAGES.get(path.rpartition(".")[2].lower(), "") if "." in path.rpartition("/")[2] else ""
        if data.startswith(_BINARIES):
            kind = "binary program"
        elif data.startswith(b"#!"):
            kind = kind or data[2:80].split(b"\n")[0].decode("ascii", "replace").strip()
        facts = [kind, "executable" if path in offer.executables else ""]
        if any(facts):
            yield f"{path} ({', '.join(filter(None, facts))})"


def _network(files: Mapping[str, bytes]) -> str:
    """Return the hosts and the words of the network in all files, "" if there are none."""
    hosts: dict[str, None] = {}
    words: dict[str, None] = {}
    for data in files.values():
        text = data.decode("utf-8", "ignore")
        hosts.update(dict.fromkeys(match.rstrip(".").lower() for match in _HOST.findall(text)))
        words.update(dict.fromkeys(match.strip(" (-.") for match in _NETWORK.findall(text)))
    named = [
        *sorted(hosts)[:MOST_NAMED],
        *([f"and {len(hosts) - MOST_NAMED} more hosts"] if len(hosts) > MOST_NAMED else []),
    ]
    return ", ".join([*sorted(words), *named])


def describe_changes(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> str:
    """Return all differences between the files of two versions, as a unified diff; of files that are no text their sizes."""
    lines: list[str] = []
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        if before == after:
            continue
        names = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}")
        try:
            old_lines, new_lines = (data.decode().split("\n") if data else [] for data in (before, after))
        except UnicodeDecodeError:
            sizes = " to ".join("nothing" if data is None else f"{len(data):,} bytes" for data in (before, after))
            lines.append(f"{path}: no text, changed from {sizes}")
            continue
        if max(len(old_lines), len(new_lines)) > MOST_COMPARED:
            heads = [f"--- {names[0]}", f"+++ {names[1]}", f"@@ -1,{len(old_lines)} +1,{len(new_lines)} @@"]
            diff = [*heads, *(f"-{line}" for line in old_lines), *(f"+{line}" for line in new_lines)]
        else:
            diff = list(difflib.unified_diff(old_lines, new_lines, *names, lineterm=""))
        # An empty file that comes or goes has no lines that differ.
        lines += diff or [f"--- {names[0]}", f"+++ {names[1]}"]
    return "\n".join(lines)
