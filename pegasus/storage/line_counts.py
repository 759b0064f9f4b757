"""Numbers of lines of files, for commits that say by how many lines they were decided (`Commit.after`).

A number is counted when the first such commit to a file comes, and kept while this process is the only one that appends to it. Lines
that are staged count for the commits behind them in the batch; they are part of the number when the batch is on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pegasus.storage.messages import Changed, Commit

KEPT: Final = 10_000
"""Files whose numbers are kept. A file that is forgotten is counted again, which reads it once."""


class LineCounts:
    r"""The numbers of lines that are known.

    >>> counts.learn("sessions/web%3Ac1.jsonl", 12)
    >>> counts.stage(Commit(reply, (("sessions/web%3Ac1.jsonl", b"{}\n"),), after=12))
    >>> counts.confirm_staged()
    """

    def __init__(self) -> None:
        self._written: dict[str, int] = {}
        """Lines of each file on disk, the file that was counted first at the beginning."""
        self._staged: dict[str, int] = {}
        """Lines of files with those of the batch."""

    def unknown(self, requests: Iterable[object]) -> list[str]:
        """Return the files that must be counted before the commits among these requests can be staged."""
        paths: list[str] = []
        for request in requests:
            if isinstance(request, Commit) and request.after is not None and request.appends:
                path = request.appends[0][0]
                if path not in self._written and path not in paths:
                    paths.append(path)
        return paths

    def learn(self, path: str, lines: int) -> None:
        """Keep the number of a file that was counted."""
        self._written[path] = lines
        if len(self._written) > KEPT:
            del self._written[next(iter(self._written))]

    def stage(self, commit: Commit) -> None:
        """Count the lines of a commit. Raises Changed, after which nothing is counted, if it was decided by another number."""
        if commit.after is not None and commit.appends:
            path = commit.appends[0][0]
            lines = self._staged.get(path, self._written.get(path, -1))
            if lines != commit.after:
                raise Changed(f"{path} has {lines} lines, and not {commit.after} as when this was decided")
        if not self._written:
            return
        for path, data in (*commit.appends, *commit.together):
            if path in self._written:
                self._staged[path] = self._staged.get(path, self._written[path]) + data.count(b"\n")

    def confirm_staged(self) -> None:
        """Note that what is staged is on disk."""
        self._written.update(self._staged)
        self._staged.clear()

    def drop_staged(self) -> None:
        """Forget what is staged."""
        self._staged.clear()

    def forget(self, paths: Sequence[str]) -> None:
        """Forget files that were changed in another way than by appending."""
        for path in paths:
            self._written.pop(path, None)


def repeats(commit: Commit, content: bytes) -> bool:
    """Return whether the lines of a commit stand in its first file where they were to be appended: it was done already."""
    if commit.after is None or not commit.appends:
        return False
    path = commit.appends[0][0]
    lines = b"".join(data for other, data in commit.appends if other == path)
    begin = 0
    for _ in range(commit.after):
        begin = content.find(b"\n", begin) + 1
        if not begin:
            return False
    return bool(lines) and content.startswith(lines, begin)
