"""A home with some of everything, and backups that are written by hand."""

from __future__ import annotations

import functools
import hashlib
import io
import sys
import tarfile
from pathlib import Path

import attrs
import pytest

from pegasus.backup import make_backup, restore_backup, sealing
from pegasus.host import FORMAT, Home
from pegasus.wire import encode_json

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

AT = 1_772_000_000_000


@pytest.fixture(scope="session", autouse=True)
def keys_made_once():
    """To make a key from a passphrase takes half a second by intent, and gives the same for the same salt."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "_cipher", functools.cache(sealing._cipher))
        yield


@pytest.fixture
def home(tmp_path):
    return furnished(tmp_path / "home")


def furnished(folder: Path) -> Home:
    home = Home(folder)
    home.prepare(everything=True)
    write(home, "data/inbox/inbox.jsonl", b'{"type":"message"}\n')
    write(home, "data/main/current.jsonl", '{"role":"user","content":"Grüße"}\n'.encode())
    write(home, "data/memory/.index.sqlite", b"an index")
    write(home, "workspace/notes.txt", b"tea")
    write(home, "workspace/run.sh", b"#!/bin/sh\n").chmod(0o755)
    write(home, "token", b"the-token-of-the-owner\n")
    write(home, "push.key", b"-----BEGIN PRIVATE KEY-----\n")
    write(home, "mcp/server.json", b'{"access_token":"abc"}')
    write(home, "data/a2a/push.json", b'{"targets":[{"credentials":"abc"}]}')
    write(home, "logs/pegasus.log", b"a line\n")
    write(home, "pegasus.toml", b'[log]\nlevel = "info"\n')
    return home


def write(home: Home, path: str, content: bytes) -> Path:
    place = home.path / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return place


def back_up(home: Home, target: Path, passphrase: str | None = None):
    return make_backup(home, target, passphrase=passphrase, secrets=passphrase is not None, clock=lambda: AT)


def restore(source: Path, folder: Path, passphrase: str | None = None):
    return restore_backup(source, Home(folder), passphrase=passphrase)


def tree(folder: Path) -> dict[str, bytes]:
    """Content of every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@attrs.define
class Forgery:
    """A backup that is written by hand, member by member."""

    path: Path
    manifest: dict = attrs.field(
        factory=lambda: {"backup": 1, "version": "0.1.0", "format": FORMAT, "createdAt": AT, "secrets": False}
    )
    files: list = attrs.field(factory=list)
    members: list = attrs.field(factory=list)

    def file(self, path: str, content: bytes = b"x", **more) -> Forgery:
        """Announce a file and add it."""
        entry = {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "mtime": 5}
        self.files.append(entry | more)
        return self.member(path, content)

    def member(self, name: str, content: bytes = b"", **attributes) -> Forgery:
        """Add a member without announcing it."""
        info = tarfile.TarInfo(name)
        info.size = len(content)
        for key, value in attributes.items():
            setattr(info, key, value)
        self.members.append((info, content))
        return self

    def write(self) -> Path:
        text = encode_json({"files": self.files, **self.manifest}).encode()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            head = tarfile.TarInfo("MANIFEST.json")
            head.size = len(text)
            tar.addfile(head, io.BytesIO(text))
            for info, content in self.members:
                tar.addfile(info, io.BytesIO(content))
        self.path.write_bytes(zstd.compress(buffer.getvalue()))
        return self.path


@pytest.fixture
def forgery(tmp_path):
    return Forgery(tmp_path / "forged.tar.zst")
