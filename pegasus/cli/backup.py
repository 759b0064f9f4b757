"""`pegasus backup`, `move` and `restore`: a home as one file, and back."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pegasus.backup import BackupError, is_sealed, make_backup, read_passphrase, restore_backup
from pegasus.cli.commands import Options, pegasus, program_name
from pegasus.cli.control import current_data, is_terminal, print_text, report_failure
from pegasus.cli.other_names import say_instead
from pegasus.formatting import format_time, plural
from pegasus.host import Home, HomeError, print_error, wall_clock

_FILE = click.Argument(["file"], type=click.Path(path_type=Path))
_PASSPHRASE = click.Option(
    ["--passphrase-file"],
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Encrypt with the passphrase on its first line, secrets included.",
)


@pegasus.declare("backup", _FILE, _PASSPHRASE, options_only=True)
def run_backup(options: Options, *, file: Path, passphrase_file: Path | None = None) -> int:
    """Write a backup of the home to FILE, while the agent runs or not.

    Without a passphrase keys and tokens are left out.
    """
    if instead := say_instead(["backup", str(file)]):
        raise click.UsageError(instead)
    return _carry_out(options, file, passphrase_file, asks=False)


@pegasus.declare("move", _FILE, _PASSPHRASE, options_only=True)
def run_move(options: Options, *, file: Path, passphrase_file: Path | None = None) -> int:
    """Write an encrypted backup with all secrets to FILE, for another machine.

    Stop the agent here before it is started there: both would read the same messages.
    """
    if passphrase_file is None and not is_terminal(sys.stdin):
        raise click.UsageError("found no passphrase; give --passphrase-file FILE, since all secrets go with it")
    return _carry_out(options, file, passphrase_file, asks=True)


def _carry_out(options: Options, file: Path, passphrase_file: Path | None, *, asks: bool) -> int:
    """Make a backup, and say what is in it. The data are those of a database, where settings without mistakes name one."""
    home = options.home()
    try:
        passphrase = read_passphrase(passphrase_file) if passphrase_file is not None else None
        if passphrase is None and asks:
            passphrase = click.prompt("Passphrase", hide_input=True, confirmation_prompt=True)
        with current_data(options, home):
            made = make_backup(
                home, file.expanduser(), passphrase=passphrase, secrets=passphrase is not None, clock=wall_clock
            )
    except (BackupError, HomeError) as error:
        return report_failure(str(error))
    except OSError as error:
        return report_failure(f"no backup was made: {error.filename or file}: {error.strerror or error}")
    for line in made.left_out:
        print_error(f"pegasus: not in the backup: {line}")
    kept = "encrypted, with all secrets" if passphrase is not None else "without keys and tokens"
    print_text(f"{file}: {plural(made.files, 'file')}, {made.size / 1e6:.1f} MB, {kept}")
    if made.emptied:
        print_text(f"left out of the settings: {', '.join(made.emptied)}")
    return 0


@pegasus.declare(
    "restore",
    _FILE,
    click.Option(["--into"], metavar="DIR", help="Make a copy there, instead of the home."),
    click.Option(
        ["--passphrase-file"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Passphrase of an encrypted backup.",
    ),
    options_only=True,
)
def run_restore(options: Options, *, file: Path, into: str | None = None, passphrase_file: Path | None = None) -> int:
    """Make a home of the backup FILE. The home must be empty."""
    home = options.home() if into is None else Home(Path(into).expanduser().absolute())
    file = file.expanduser()
    try:
        passphrase = read_passphrase(passphrase_file) if passphrase_file is not None else None
        if passphrase is None and is_terminal(sys.stdin) and is_sealed(file):
            passphrase = click.prompt("Passphrase", hide_input=True)
        restored = restore_backup(file, home, passphrase=passphrase)
    except (BackupError, HomeError) as error:
        return report_failure(str(error))
    except OSError as error:
        return report_failure(f"nothing was restored: {error.filename or home}: {error.strerror or error}")
    at = format_time(restored.created_at, "%Y-%m-%d %H:%M:%S")
    print_text(f"{home}: {plural(restored.files, 'file')} of {at} UTC")
    for path in restored.damaged:
        print_error(f"pegasus: {path}: was damaged when the backup was made")
    if not restored.secrets:
        print_text("Keys and tokens were not in the backup; the next start makes a new token for clients.")
    if restored.emptied:
        print_text(f"Set again with {program_name()} config set: {', '.join(restored.emptied)}")
    if restored.has_database:
        print_text(
            f"It was in a database, and is in files now: {program_name()} migrate --to ADDRESS puts it into an empty one."
        )
    return 0
