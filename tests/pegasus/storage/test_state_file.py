"""A small file that is held in memory: read once, never written unread, set aside when damaged, one change after the other."""

import itertools
import json

import pytest
import trio

from pegasus.storage import ReadFile, ReplaceFile, StateFile, StorageError
from pegasus.wire import decode_object


class SlowJournal:
    """Has files, and needs a second for each request. Fails those in `refuses`."""

    def __init__(self, **files):
        self.files = {f"{name}.json": content for name, content in files.items()}
        self.refuses = set()
        self.reads = 0

    async def ask(self, kind, *args):
        if kind in self.refuses or (kind, args[0]) in self.refuses:
            await trio.sleep(1)
            raise StorageError("I/O error")
        if kind is ReplaceFile:
            # A request that was taken is carried out, also when nobody waits for the answer any more.
            self.files[args[0]] = args[1]
            await trio.sleep(1)
            return None
        await trio.sleep(1)
        assert kind is ReadFile
        self.reads += 1
        return self.files.get(args[0], b"")

    def words(self):
        return json.loads(self.files["words.json"])["words"]


class Words:
    """A list of words in a file. One that is no text is a problem."""

    def __init__(self, journal, clock=lambda: 7):
        self.words = []
        self.file = StateFile("words.json", self._take_over, lambda: {"words": self.words})
        self.file.use(journal, clock)

    def _take_over(self, content):
        try:
            words = decode_object(content)["words"] if content else []
        except ValueError as error:
            words, problem = [], [str(error)]
        else:
            problem = [f"found {word!r}" for word in words if not isinstance(word, str)]
        self.words = [word for word in words if isinstance(word, str)]
        return problem

    async def add(self, word):
        async with self.file.change():
            await self.file.write({"words": [*self.words, word]})
            self.words.append(word)


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
    journal.refuses = {ReadFile}
    book = Words(journal)
    with pytest.raises(StorageError):
        await book.add("b")
    assert not book.file.is_read
    assert journal.words() == ["a"]

    journal.refuses = set()
    await book.add("b")
    assert book.file.is_read
    assert journal.words() == ["a", "b"]


async def test_a_damaged_file_is_set_aside_and_what_was_understood_stays(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a", 1]}')
    book = Words(journal)
    await book.file.ensure_read()
    assert journal.files["words.json.bad-7"] == b'{"words": ["a", 1]}'
    assert journal.words() == book.words == ["a"]


@pytest.mark.parametrize("refused", ["words.json.bad-7", "words.json"])
async def test_a_damaged_file_that_cannot_be_set_aside_is_not_changed(autojump_clock, refused):
    journal = SlowJournal(words=b'{"words": ["a", 1]}')
    journal.refuses = {(ReplaceFile, refused)}
    book = Words(journal)
    with pytest.raises(StorageError):
        await book.add("b")
    assert journal.files["words.json"] == b'{"words": ["a", 1]}'

    journal.refuses = set()
    await book.add("b")
    assert journal.files["words.json.bad-7"] == b'{"words": ["a", 1]}'
    assert journal.words() == ["a", "b"]


async def test_a_change_that_is_refused_leaves_the_file_as_it_was(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a"]}')
    book = Words(journal)
    await book.file.ensure_read()
    journal.refuses = {ReplaceFile}
    with pytest.raises(StorageError):
        await book.add("b")
    assert journal.words() == book.words == ["a"]

    journal.refuses = set()
    await book.add("c")
    assert journal.words() == book.words == ["a", "c"]


@pytest.mark.parametrize("refused", ["words.json.bad-100", "words.json"])
async def test_what_was_understood_of_a_damaged_file_counts_before_it_is_set_aside(autojump_clock, refused):
    journal = SlowJournal(words=b'{"words": ["a", 1]}')
    journal.refuses = {(ReplaceFile, refused)}
    book = Words(journal, itertools.count(100).__next__)
    await book.file.ensure_read()
    assert book.file.is_read
    assert book.words == ["a"]


async def test_a_damaged_file_has_one_copy_however_often_it_could_not_be_replaced(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a", 1]}')
    journal.refuses = {(ReplaceFile, "words.json")}
    book = Words(journal, itertools.count(100).__next__)
    for _ in range(3):
        with pytest.raises(StorageError):
            await book.add("b")
    assert sorted(journal.files) == ["words.json", "words.json.bad-100"]
    journal.refuses = set()
    await book.add("b")
    assert journal.words() == ["a", "b"]
    assert sorted(journal.files) == ["words.json", "words.json.bad-100"]


async def test_after_a_change_that_was_cancelled_the_next_one_goes_by_what_is_on_disk(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a"]}')
    book = Words(journal)
    await book.file.ensure_read()
    with trio.move_on_after(0.5):
        await book.add("b")
    assert (book.words, journal.words()) == (["a"], ["a", "b"])
    assert not book.file.is_read
    await book.add("c")
    assert book.words == journal.words() == ["a", "b", "c"]


async def test_while_a_change_is_written_the_file_counts_as_read(autojump_clock):
    journal = SlowJournal(words=b'{"words": ["a"]}')
    book = Words(journal)
    await book.file.ensure_read()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(book.add, "b")
        await trio.sleep(0.5)
        assert book.file.is_read
    assert journal.reads == 1
