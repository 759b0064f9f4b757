"""Answers of a journal whose files are a dict, for tests of what keeps small state. Faults are up to the test."""

from __future__ import annotations

from pegasus.storage import PutRows, ReadFile, ReadRows, ReplaceFile, SetAside, StoredRows
from pegasus.storage.row_files import rows_path


def answer_from(files, kind, name, *args):
    """Return the answer to a request, and do what it asks for. files: contents by path. name, args: the fields behind the reply."""
    if kind is ReadFile:
        return files.get(name, b"")
    if kind is ReadRows:
        return StoredRows(files.get(rows_path(name, *args), b""), 0)
    if kind is PutRows:
        owner, _, _, content, _ = args
        files[rows_path(name, owner)] = content()
        return 0
    if kind is SetAside:
        files[f"{name}.bad-1"] = args[0]
        return f"{name}.bad-1"
    assert kind is ReplaceFile
    files[name] = args[0]
    return None


def path_of(kind, name, *args):
    """Return the path of the file that a request is about."""
    return rows_path(name, args[0]) if kind in (ReadRows, PutRows) else name
