"""Sessions of a database as files in a home: a moment late, and written only where something has changed."""

from __future__ import annotations

import os

import pytest

from pegasus.storage.database import mirror as mirror_module
from pegasus.storage.database.mirror import SessionMirror
from pegasus.storage.database.tables import DurableStep
from tests.pegasus.moving.conftest import tree

CHAT = "sessions/web%3Ac1.jsonl"


class Mirrored:
    """A database, and the mirror of a node."""

    def __init__(self, link, folder):
        self.link, self.folder, self.steps = link, folder, 0
        self.start()

    def start(self):
        self.look = SessionMirror(self.link, self.folder).look

    async def append(self, *lines, path=CHAT):
        self.steps += 1
        await self.link.commit(DurableStep(f"step-{self.steps}", 0, lines=((path, lines),)))

    def text(self, path=CHAT):
        return (self.folder / path).read_text()


@pytest.fixture
async def mirrored(server, tmp_path):
    return Mirrored(await server.link("a"), tmp_path / "mirror")


async def test_what_is_new_is_appended_and_nothing_else_is_written(mirrored):
    await mirrored.append('{"a":"Grüße"}', path="main/current.jsonl")
    await mirrored.append('{"n":1}', '{"n":2}')
    await mirrored.look()
    inode = os.stat(mirrored.folder / CHAT).st_ino
    before = tree(mirrored.folder)
    os.chmod(mirrored.folder / "main/current.jsonl", 0o400)
    await mirrored.append('{"n":3}')
    await mirrored.look()
    assert mirrored.text() == '{"n":1}\n{"n":2}\n{"n":3}\n'
    assert os.stat(mirrored.folder / CHAT).st_ino == inode
    assert tree(mirrored.folder)["main/current.jsonl"] == before["main/current.jsonl"]


@pytest.mark.parametrize("small", [0, mirror_module.SMALL])
async def test_a_session_that_was_archived_is_written_anew_with_its_archive(mirrored, monkeypatch, small):
    monkeypatch.setattr(mirror_module, "SMALL", small)
    await mirrored.append('{"n":1}', '{"n":2}')
    await mirrored.look()
    archive = CHAT.replace(".jsonl", ".2026-02-25-143000.jsonl")
    await mirrored.link.archive("step-a", CHAT, archive.rpartition("/")[2], b'{"begin":1}\n', 9, None)
    await mirrored.append('{"n":3}', '{"n":4}')
    await mirrored.look()
    assert mirrored.text() == '{"begin":1}\n{"n":3}\n{"n":4}\n'
    assert mirrored.text(archive) == '{"n":1}\n{"n":2}\n'


async def test_after_a_start_only_what_differs_is_written(mirrored):
    await mirrored.append('{"n":1}')
    await mirrored.append('{"m":1}', path="sessions/other.jsonl")
    await mirrored.look()
    (mirrored.folder / "sessions/other.jsonl").write_text('{"m"')  # a crash has left a half
    inode = os.stat(mirrored.folder / CHAT)
    mirrored.start()
    await mirrored.look()
    assert os.stat(mirrored.folder / CHAT) == inode
    assert mirrored.text("sessions/other.jsonl") == '{"m":1}\n'


async def test_a_session_that_is_removed_goes_from_the_mirror(mirrored):
    await mirrored.append('{"n":1}')
    await mirrored.look()
    await mirrored.link.remove([CHAT])
    await mirrored.look()
    assert tree(mirrored.folder) == {}
