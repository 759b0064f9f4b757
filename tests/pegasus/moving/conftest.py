"""A home with messages that are done and not, replies that arrived and not, and files of every form."""

from __future__ import annotations

import os

from pegasus.messages import INTERNAL_ID_PREFIX, ChannelInfo, InboundMessage
from pegasus.moving import DataFolder, FolderWriter
from pegasus.storage import ROW_FILES, Acknowledge, Commit, CompleteItem, FileDisk, KnownAddresses, Post
from pegasus.storage.inbox_messages import Accept
from tests.pegasus.storage.conftest import AT, CLI, WEB, run_journal
from tests.pegasus.storage.database.conftest import postgres_server, postgres_url, server

__all__ = ["postgres_server", "postgres_url", "server"]

GUEST = ChannelInfo("telegram", "42", "u-7", "thread")


def folder(path):
    return DataFolder(path, "global")


def write(path, contents):
    path.mkdir()
    writer = FolderWriter(path)
    for content in contents:
        writer.add(content)
    writer.finish()
    return path


def tree(path):
    """Content and time (ms) of every file."""
    found = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns // 10**6) for file in found}


def of(kind, contents):
    return [content for content in contents if isinstance(content, kind)]


async def furnish(data):
    """Write what a journal writes: messages that are done and not, replies that arrived and not, and files of every form."""
    data.mkdir()
    async with run_journal(FileDisk(data), now=lambda: AT) as journal:
        for n, channel in enumerate([CLI, WEB, GUEST, CLI], start=1):
            await journal.ask(
                Accept, InboundMessage(f"Grüße\u2028{n}\0", channel, f"m-{n}"), "main", int(channel == GUEST)
            )
        report = InboundMessage("Done", CLI, f"{INTERNAL_ID_PREFIX}task/1")
        await journal.ask(Accept, report, "main", 2, True)
        await journal.ask(Accept, InboundMessage("/stop", WEB, "m-9"), "control")
        for n in (1, 3):
            await journal.tell(CompleteItem(n))
        for key, channel in (("a", CLI), ("b", CLI), ("c", GUEST), ("d", WEB)):
            lines = (("main/current.jsonl", f'{{"key":"{key}"}}\n'.encode()),)
            await journal.ask(Commit, lines, (Post(key, f"answer {key}", channel.channel_id, channel, to=channel),))
        await journal.tell(Acknowledge(CLI.address, 1))
        await journal.tell(Acknowledge(GUEST.address, 1))
        await journal.ask(KnownAddresses)  # a note that waits in the mailbox when the journal stops is lost
    (data / "VERSION").write_bytes(b"2\n")
    for path, content in {
        "sessions/web%3Ac1.jsonl": b'{"role":"user"}\r\n\n{"not json\n',
        "memory/facts/user.md": b"- Likes: tea\n\xff",
        "memory/.log/changes.jsonl": b"",
        "media/0a.png": bytes(range(256)),
        "tokens.json": ROW_FILES["tokens"][1].content([("tokens/a", ROW_FILES["tokens"][1].text({"name": "a"}))]),
        "guests/telegram_42/sent.json": b'{\n  "days": {\n    "20000": 5\n  },\n  "last": [\n    "x"\n  ]\n}\n',
        "models/chats.json": b'{"telegram:42":"anthropic/claude","cli:main":"x"}\n',
        "cron/jobs.json": b'[{"id":"j-2","x":1.5},\n {"id":"j-1"}]\n',
    }.items():
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        (data / path).write_bytes(content)
        os.utime(data / path, (1_700_000_000, 1_700_000_000.25))
