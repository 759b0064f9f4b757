"""`pegasus memory …`: what the agent remembers, who changed it, and the way back; with the running daemon, or from the files."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from actors import Ref
from pegasus.cli.alone import Clock, with_journal
from pegasus.cli.asking import Node, json_line, show
from pegasus.cli.rows import fitted
from pegasus.formatting import format_time
from pegasus.host import Home
from pegasus.memory import (
    FOLDER,
    LOG,
    Author,
    FolderShelf,
    MemoryRefused,
    changes_in,
    files_view,
    listed,
    memory_in,
    view_of,
    whole,
)
from pegasus.messages import Json
from pegasus.settings import Settings
from pegasus.storage import JournalMessage, StorageError
from pegasus.tools import found_json

_BY = {"main-agent": "the agent", "hand": "hand", "user": "you"}


def run_list(home: Home, settings: Settings, *, as_json: bool) -> int:
    """A line for each file."""

    def down() -> Node:
        return files_view(map(listed, _shelf(home).look_now()))

    return show(home, settings, "memory.list", {}, json_line if as_json else list_text, down)


def run_show(home: Home, settings: Settings, *, path: str) -> int:
    """One file as it is."""

    async def read() -> Node:
        shelf = _shelf(home)
        content = await whole(path, shelf, await shelf.look())
        return {"path": path, "content": content.decode("utf-8-sig", "replace")}

    return show(
        home,
        settings,
        "memory.show",
        {"path": path},
        lambda answer: answer["content"].rstrip("\n"),
        lambda: trio.run(read),
        MemoryRefused,
    )


def run_log(home: Home, settings: Settings, *, path: str | None, limit: int, as_json: bool) -> int:
    """The last changes, the newest first. Without a daemon, edits that nobody has looked at since are not among them."""

    def down() -> Node:
        try:
            data = (home.data / FOLDER / LOG).read_bytes()
        except FileNotFoundError:
            data = b""
        made = [one for one in reversed(changes_in(data)) if path in (None, one.path)]
        return {"changes": [view_of(one) for one in made[:limit]]}

    params: dict[str, Json] = {"limit": limit, **({"path": path} if path else {})}
    return show(home, settings, "memory.log", params, json_line if as_json else log_text, down)


def run_undo(home: Home, settings: Settings, *, n: int) -> int:
    """Take a change back. Without a daemon the home is held meanwhile, so that none begins."""

    async def undo(journal: Ref[JournalMessage], clock: Clock) -> Node:
        memory = memory_in(home.data, journal, clock)
        return {"change": view_of(await memory.undo(n, Author("user", channel="cli:memory")))}

    def down() -> Node:
        return with_journal(home, undo)

    def text(answer: Node) -> str:
        change = answer["change"]
        return f"Change {change['undoes']} of {change['path']} is taken back, by change {change['n']}."

    return show(home, settings, "memory.undo", {"n": n}, text, down, MemoryRefused, StorageError)


def run_search(home: Home, settings: Settings, *, query: str, limit: int, where: str | None, as_json: bool) -> int:
    """What was remembered or said that has these words."""

    async def search() -> Node:
        from pegasus.memory import Searcher

        searcher = Searcher.of(home.data)
        try:
            answer = found_json(await searcher.search(query, limit, where or ""))
        finally:
            searcher.close()
        return answer if isinstance(answer, Mapping) else {}

    params: dict[str, Json] = {"query": query, "limit": limit, **({"in": where} if where else {})}
    render = json_line if as_json else found_text
    return show(home, settings, "memory.search", params, render, lambda: trio.run(search), MemoryRefused)


def _shelf(home: Home) -> FolderShelf:
    return FolderShelf(home.data / FOLDER)


# ------------------------------------------------------------------ for people


def list_text(answer: Node) -> str:
    """A line for each file, as wide as the terminal."""
    files = answer["files"]
    if not files:
        return "Nothing is remembered yet."
    wide = max(len(one["path"]) for one in files)
    return "\n".join(fitted(f"{one['path']:<{wide}}  {one['size']:>7,} B  {one['summary']}") for one in files)


def log_text(answer: Node) -> str:
    """Each change: number, when, where, who, why, then what went and what came."""
    return (
        "\n".join(line for change in answer["changes"] for line in _change_lines(change)) or "Nothing was changed yet."
    )


def _change_lines(change: Node) -> list[str]:
    by, what = change["by"], f"undo of {change['undoes']}" if change.get("undoes") else change["how"]
    who = " ".join(filter(None, (_BY.get(by["kind"], by["kind"]), by.get("task"), by.get("user"))))
    about = [
        f"by {who}",
        f"for {by['channel']}" if by.get("channel") else "",
        f"({by['why']})" if by.get("why") else "",
    ]
    source = f"[source: {by['source']}]" if by.get("source") else ""
    at = format_time(change["ts"], local=True)
    lines = [" ".join(filter(None, (f"{change['n']:>4}  {at}  {change['path']}  {what}", *about, source)))]
    if change["removed"] is None:
        return [*lines, "      (too large to be kept: it cannot be taken back)"]
    lines += [f"    - {line}" for line in change["removed"].splitlines()]
    return lines + [f"    + {line}" for line in change["added"].splitlines()]


def found_text(answer: Node) -> str:
    """Each passage: where it is, then what it says."""
    lines = []
    for hit in answer["results"]:
        about = hit.get("title") or hit.get("role") or ""
        lines += [f"{hit.get('path') or hit['file']}:{hit['line']}  {about}".rstrip(), f"    {hit['snippet']}"]
    return "\n".join([*lines, *([answer["notice"]] if answer.get("notice") else [])])
