"""The error of this package."""

from __future__ import annotations


class BackupError(Exception):
    """A backup that cannot be made or used. str() is a sentence for people."""
