"""The same tests over the second engine: with PEGASUS_TEST_STORAGE=database the agent of each home has a database of its own.

Tests may read `<home>/data` as ever: what is in the database is written there before somebody looks. What a test puts there before
the first start is moved into the database, and what it changes there while its agent is down is moved into a new one, with the rest.
Tests whose subject is the files themselves are marked with `files`, and skipped.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path

import psycopg
import trio

from pegasus.moving import export_database
from pegasus.storage import StorageError
from pegasus.storage.database import open_database
from tests.blackbox.support.command import PROGRAM
from tests.postgres_server import PostgresServer

IS_SHARED = os.environ.get("PEGASUS_TEST_STORAGE") == "database"
KEPT_SOCKETS = 10 if IS_SHARED else 0
"""Connections to its database that a node keeps at most."""
_LOOKS = ("open", "os.listdir", "os.scandir")
"""Events of the interpreter at which what is in the database is written into the folder first."""

_urls: dict[str, str] = {}
"""Database of each home that was configured, by the path of its data."""
_moved: set[str] = set()
"""Homes whose files were moved, or that had none."""
_written: dict[str, dict[str, str]] = {}
"""Digests of the files of each home as they were written from its database last, by their paths below its data."""
_snapshots: dict[str, str] = {}
"""What the server showed when the files of each home were written last; while it shows the same, nothing was committed since."""
_KEPT_BY_NODES = ("memory/", "identity/", "VERSION")
"""Beginnings of paths that a node has in its home by itself."""
_thread = ThreadPoolExecutor(1)
_is_writing = False


@cache
def _server() -> PostgresServer:
    server = PostgresServer()
    atexit.register(server.remove)
    sys.addaudithook(_note_look)
    stat = Path.stat
    Path.stat = lambda path, **options: (refresh(os.fspath(path)), stat(path, **options))[1]  # type: ignore[method-assign]
    return server


@cache
def _connection() -> psycopg.Connection[tuple[str]]:
    return psycopg.connect(_server().url, autocommit=True)


def shared_state_of(home: Path) -> dict[str, object]:
    """The settings that let the agent of a home keep its state in a database; none without PEGASUS_TEST_STORAGE."""
    if not IS_SHARED:
        return {}
    data = str(home / "data")
    if data not in _urls:
        _urls[data] = _server().database()
    return {"storage.url": _urls[data], "node.lease": 3.0, "node.name": f"n{list(_urls).index(data) + 1}"}


@contextmanager
def silent_database() -> Iterator[None]:
    """Let the database not answer while the body runs; nothing without PEGASUS_TEST_STORAGE."""
    if not IS_SHARED:
        yield
        return
    _server().signal(signal.SIGSTOP)
    try:
        yield
    finally:
        _server().signal(signal.SIGCONT)


def move_files(home: Path) -> None:
    """Move what a test has put into a home before its first start, or has changed there since its agent ended."""
    data = home / "data"
    if str(data) not in _urls:
        return
    if str(data) not in _moved:
        is_used = (home / "run").exists()  # an agent was started without this, in a terminal
        with _as_it_is():
            if not is_used and data.is_dir() and any(path.name != "VERSION" for path in data.iterdir()):
                _migrate(home, _urls[str(data)])
        _moved.add(str(data))
        return
    with _as_it_is():
        if changed := _changed(data):
            _begin_anew(home, changed)
            _written[str(data)] = {path: _digest(data / path) for path in _files(data)}


def _migrate(home: Path, url: str) -> None:
    subprocess.run([*PROGRAM, "--home", str(home), "migrate", "--to", url], check=True, capture_output=True)


def _changed(data: Path) -> list[str]:
    """The files that are not as they were written from the database, and those that were not written from it."""
    written = _written.get(str(data))
    if written is None:
        return []
    return [path for path in sorted({*_files(data), *written}) if _digest(data / path) != written.get(path, "")]


def _files(data: Path) -> list[str]:
    """The files of a home that are not a node's own, by their paths below its data."""
    present = (str(path.relative_to(data)) for path in data.rglob("*") if path.is_file())
    return [path for path in present if not path.startswith(_KEPT_BY_NODES)]


def _begin_anew(home: Path, changed: list[str]) -> None:
    """Move what is in the database of a home into a new one, with these files as they are in its data now."""
    old = _urls[str(home / "data")]
    new = _urls[str(home / "data")] = _server().database()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "data"
        _thread.submit(trio.run, _export, old, made).result()
        for path in changed:
            (made / path).unlink(missing_ok=True)
            if (home / "data" / path).exists():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(home / "data" / path, made / path)
        _migrate(Path(folder), new)
    settings = home / "pegasus.toml"
    settings.write_text(settings.read_text().replace(old, new))


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


@contextmanager
def _as_it_is() -> Iterator[None]:
    """Let looks at the data of homes see what is there."""
    global _is_writing
    _is_writing = True
    try:
        yield
    finally:
        _is_writing = False


def _note_look(event: str, arguments: tuple[object, ...]) -> None:
    if event in _LOOKS and isinstance(arguments[0], str | os.PathLike):
        refresh(os.fspath(arguments[0]))


def refresh(path: str | bytes) -> None:
    """Write what is in the database, if this is a path below the data of a home."""
    data = None if _is_writing else next((data for data in _urls if str(path).startswith(data)), None)
    if data not in _moved:
        return
    snapshot = str(_connection().execute("select pg_current_snapshot()").fetchone())
    if snapshot == _snapshots.get(data):
        return
    with _as_it_is(), tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "data"
        try:
            _thread.submit(trio.run, _export, _urls[data], made).result()
        except StorageError:
            return  # it is down: what was written last stays
        was, edited = _written.get(data, {}), set(_changed(Path(data)))
        now = _written[data] = {
            name: was.get(name, "") if name in edited else _digest(made / name) for name in _files(made)
        }
        for name in edited:
            (made / name).unlink(missing_ok=True)
        if (Path(data) / "VERSION").exists():
            (made / "VERSION").unlink(missing_ok=True)
        for name in was.keys() - now.keys() - edited:
            (Path(data) / name).unlink(missing_ok=True)
        shutil.copytree(made, data, dirs_exist_ok=True)
        _snapshots[data] = snapshot


async def _export(url: str, made: Path) -> None:
    async with aclosing(open_database(url)) as database:
        await export_database(database, made)
