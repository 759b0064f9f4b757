"""A folder of data as contents, and back: the same bytes, but for what a rewrite leaves out and damage, which is set aside."""

from __future__ import annotations

import json
import os

import pytest

from pegasus.a2a.push import read_target
from pegasus.access.browser_sessions import _read_code, _read_session
from pegasus.access.pairing import ALPHABET, CODE_LENGTH, _read_entry
from pegasus.access.tokens import _read_token
from pegasus.host import FORMAT
from pegasus.messages import InboundMessage
from pegasus.moving import FolderError, Tally
from pegasus.push.subscriptions import _read_subscription
from pegasus.schedule import read_job
from pegasus.storage import ROW_FILES, FileDisk, row_key
from pegasus.storage.database import InboxItem, KnownAddress, Numbers, PostedReply, ReplyNumbers
from pegasus.storage.inbox_messages import Accept
from pegasus.storage.row_files import Object
from pegasus.web.deliveries import _read_delivery
from tests.pegasus.moving.conftest import GUEST, folder, furnish, of, tree, write
from tests.pegasus.storage.conftest import AT, CLI, WEB, run_journal


async def test_there_and_back_are_the_same_bytes_but_for_rewritten_logs(tmp_path):
    await furnish(tmp_path / "data")
    (tmp_path / "data/memory/.index.sqlite").write_bytes(b"made again")
    (tmp_path / "data/memory/.copy.json").write_bytes(b"{}")
    (tmp_path / "data/undo").mkdir()
    (tmp_path / "data/undo/1").write_bytes(b"of this machine")
    contents = list(folder(tmp_path / "data").contents())
    back = write(tmp_path / "back", contents)
    rewritten = {"inbox/inbox.jsonl", "outbox/outbox.jsonl"}
    rows = {path.format(owner="telegram_42") for path, _ in ROW_FILES.values()}
    before, after = tree(tmp_path / "data"), tree(back)
    assert set(after) == set(before) - {"memory/.index.sqlite", "memory/.copy.json", "undo/1"}
    for path in set(after) - rewritten:
        assert after[path][0] == before[path][0], path
        assert after[path][1] == before[path][1] or path in rows | {"VERSION"}, path
    # A second way there and back changes nothing at all.
    again = write(tmp_path / "again", folder(back).contents())
    assert {path: content for path, (content, _) in tree(again).items()} == {
        path: text for path, (text, _) in after.items()
    }


async def test_the_logs_say_the_same_as_before(tmp_path):
    await furnish(tmp_path / "data")
    contents = list(folder(tmp_path / "data").contents())
    assert of(Numbers, contents) == [Numbers(6)]
    items = of(InboxItem, contents)
    assert [(item.n, item.item.key, item.done_at) for item in items] == [
        (1, "main", AT),
        (2, "main", None),
        (3, "chat/telegram%3A42", AT),
        (4, "main", None),
        (5, "main", None),
        (6, "main", None),
    ]
    assert json.loads(items[0].item.message)["text"] == "Grüße\u20281\0"
    assert [(item.item.lane, item.item.priority, item.item.is_owners) for item in items[2:]] == [
        ("main", 1, False),
        ("main", 0, True),
        ("main", 2, True),
        ("control", 0, True),
    ]
    assert of(ReplyNumbers, contents) == [
        ReplyNumbers(CLI.address, 2, 1),
        ReplyNumbers(GUEST.address, 1, 1),
        ReplyNumbers(WEB.address, 1, 0),
    ]
    assert [(reply.key, reply.channel, reply.seq, reply.at) for reply in of(PostedReply, contents)] == [
        ("a", CLI, 1, AT),
        ("b", CLI, 2, AT),
        ("c", GUEST, 1, AT),
        ("d", WEB, 1, AT),
    ]
    assert KnownAddress(GUEST.address, "telegram:u-7") in contents
    back = write(tmp_path / "back", contents)
    assert (tally(contents), tally(folder(back).contents())) == (tally(contents),) * 2
    async with run_journal(FileDisk(back)) as journal:
        for n, channel in enumerate([CLI, WEB, GUEST, CLI], start=1):
            again = await journal.ask(Accept, InboundMessage("again", channel, f"m-{n}"))
            assert (again.n, again.duplicate) == (n, True)
        assert (await journal.ask(Accept, InboundMessage("new", CLI, "m-7"))).n == 7
        assert (await journal.post("c", GUEST)).seq == 1
        assert (await journal.post("e", CLI)).seq == 3
        assert journal.reports == []


def tally(contents):
    tally = Tally()
    for content in contents:
        if not (hasattr(content, "path") and content.path == "VERSION"):
            tally.add(content)
    return tally.counts


async def test_damaged_lines_are_set_aside_and_told(tmp_path):
    data = tmp_path / "data"
    await furnish(data)
    (data / "sessions/bad.jsonl").write_bytes(b'{"a":1}\n\0\0{"b":2}\n\xff\n{"c":3}\n{"torn')
    (data / "sessions/bad.jsonl.bad-1").write_bytes(b"older")
    with (data / "inbox/inbox.jsonl").open("ab") as log:
        log.write(b'{"type":"future"}\n{"torn')
    (data / "access.json").write_bytes(b'{"people":[{"type":"sms"}]}')
    problems = []
    back = write(tmp_path / "back", folder(data).contents(problems.append))
    assert (back / "sessions/bad.jsonl").read_bytes() == b'{"a":1}\n{"c":3}\n'
    assert (back / "sessions/bad.jsonl.bad-2").read_bytes() == b'\0\0{"b":2}\n\xff\n{"torn\n'
    assert (back / "inbox/inbox.jsonl.bad-1").read_bytes() == b'{"type":"future"}\n{"torn\n'
    assert (back / "access.json.bad-1").read_bytes() == b'{"people":[{"type":"sms"}]}'
    assert [problem.partition(":")[0] for problem in problems] == [
        "inbox/inbox.jsonl",
        "access.json",
        "sessions/bad.jsonl",
    ]


def test_an_archive_that_was_interrupted_is_the_file(tmp_path):
    (tmp_path / "data/main").mkdir(parents=True)
    (tmp_path / "data/main/current.jsonl.next").write_bytes(b'{"new":1}\n')
    (tmp_path / "data/main/other.jsonl").write_bytes(b'{"old":1}\n')
    (tmp_path / "data/main/other.jsonl.next").write_bytes(b'{"new":2}\n')
    back = write(tmp_path / "back", folder(tmp_path / "data").contents())
    assert {path: content for path, (content, _) in tree(back).items()} == {
        "VERSION": f"{FORMAT}\n".encode(),
        "main/current.jsonl": b'{"new":1}\n',
        "main/other.jsonl": b'{"old":1}\n',
    }


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc/passwd"), lambda path: os.mkfifo(path)])
def test_what_is_no_file_is_refused(tmp_path, make):
    make(tmp_path / "thing")
    with pytest.raises(FolderError, match="thing: is no file"):
        list(folder(tmp_path).contents())


PERSON = {"type": "sms", "userId": "{+49}"}
ROWS = {
    "a2a-push": (read_target, "targets", {"taskId": "t/1", "id": "p-1", "url": "https://example.org"}),
    "access": (_read_entry, "people", PERSON),
    "codes": (
        _read_entry,
        "codes",
        PERSON | {"code": ALPHABET[0] * CODE_LENGTH, "made": 1, "channel": {"type": "sms", "channelId": "1"}},
    ),
    "hook-deliveries": (_read_delivery, "deliveries", {"hook": "h", "digest": "0f", "id": "", "at": 1}),
    "jobs": (read_job, "", {"id": "j-1", "prompt": "x", "schedule": {"every": 900.0}, "channel": "cli:main"}),
    "pending-tasks": (lambda _, row: (row["taskId"], row), "", {"taskId": "t-1", "ts": 1}),
    "push-subscriptions": (
        _read_subscription,
        "subscriptions",
        {
            "id": "s-1",
            "endpoint": "x",
            "p256dh": "y",
            "auth": "z",
            "session": "s",
            "about": "x",
            "text": True,
            "since": 1,
        },
    ),
    "tokens": (_read_token, "tokens", {"name": "a", "hash": "0" * 64, "scopes": []}),
    "revoked": (_read_token, "revoked", {"name": "a", "hash": "0" * 64, "scopes": []}),
    "web-codes": (_read_code, "codes", {"hash": "0f", "until": 1}),
    "web-sessions": (_read_session, "sessions", {"hash": "0f", "tokenName": "a", "tokenHash": "1f", "opened": 1}),
}


@pytest.mark.parametrize("which", ROWS)
def test_rows_have_the_keys_that_their_owners_give_them(which):
    read, name, row = ROWS[which]
    collection = {"codes": "access", "revoked": "tokens"}.get(which, which)
    assert row_key(collection, name, row) == read(name, row)[0]


def test_each_list_of_rows_says_what_their_keys_are():
    lists = {
        collection: getattr(form, "names", ("",))
        for collection, (_, form) in ROW_FILES.items()
        if not isinstance(form, Object)
    }
    assert lists.keys() <= ROWS.keys()
    for collection, names in lists.items():
        for name in names:
            with pytest.raises(ValueError, match="missing"):
                row_key(collection, name, {})


def test_a_key_whose_reply_is_gone_is_as_old_as_the_file(tmp_path):
    """A database forgets keys by their age; one without an age would be forgotten at once, and its reply given twice."""
    (tmp_path / "outbox").mkdir()
    log = tmp_path / "outbox/outbox.jsonl"
    log.write_bytes(
        b'{"type":"address","channel":{"type":"cli","channelId":"main"},"seq":1,"acked":1}\n'
        b'{"type":"keys","channels":[{"type":"cli","channelId":"main","userId":"me"}],"replies":[["a",1,0]]}\n'
    )
    os.utime(log, (AT / 1000, AT / 1000))
    [reply] = of(PostedReply, folder(tmp_path).contents())
    assert reply == PostedReply("a", CLI, 1, "", AT)
