"""Search by meaning: what is found that has none of the words, what is sent, what is kept, and what it costs when nothing answers."""

import json
from contextlib import asynccontextmanager

import pytest
import trio

from pegasus.memory import Memory, memory_in
from pegasus.memory import vectors as table
from pegasus.memory.search_index import Index, Passage
from pegasus.memory.vectors import PassageVectors
from pegasus.storage import FileDisk
from tests.embedding_server import SIZE, vector_of
from tests.pegasus.memory.conftest import run

FACTS = """# Me

## Mornings
- A pot of oolong before anything else

## Pets
- Mio, a kitten, grey

## Work
- The invoice goes out on the 1st
"""


class Embedder:
    """A model in the process."""

    def __init__(self):
        self.name, self.size, self.works = "here/small", SIZE, True
        self.asked = []

    async def embed(self, texts, within):
        self.asked.append(list(texts))
        await trio.lowlevel.checkpoint()
        if not self.works:
            return None
        return [() if "REFUSED" in text else vector_of(text, self.size) for text in texts]

    @property
    def sent(self):
        """Texts of passages; queries are short and have no line."""
        return [text for texts in self.asked for text in texts if "- " in text or ":" in text]


@pytest.fixture
def embedder():
    return Embedder()


@asynccontextmanager
async def opened(data, embedder):
    """A memory whose vectors are made beside it. `settle` searches, and waits until they are made."""
    async with run(FileDisk(data)) as journal, trio.open_nursery() as nursery:
        memory = memory_in(data, journal, lambda: 1_772_000_000_000, embedder=embedder)
        nursery.start_soon(memory.keep_vectors)

        async def settle():
            await memory.search("zzz")
            while True:
                before = len(embedder.asked)
                await trio.sleep(0.05)
                if len(embedder.asked) == before:
                    return

        memory.settle = settle
        yield memory
        nursery.cancel_scope.cancel()


async def titles(memory: Memory, query, **given):
    return [hit.title for hit in (await memory.search(query, **given)).hits]


@pytest.mark.parametrize(
    ("query", "title"),
    [("which beverage?", "Mornings"), ("猫", "Pets"), ("das Geld", "Work"), ("一杯茶", "Mornings"), ("Katze", "Pets")],
)
async def test_what_has_none_of_the_words_is_found_in_any_language(tmp_path, put, embedder, query, title):
    put("facts/me.md", FACTS)
    async with opened(tmp_path / "data", embedder) as memory:
        await memory.settle()
        assert (await titles(memory, query))[0] == title


async def test_words_and_meaning_count_alike(tmp_path, put, embedder):
    """What both lists have comes first; what one of them has is not lost."""
    put("facts/a.md", "# A\n\n## Both\n- the harbour of Kiel\n\n## Words\n- Kiel, a city\n\n## Meaning\n- a sail\n")
    async with opened(tmp_path / "data", embedder) as memory:
        await memory.settle()
        found = await titles(memory, "Kiel boat", where="facts")
        assert found[0] == "Both"
        assert set(found[:3]) == {"Both", "Words", "Meaning"}
        assert len(await titles(memory, "Kiel boat", limit=2)) == 2


async def test_without_an_answer_words_are_found_and_the_next_search_makes_up_for_it(tmp_path, put, embedder):
    put("facts/me.md", FACTS)
    embedder.works = False
    async with opened(tmp_path / "data", embedder) as memory:
        await memory.settle()
        assert (await titles(memory, "oolong"))[0] == "Mornings"
        assert await titles(memory, "beverage") == []
        embedder.works = True
        await memory.settle()
        assert (await titles(memory, "beverage"))[0] == "Mornings"


async def test_a_text_is_sent_once_also_over_restarts_and_changes_of_its_file(tmp_path, put, embedder):
    put("facts/me.md", FACTS)
    async with opened(tmp_path / "data", embedder) as memory:
        await memory.settle()
        assert len(embedder.sent) == 3
        put("facts/me.md", FACTS + "\n## Boats\n- A sail is torn\n")
        await trio.sleep(1.1)
        await memory.settle()
        assert len(embedder.sent) == 4
        assert (await titles(memory, "船"))[0] == "Boats"
    async with opened(tmp_path / "data", embedder) as memory:
        await memory.settle()
        assert len(embedder.sent) == 4
        assert (await titles(memory, "船"))[0] == "Boats"


@pytest.mark.parametrize("change", [("name", "here/large"), ("size", 24)])
async def test_another_model_or_another_length_makes_all_anew(tmp_path, put, embedder, change):
    put("facts/me.md", FACTS)
    async with opened(tmp_path / "data", embedder) as memory:
        await memory.settle()
        setattr(embedder, *change)
        assert (await titles(memory, "oolong"))[0] == "Mornings"
        await memory.settle()
        await memory.settle()
        assert len(embedder.sent) == 6
        assert (await titles(memory, "beverage"))[0] == "Mornings"


async def test_what_the_server_does_not_take_is_not_sent_again(tmp_path, put, embedder):
    put("facts/me.md", FACTS + "\n## Odd\n- REFUSED kitten\n")
    async with opened(tmp_path / "data", embedder) as memory:
        for _ in range(3):
            await memory.settle()
        assert len([text for text in embedder.sent if "REFUSED" in text]) == 1
        assert "Odd" in await titles(memory, "REFUSED")
        assert (await titles(memory, "REFUSED kitten"))[0] == "Odd"


async def test_what_is_gone_is_not_found(tmp_path, put, embedder, folder):
    put("facts/me.md", FACTS)
    put("facts/b.md", "# B\n\n## Boats\n- A sail is torn\n")
    async with opened(tmp_path / "data", embedder) as memory:
        await memory.settle()
        (folder / "facts/b.md").unlink()
        await trio.sleep(1.1)
        assert "Boats" not in await titles(memory, "船")


async def test_chats_find_their_own_archives_only_and_notes_of_guests_are_not_sent(tmp_path, put, embedder):
    sessions = tmp_path / "data/sessions"
    sessions.mkdir(parents=True)
    for chat, text in (("web%3Aa", "my kitten is ill"), ("web%3Ab", "the vault opens at nine")):
        line = {"ts": 1, "role": "user", "content": text}
        (sessions / f"{chat}.2026-01-01-000000.jsonl").write_text(json.dumps(line) + "\n")
    async with opened(tmp_path / "data", embedder) as memory:
        guest = memory.guest("telegram:7")
        await guest.append("facts/x.md", "- my password is long")
        for prefix in ("web%3Aa.", "web%3Ab."):
            await memory.search("zzz", prefix=prefix)
        await memory.settle()
        assert [hit.text for hit in (await memory.search("tresor", prefix="web%3Ab.")).hits] == [
            "the vault opens at nine"
        ]
        assert "vault" not in str((await memory.search("tresor", prefix="web%3Aa.")).hits)
        assert (await memory.search("tresor")).hits == ()
        assert not [text for text in embedder.sent if "password" in text]


async def test_only_so_many_are_kept_and_the_others_are_found_by_words(tmp_path, put, embedder, monkeypatch):
    monkeypatch.setattr(table, "MOST_VECTORS", 40)
    entries = [f"## Entry {n}\n- number{n} of the kitten\n" for n in range(100)]
    put("facts/many.md", "# Many\n\n" + "\n".join(entries))
    async with opened(tmp_path / "data", embedder) as memory:
        for _ in range(5):
            await memory.settle()
        assert len(embedder.sent) <= 40 + table.BATCH
        assert (await titles(memory, "number99"))[0] == "Entry 99"


async def test_a_full_disk_costs_the_vectors_and_nothing_else(tmp_path, put, embedder, monkeypatch):
    put("facts/me.md", FACTS)

    def refuse(self, *arguments):
        raise table.sqlite3.OperationalError("disk full")

    monkeypatch.setattr(PassageVectors, "add", refuse)
    async with opened(tmp_path / "data", embedder) as memory:
        await memory.settle()
        assert (await titles(memory, "oolong"))[0] == "Mornings"
        assert len(embedder.sent) <= 6


def test_the_nearest_of_many_are_found_by_their_signs_first():
    index = Index(":memory:")
    file = index.mark("facts/a.md", "1")
    texts = [f"- {thing} number {n}" for n in range(200) for thing in ("oolong", "kitten", "invoice")]
    index.add(file, "facts", [Passage(1, "", text) for text in texts])
    vectors = index.vectors
    while missing := vectors.missing("m"):
        vectors.add("m", missing, map(vector_of, missing))
    rows = vectors.nearest(table.Meaning("m", vector_of("猫")), [range(1 << 50)], 30)
    assert {index._row(row, 0)[0][5].split()[1] for row in rows} == {"kitten"}
    index.close()
