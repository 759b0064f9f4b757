"""`BridgeState`: the file in which a messenger remembers how far it has come."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from pegasus.wire import decode_json, encode_json, from_wire, to_wire


@attrs.define
class BridgeState:
    """Everything that a bridge must know again after a crash. Each change is on disk when the method returns.

    A file that is damaged is an error and not an empty state: a bridge that forgot its place would repeat or lose messages.
    """

    cursor: str = ""
    """Place in the stream of the service, as `Incoming.cursor` gave it; "" before the first message."""
    seqs: dict[str, int] = attrs.field(factory=dict)
    """By channelId, the last reply that was handled."""
    parts: dict[str, int] = attrs.field(factory=dict)
    """By channelId, how many parts of the reply after it the service has taken."""
    _path: Path = attrs.field(default=Path(), repr=False)

    @classmethod
    def load(cls, path: Path) -> BridgeState:
        """Return what the file has; a new state if there is none. Raises ValueError for a damaged one."""
        try:
            fields = decode_json(path.read_bytes())
        except FileNotFoundError:
            fields = {}
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}); remove it to begin anew") from None
        content = from_wire(fields, _StateFile)
        return cls(content.cursor, dict(content.seqs), dict(content.parts), path)

    def move(self, cursor: str) -> None:
        """Note the place in the service's stream."""
        if cursor != self.cursor:
            self.cursor = cursor
            self._write()

    def note_part(self, channel_id: str, parts: int) -> None:
        """Note how many parts of the reply in work are sent."""
        self.parts[channel_id] = parts
        self._write()

    def note_reply(self, channel_id: str, seq: int) -> None:
        """Note that a reply is handled."""
        self.seqs[channel_id] = seq
        self.parts.pop(channel_id, None)
        self._write()

    def _write(self) -> None:
        """Replace the file, so that it holds the old or the new state, whatever happens."""
        new = self._path.with_name(f"{self._path.name}.new")
        with new.open("wb") as file:
            file.write(encode_json(to_wire(_StateFile(self.cursor, self.seqs, self.parts))).encode())
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@attrs.frozen
class _StateFile:
    """Content of the file."""

    cursor: str = ""
    seqs: dict[str, int] = attrs.field(factory=dict)
    parts: dict[str, int] = attrs.field(factory=dict)
