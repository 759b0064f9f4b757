"""`pegasus migrate` and `pegasus export`: the data of the agent into a database, back into files, and as files to read."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import click
import trio

from pegasus.backup import BackupError, copy_data
from pegasus.cli.commands import Options, pegasus, program_name
from pegasus.cli.control import print_text, report_failure
from pegasus.host import FORMAT, Home, HomeError, own_home, print_error, read_format
from pegasus.moving import (
    DataFolder,
    FolderError,
    Moved,
    export_database,
    move_to_database,
    move_to_folder,
)
from pegasus.settings import Settings
from pegasus.storage import StorageError
from pegasus.storage.database import open_database

_URLS = ("postgresql://", "postgres://")


@pegasus.declare(
    "migrate",
    click.Option(
        ["--to", "target"], metavar="URL|FOLDER", required=True, help="An empty database, or an empty folder."
    ),
    options_only=True,
)
def run_migrate(options: Options, *, target: str) -> int:
    """Move the data of the agent into a PostgreSQL, or back into files.

    The agent must not run. The source stays as it is, and the command may be run again.
    """
    home, settings = options.load()
    try:
        with own_home(home):
            moved = _to_database(home, settings, target) if target.startswith(_URLS) else _to_folder(settings, target)
    except (FolderError, StorageError) as error:
        return report_failure(f"nothing was moved: {error}")
    except OSError as error:
        return report_failure(f"nothing was moved: {error.filename or target}: {error.strerror or error}")
    _print(moved)
    name = program_name()
    if target.startswith(_URLS):
        print_text(
            f"To use it: {name} config set storage.url ADDRESS, with this address. {home.data} stays, as a copy of before."
        )
    else:
        print_text(
            f'To use it: move it to {home.data}, in place of what is there, and {name} config set storage.url "".'
        )
    return 0


def _to_database(home: Home, settings: Settings, url: str) -> Moved:
    if settings.storage.url not in ("", url):
        raise FolderError(
            "storage.url names another database; move that one into a folder first (--to FOLDER): this moves the files of the home"
        )
    if (found := read_format(home)) != FORMAT:
        raise HomeError(
            f"{home.data}: found data of format {found}, allowed: {FORMAT}; start and stop the agent once", exit_code=1
        )

    async def move() -> Moved:
        async with aclosing(open_database(url)) as database:
            return await move_to_database(DataFolder(home.data, settings.agent.scope), database)

    return trio.run(move)


def _to_folder(settings: Settings, target: str) -> Moved:
    folder = Path(target).expanduser()
    if not settings.storage.url:
        raise FolderError(f"the data are files already; {program_name()} export FOLDER copies them")

    async def move() -> Moved:
        async with aclosing(open_database(settings.storage.url)) as database:
            return await move_to_folder(database, folder)

    return trio.run(move)


@pegasus.declare("export", click.Argument(["folder"], type=click.Path(path_type=Path)), options_only=True)
def run_export(options: Options, *, folder: Path) -> int:
    """Copy the data of the agent into FOLDER as readable files, while it runs or not.

    FOLDER is what the folder data of a home is. It must be empty, or not there.
    """
    home, settings = options.load()
    folder = folder.expanduser()

    async def export() -> Moved:
        async with aclosing(open_database(settings.storage.url)) as database:
            return await export_database(database, folder)

    try:
        if settings.storage.url:
            _print(trio.run(export))
        else:
            print_text(f"{copy_data(home, folder)} files")
    except (FolderError, StorageError, BackupError) as error:
        return report_failure(str(error))
    except OSError as error:
        return report_failure(f"{error.filename or folder}: {error.strerror or error}")
    return 0


def _print(moved: Moved) -> None:
    """Print the numbers by kind, and what was damaged."""
    width = max(map(len, moved.counts), default=0)
    for kind, number in moved.counts.items():
        print_text(f"{kind:{width}}  {number}")
    for problem in moved.problems:
        print_error(f"pegasus: {problem}")
    if moved.is_repeat:
        print_text("It was there already.")
