"""Backups: a home as one file that can be made while the agent runs, and a home made of such a file.

    snapshot     files of a home as they were at one moment
    blanking     settings without their secrets
    sealing      encryption with a passphrase
    archive      the file: a tar of a manifest and the files, compressed
    making       a backup, made under another name until it is whole
    exporting    a copy of the data of a home, to be read
    restoring    a home made of a backup

The commands are in `pegasus.cli.backup`. The daemon makes a backup before it changes the form of data
that an older version has written (`pegasus.host.data_format`). Only then is this package imported.
"""

from pegasus.backup.blanking import without_secrets
from pegasus.backup.exporting import copy_data
from pegasus.backup.making import make_backup
from pegasus.backup.restoring import SPARE, restore_backup
from pegasus.backup.sealing import is_sealed, read_passphrase
from pegasus.backup.snapshot import BackupError, FoundFile, Snapshot, with_snapshot

__all__ = [
    "SPARE",
    "BackupError",
    "FoundFile",
    "Snapshot",
    "copy_data",
    "is_sealed",
    "make_backup",
    "read_passphrase",
    "restore_backup",
    "with_snapshot",
    "without_secrets",
]
