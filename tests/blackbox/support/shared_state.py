"""The same tests over the second engine: with PEGASUS_TEST_STORAGE=database the agent of each home has a database of its own.

Tests may read `<home>/data` as ever: what is in the database is written there before somebody looks. What a test puts there before
the first start is moved into the database. Tests whose subject is the files themselves fail then.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import cache
from pathlib import Path

import trio

from pegasus.moving import export_database
from pegasus.storage import StorageError
from pegasus.storage.database import open_database
from tests.blackbox.support.command import PROGRAM
from tests.postgres_server import PostgresServer

IS_SHARED = os.environ.get("PEGASUS_TEST_STORAGE") == "database"
_LOOKS = ("open", "os.listdir", "os.scandir")
"""Events of the interpreter at which what is in the database is written into the folder first."""

_urls: dict[str, str] = {}
"""Database of each home that was configured, by the path of its data."""
_moved: set[str] = set()
"""Homes whose files were moved, or that had none."""
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


def shared_state_of(home: Path) -> dict[str, object]:
    """The settings that let the agent of a home keep its state in a database; none without PEGASUS_TEST_STORAGE."""
    if not IS_SHARED:
        return {}
    data = str(home / "data")
    if data not in _urls:
        _urls[data] = _server().database()
    return {"storage.url": _urls[data], "node.lease": 3.0, "node.name": f"n{len(_urls)}"}


def move_files(home: Path) -> None:
    """Move what a test has put into a home before its first start."""
    data = str(home / "data")
    if data not in _urls or data in _moved:
        return
    _moved.add(data)
    found = Path(data).is_dir() and any(path.name != "VERSION" for path in Path(data).iterdir())
    if found:
        subprocess.run([*PROGRAM, "--home", str(home), "migrate", "--to", _urls[data]], check=True, capture_output=True)


def _note_look(event: str, arguments: tuple[object, ...]) -> None:
    if event in _LOOKS and isinstance(arguments[0], str | os.PathLike):
        refresh(os.fspath(arguments[0]))


def refresh(path: str | bytes) -> None:
    """Write what is in the database, if this is a path below the data of a home."""
    global _is_writing
    data = None if _is_writing else next((data for data in _urls if str(path).startswith(data)), None)
    if data not in _moved:
        return
    _is_writing = True
    try:
        _thread.submit(trio.run, _export, _urls[data], data).result()
    finally:
        _is_writing = False


async def _export(url: str, data: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "data"
        try:
            async with aclosing(open_database(url)) as database:
                await export_database(database, made)
        except StorageError:
            return  # it is down: what was written last stays
        shutil.copytree(made, data, dirs_exist_ok=True)
