"""Rows by key: read once, never written unread, set aside when damaged, one change after the other."""

import ast
import json
from contextlib import suppress
from pathlib import Path

import pytest
import trio

import pegasus
from pegasus.storage import (
    Changed,
    KeyedStore,
    LineStore,
    PutRows,
    ReadFile,
    ReadRows,
    SetAside,
    StorageError,
    StoredRows,
)
from pegasus.storage.row_files import LINE_FILES, ROW_FILES, Array, Lists, Object
from pegasus.testing.memory_disk import MemoryDisk

from .conftest import run_journal


class SlowJournal:
    """Has files, and needs a second for each request. Fails those in `refuses`."""

    def __init__(self, **files):
        self.files = {f"{name}.json": content for name, content in files.items()}
        self.refuses = set()
        self.reads = self.version = 0

    async def ask(self, kind, *args):
        if kind in self.refuses:
            await trio.sleep(1)
            raise StorageError("I/O error")
        if kind is PutRows:
            # A request that was taken is carried out, also when nobody waits for the answer any more.
            collection, _, self.put, self.deleted, content, version = args
            if version != self.version:
                raise Changed(collection)
            self.files[f"{collection}.json"] = content()
            self.version += 1
            await trio.sleep(1)
            return self.version
        await trio.sleep(1)
        if kind is SetAside:
            self.files[copy := f"{args[0]}.bad-1"] = args[1]
            return copy
        assert kind is ReadRows
        self.reads += 1
        return StoredRows(self.files.get(f"{args[0]}.json", b""), self.version)

    def words(self):
        return json.loads(self.files["words.json"])["words"]


@pytest.fixture(autouse=True)
def words_collection(monkeypatch):
    monkeypatch.setitem(ROW_FILES, "words", ("words.json", Lists(("words",))))


def read_word(_, value):
    if not isinstance(value, str):
        raise ValueError(f"found {value!r}")
    return value, value


class Words:
    """A list of words in a file. One that is no text is a problem."""

    def __init__(self, journal):
        self.store = KeyedStore("words", read_word)
        self.store.use(journal)

    @property
    def words(self):
        return list(self.store.rows)

    async def add(self, word):
        async with self.store.change():
            await self.store.save({word: word})


async def test_a_file_is_read_once_and_changes_follow_one_another(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a"]}')
    book = Words(journal)
    async with trio.open_nursery() as nursery:
        for word in "bcd":
            nursery.start_soon(book.add, word)
    assert journal.reads == 1
    assert journal.words()[0] == "a"
    assert sorted(journal.words()) == sorted(book.words) == ["a", "b", "c", "d"]


async def test_a_file_that_cannot_be_read_is_not_written_and_is_read_again(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a"]}')
    journal.refuses = {ReadRows}
    book = Words(journal)
    with pytest.raises(StorageError):
        await book.add("b")
    assert not book.store.is_read
    assert journal.words() == ["a"]

    journal.refuses = set()
    await book.add("b")
    assert book.store.is_read
    assert journal.words() == ["a", "b"]


async def test_a_damaged_file_is_set_aside_and_what_was_understood_stays(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a", 1]}')
    book = Words(journal)
    await book.store.ensure_read()
    assert journal.files["words.json.bad-1"] == b'{"words": ["a", 1]}'
    assert journal.words() == book.words == ["a"]


@pytest.mark.parametrize("refused", [SetAside, PutRows])
async def test_a_damaged_file_that_cannot_be_set_aside_is_not_changed(autojump_clock, refused):
    journal = SlowJournal(words=b'{"words": ["a", 1]}')
    journal.refuses = {refused}
    book = Words(journal)
    with pytest.raises(StorageError):
        await book.add("b")
    assert journal.files["words.json"] == b'{"words": ["a", 1]}'

    journal.refuses = set()
    await book.add("b")
    assert journal.files["words.json.bad-1"] == b'{"words": ["a", 1]}'
    assert journal.words() == ["a", "b"]


async def test_a_change_that_is_refused_leaves_the_file_as_it_was(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a"]}')
    book = Words(journal)
    await book.store.ensure_read()
    journal.refuses = {PutRows}
    with pytest.raises(StorageError):
        await book.add("b")
    assert journal.words() == book.words == ["a"]

    journal.refuses = set()
    await book.add("c")
    assert journal.words() == book.words == ["a", "c"]


@pytest.mark.parametrize("refused", [SetAside, PutRows])
async def test_what_was_understood_of_a_damaged_file_counts_before_it_is_set_aside(autojump_clock, refused):
    journal = SlowJournal(words=b'{"words": ["a", 1]}')
    journal.refuses = {refused}
    book = Words(journal)
    await book.store.ensure_read()
    assert book.store.is_read
    assert book.words == ["a"]


async def test_a_damaged_file_has_one_copy_however_often_it_could_not_be_replaced(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a", 1]}')
    journal.refuses = {PutRows}
    book = Words(journal)
    for _ in range(3):
        with pytest.raises(StorageError):
            await book.add("b")
    assert sorted(journal.files) == ["words.json", "words.json.bad-1"]
    journal.refuses = set()
    await book.add("b")
    assert journal.words() == ["a", "b"]
    assert sorted(journal.files) == ["words.json", "words.json.bad-1"]


async def test_after_a_change_that_was_cancelled_the_next_one_goes_by_what_is_on_disk(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a"]}')
    book = Words(journal)
    await book.store.ensure_read()
    with trio.move_on_after(0.5):
        await book.add("b")
    assert (book.words, journal.words()) == (["a"], ["a", "b"])
    assert not book.store.is_read
    await book.add("c")
    assert book.words == journal.words() == ["a", "b", "c"]


async def test_while_a_change_is_written_the_file_counts_as_read(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a"]}')
    book = Words(journal)
    await book.store.ensure_read()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(book.add, "b")
        await trio.sleep(0.5)
        assert book.store.is_read
    assert journal.reads == 1


async def test_rows_are_put_and_deleted_together(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a", "b", "c"]}')
    book = Words(journal)
    async with book.store.change():
        await book.store.save({"d": "d", "b": "b"}, delete=["a", "no such word"])
    assert book.words == journal.words() == ["b", "c", "d"]
    assert (journal.put, journal.deleted) == ({"d": '"d"', "b": '"b"'}, {"a", "no such word"})
    async with book.store.change():
        await book.store.save({"b": "b"}, delete=["b"])
    assert book.words == journal.words() == ["c", "d", "b"]


async def test_a_change_that_was_decided_by_older_rows_fails_and_the_next_one_reads_them(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a"]}')
    book, other = Words(journal), Words(journal)
    await book.store.ensure_read()
    await other.add("b")
    with pytest.raises(StorageError, match="somebody else has changed it"):
        await book.add("c")
    assert (book.words, journal.words()) == (["a"], ["a", "b"])
    await book.add("c")
    assert book.words == journal.words() == ["a", "b", "c"]


async def test_of_two_rows_with_one_key_the_later_counts_and_the_file_is_kept(autojump_clock, monkeypatch):
    monkeypatch.setitem(ROW_FILES, "words", ("words.json", Object()))
    journal = SlowJournal(words=b'{"A": 1, "b": 2, "a": 3}')
    store = KeyedStore("words", lambda key, value: (key.lower(), value))
    await store.open(journal)
    assert list(store.rows.items()) == [("a", 3), ("b", 2)]
    assert json.loads(journal.files["words.json"]) == {"a": 3, "b": 2}
    assert journal.files["words.json.bad-1"] == b'{"A": 1, "b": 2, "a": 3}'


async def test_before_use_rows_are_in_memory_only(autojump_clock):
    book = Words(None)
    await book.add("a")
    assert book.words == ["a"]


@pytest.mark.parametrize(
    ("form", "entries", "content"),
    [
        (Lists(("words",)), [("words", 1)], b'{\n  "words": [\n    1\n  ]\n}\n'),
        (
            Lists(("a", "b")),
            [("b/x", 1), ("a/y", 2), ("b/z", 3)],
            b'{\n  "a": [\n    2\n  ],\n  "b": [\n    1,\n    3\n  ]\n}\n',
        ),
        (Array(), [("j-1", {"id": "j-1"}), ("j-2", {})], b'[{"id":"j-1"},\n {}]\n'),
        (Array(), [], b"[]\n"),
        (Object(), [("a", 1), ("b", "x")], b'{"a":1,"b":"x"}\n'),
        (Object(is_long=True), [("a", [])], b'{\n  "a": []\n}\n'),
        (Object(is_long=True), [("a", [1]), ("b", {"c": {}})], None),
        (Object(is_long=True), [], None),
        (Object(), [("a", {"x": ["\ud800"]})], b'{"a":{"x":["\\ud800"]}}\n'),
    ],
)
def test_a_form_reads_what_it_has_written(form, entries, content):
    content = content or f"{json.dumps(dict(entries), indent=2)}\n".encode()
    assert form.content((key, form.text(value)) for key, value in entries) == content
    found, problems = form.decode(content)
    assert not problems
    assert sorted(str(value) for _, value in found) == sorted(str(value) for _, value in entries)


@pytest.mark.parametrize("form", [Lists(("words",)), Array(), Object()])
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "Expecting"),
        (b"7", "(not a|something)"),
        (b"\xff", "decode"),
        (b"null", "(not a|something)"),
        (b"[" * 9999, "deep"),
    ],
)
def test_a_form_refuses_what_it_cannot_have_written(form, content, problem):
    with pytest.raises(ValueError, match=problem):
        form.decode(content)


class Tally:
    """The lines of a collection, as their owner has them."""

    def __init__(self):
        self.found = []

    def apply(self, record):
        self.found.append(record["n"])


async def tally(disk):
    """Read the lines, and append one."""
    found = Tally()
    async with run_journal(disk) as journal:
        store = LineStore("usage", journal.ref, "2026-02")
        await store.read(found.apply)
        await store.append({"n": 9})
    return found.found


LINES = "usage/2026-02.jsonl"


async def test_a_line_that_was_decided_by_older_lines_is_not_appended(disk):
    async with run_journal(disk) as journal:
        first, second = (LineStore("approvals", journal.ref) for _ in range(2))
        found = Tally()
        await first.append({"n": 1}, {"n": 2}, after=first.length)
        with pytest.raises(Changed):
            await second.append({"n": 3}, after=second.length)
        await second.read(found.apply)
        await second.append({"n": 3}, after=second.length)
        assert found.found == [1, 2]
        with pytest.raises(Changed):
            await first.append({"n": 4}, after=first.length)
    assert disk.content("approvals.jsonl") == b'{"n":1}\n{"n":2}\n{"n":3}\n'


async def test_damaged_lines_hide_nothing_and_nothing_is_appended_behind_a_torn_one():
    disk = MemoryDisk()
    disk.put(LINES, b'{"n":1}\nnonsense\n{"m":2}\n{"n":3}\n{"n"')
    assert await tally(disk) == [1, 3]
    assert disk.content(LINES) == b'{"n":1}\n{"n":3}\n{"n":9}\n'
    assert disk.content(f"{LINES}.bad-1") == b'nonsense\n{"m":2}\n{"n"\n'
    assert await tally(disk) == [1, 3, 9]
    assert f"{LINES}.bad-2" not in disk.paths()


async def test_damaged_lines_survive_a_crash_at_each_operation_and_have_one_copy():
    """The power fails after each number of operations of the repair. Nothing good is lost, and the damage has one copy."""
    for operation in range(1, 40):
        disk = MemoryDisk()
        disk.put(LINES, b'{"n":1}\nnonsense\n{"n":3}\n{"n"')
        disk.lose_power(operation)
        with suppress(Exception):
            await tally(disk)
        after = disk.survivor()
        found = await tally(after)
        assert [n for n in found if n != 9] == [1, 3]
        assert after.content(f"{LINES}.bad-1") == b'nonsense\n{"n"\n'
        assert f"{LINES}.bad-2" not in after.paths()


async def test_while_damage_cannot_be_set_aside_nothing_is_appended():
    class Full(SlowJournal):
        async def ask(self, kind, *args):
            if kind is SetAside:
                raise StorageError("no space left")
            assert kind is ReadFile
            return b'{"n":1}\n{"n"'

    found, store = Tally(), LineStore("usage", Full(), "2026-02")
    await store.read(found.apply)
    assert found.found == [1]
    for change in (store.append({"n": 2}), store.rewrite([{"n": 2}])):
        with pytest.raises(StorageError):
            await change


async def test_a_power_failure_leaves_the_rows_before_a_change_or_behind_it():
    """At each operation of a change to a damaged file. The copy is whole, and there is one."""
    damaged = b'{"words": ["a", 1, "b"]}'
    for operation in range(1, 40):
        disk, is_answered = MemoryDisk(), False
        disk.put("words.json", damaged)
        disk.lose_power(operation)
        with suppress(Exception):
            async with run_journal(disk) as journal:
                book = Words(journal.ref)
                async with book.store.change():
                    await book.store.save({"c": "c"}, delete=["a"])
                is_answered = True
        left = disk.survivor()
        async with run_journal(left) as journal:
            book = Words(journal.ref)
            await book.store.ensure_read()
        assert book.words in ((["b", "c"],) if is_answered else (["a", "b"], ["b", "c"]))
        assert left.content("words.json.bad-1") == damaged
        assert "words.json.bad-2" not in left.paths()
    assert is_answered, "the last power failure came behind the change"


def test_nobody_but_storage_names_such_a_file():
    """Owners name a collection, so that another engine can keep it elsewhere. Texts for people and docstrings do not count."""
    folder = Path(pegasus.__file__).parent
    paths = {path.partition("{")[0] for path, _ in ROW_FILES.values()} | {
        path.partition("{")[0] for path in LINE_FILES.values()
    }
    found = []
    for file in folder.rglob("*.py"):
        if {folder / "storage", folder / "importing"} & {*file.parents}:  # homes of other programs have such names, too
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Constant(str(text)) if text in paths and "." in text:
                    found.append(f"{file}:{node.lineno}: {text}")
    assert found == []
