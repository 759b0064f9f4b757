"""Search by words: what is found, in every language; what the index does about changes, archives, damage and other programs."""

import json
import sqlite3
import threading

import pytest
import trio

from pegasus.memory import FolderReader, Memory, MemoryRefused
from pegasus.memory import search as searcher
from pegasus.memory.search import Searcher, passages_of_page, words_of
from pegasus.memory.search_index import Index, Passage, expressions_of, needles_of, snippet
from pegasus.storage import FolderFiles

EPISODES = """# 2026-02

> Summary: February

## Moved the blog to static pages
- Summary: the build takes 3 s now
- Lesson: count the image links

## 北京天气总结
- Details: 用户想每天早上知道北京的天气。喝茶

## Hafenlampe
- Details: Die Lampe im Café fiel wieder aus, Straße gesperrt.
"""


@pytest.fixture
def search(tmp_path, folder):
    finder = Searcher(folder, FolderFiles(tmp_path / "data"), tmp_path / "data/memory/.index.sqlite")

    async def search(query, limit=8, where="", look=True):
        if look:
            finder.changed()
        return (await finder.search(query, limit, where)).hits

    search.finder = finder
    yield search
    finder.close()


@pytest.fixture
def archive(tmp_path):
    """Write an archived session: archive("2026-02-25-143000.jsonl", entry, …)."""

    def write(name, *entries):
        path = tmp_path / "data/main" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [entry if isinstance(entry, bytes) else json.dumps(entry).encode() + b"\n" for entry in entries]
        path.write_bytes(b"".join(lines))

    return write


async def titles(search, query, **given):
    return [hit.title for hit in await search(query, **given)]


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("blog static", "Moved the blog to static pages"),
        ("BUILDS linked", "Moved the blog to static pages"),
        ('"image links"', "Moved the blog to static pages"),
        ("天气", "北京天气总结"),
        ("每天早上", "北京天气总结"),
        ("茶", "北京天气总结"),
        ("北", "北京天气总结"),
        ("cafe", "Hafenlampe"),
        ("strasse", "Hafenlampe"),
        ("ｌａｍｐｅ", "Hafenlampe"),
    ],
)
async def test_words_are_found_in_any_language(search, put, query, title):
    put("episodes/2026-02.md", EPISODES)
    assert (await titles(search, query))[0] == title


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("明日は東京で会議があります", "会議"),
        ("วันนี้อากาศดีมาก", "อากาศ"),
        ("내일 회의는 열 시", "회의"),
        ("គម្រោងថ្មី", "គម្រោង"),
    ],
)
async def test_words_without_spaces_between_them(search, put, text, query):
    put("facts/a.md", text)
    put("facts/b.md", "something else")
    assert [hit.path for hit in await search(query)] == ["facts/a.md"]


@pytest.mark.parametrize(
    "query", ["天京", '"links image"', "harbour", "!!!", "", '"', "AND", "* OR NEAR(", "a:b", "\0"]
)
async def test_what_is_not_there_is_not_found_and_nothing_in_a_query_is_syntax(search, put, query):
    put("episodes/2026-02.md", EPISODES)
    assert await search(query) == ()


@pytest.mark.parametrize("query", ["tea\0x", "\0tea", '"tea\0x"', "tea\0"])
async def test_a_query_that_sqlite_would_cut_off_harms_no_index(search, put, query):
    put("facts/a.md", "tea x")
    assert [hit.path for hit in await search(query)] == ["facts/a.md"]


async def test_the_best_comes_first_and_all_words_before_some(search, put):
    put("facts/a.md", "harbour " + "and much else besides " * 20)
    put("facts/b.md", "harbour lamp")
    put("episodes/c.md", "## The harbour lamp\nbroken")
    assert [hit.path for hit in await search("harbour lamp")] == ["episodes/c.md", "facts/b.md", "facts/a.md"]
    assert len(await search("harbour lamp", 2)) == 2


async def test_a_hit_says_where_to_read_on(search, put):
    put("episodes/2026-02.md", EPISODES)
    [hit] = await search("lesson")
    assert (hit.place, hit.path, hit.line) == ("episodes", "episodes/2026-02.md", 5)
    assert EPISODES.splitlines()[hit.line - 1] == "## Moved the blog to static pages"
    assert "Lesson: count the image links" in hit.snippet


async def test_only_there(search, put, archive):
    put("facts/a.md", "lamp")
    put("episodes/a.md", "lamp")
    put("notes.md", "lamp")
    archive("2026-02-25-143000.jsonl", {"role": "user", "content": "lamp"})
    for where, places in (("facts", ["facts", "facts"]), ("episodes", ["episodes"]), ("sessions", ["sessions"])):
        assert [hit.place for hit in await search("lamp", where=where)] == places
    assert len(await search("lamp")) == 4
    with pytest.raises(ValueError, match="allowed: facts, episodes, sessions"):
        await search("lamp", where="elsewhere")


async def test_what_changes_is_found_as_it_is_now(search, put, folder):
    put("episodes/2026-02.md", EPISODES)
    assert len(await search("blog")) == 1
    put("episodes/2026-02.md", "# First a new line\n\n" + EPISODES.replace("blog", "shop"))
    assert await search("blog") == ()
    assert [hit.line for hit in await search("hafenlampe")] == [14]
    assert len(await search("shop")) == 1
    (folder / "episodes/2026-02.md").unlink()
    assert await search("shop") == ()
    with sqlite3.connect(folder / ".index.sqlite") as db:
        assert db.execute("SELECT count(*) FROM passages").fetchone() == (0,)
        db.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    db.close()


async def test_a_look_at_the_folders_is_good_for_a_second(search, put, mock_clock):
    assert await search("lamp") == ()
    put("facts/a.md", "lamp")
    assert await search("lamp", look=False) == ()
    mock_clock.jump(searcher.SCAN_EVERY)
    assert len(await search("lamp", look=False)) == 1


async def test_damage_that_is_found_without_a_look_is_mended_too(search, put):
    put("facts/a.md", "lamp")
    await search("lamp")
    search.finder._index.close()
    assert [hit.path for hit in await search("lamp", look=False)] == ["facts/a.md"]


async def test_what_the_memory_itself_writes_is_found_at_once(memory, tmp_path, folder):
    finder = Searcher(folder, FolderFiles(tmp_path / "data"), tmp_path / "index.sqlite")
    found = Memory(memory._logged._journal, FolderReader(folder), open_searcher=lambda: finder)
    await found.append("facts/a.md", "- lamp: red")
    assert len((await found.search("lamp")).hits) == 1
    await found.undo(1)
    assert (await found.search("lamp")).hits == ()
    with pytest.raises(MemoryRefused, match="allowed"):
        await found.search("lamp", where="x")
    with pytest.raises(MemoryRefused, match="no search here"):
        await memory.search("lamp")
    finder.close()


# ------------------------------------------------------------------ sessions


async def test_archived_sessions_are_found_by_what_was_said_in_them(search, archive):
    reply = {"id": "c1", "name": "reply", "arguments": {"text": "The lamp is fixed", "channelId": "main"}}
    archive(
        "2026-02-25-143000.jsonl",
        {"role": "user", "content": "[channel: cli | id: main]\nwhat about the harbour?"},
        {"role": "assistant", "content": "They mean the light.", "toolCalls": [reply]},
        {"role": "tool", "toolCallId": "c1", "content": '{"delivered":true,"note":"sent to pier"}'},
    )
    archive("current.jsonl", {"role": "user", "content": "harbour"})
    archive("other-2026-02-25-143000.jsonl", {"role": "user", "content": "harbour"})
    [hit] = await search("harbour")
    assert (hit.path, hit.line, hit.title) == ("2026-02-25-143000.jsonl", 1, "user")
    assert [(hit.line, hit.title) for hit in await search("lamp fixed")] == [(2, "assistant")]
    assert [hit.line for hit in await search("pier")] == [3]
    assert await search("delivered") == ()


async def test_lines_that_are_no_entries_are_passed_over(search, archive):
    good = {"role": "user", "content": "lamp"}
    archive(
        "2026-02-25-143000.jsonl",
        b"garbage lamp\n",
        b'["lamp"]\n',
        b"\xff\xfe\n",
        b"\n",
        good,
        b'{"role":"user","content":"lamp',
    )
    assert [hit.line for hit in await search("lamp")] == [5]


async def test_links_are_not_followed(search, tmp_path, archive, put):
    (tmp_path / "secret").write_text(json.dumps({"role": "user", "content": "lamp"}) + "\n")
    archive("current.jsonl")
    (tmp_path / "data/main/2026-02-25-143000.jsonl").symlink_to(tmp_path / "secret")
    assert await search("lamp") == ()


async def test_an_archive_that_there_is_no_time_for_goes_on_at_the_next_search(search, archive, monkeypatch):
    monkeypatch.setattr(searcher, "BATCH", 10)
    search.finder._budget = -1
    archive("2026-02-25-143000.jsonl", *({"role": "user", "content": f"lamp{n}"} for n in range(35)))
    found = await search.finder.search("lamp3")
    assert (found.hits, found.behind) == ((), 1)
    search.finder._budget = 10
    monkeypatch.setattr(searcher.time, "monotonic", iter(range(0, 1000, 4)).__next__)
    while (found := await search.finder.search("lamp34")).behind:
        pass
    assert [hit.line for hit in found.hits] == [35]
    assert len(await search("lamp3")) == 1


async def test_a_search_that_is_cancelled_keeps_what_is_done(search, archive, monkeypatch):
    monkeypatch.setattr(searcher, "BATCH", 10)
    archive("2026-02-25-143000.jsonl", *({"role": "user", "content": f"lamp{n}"} for n in range(35)))
    with trio.move_on_after(0) as scope:
        await search("lamp3")
    assert scope.cancelled_caught
    assert len(await search("lamp34")) == 1


def test_what_a_line_says():
    call = {
        "id": "1",
        "name": "spawn_subagent",
        "arguments": {"input": "count", "n": 3, "more": ["the", {"x": "boats"}]},
    }
    assert words_of({"role": "assistant", "content": "hm", "toolCalls": [call, "junk"]}) == "hm\ncount\nthe\nboats"
    assert words_of({"role": "tool", "content": '{"a":"words","b":[1]}'}) == "words"
    assert words_of({"role": "tool", "content": "plain {"}) == "plain {"
    assert words_of({"role": "tool", "content": "[" * 100_000}) == "[" * 2000
    assert words_of({"role": "user", "content": 7, "toolCalls": 7}) == ""


# ------------------------------------------------------------------ the index


async def test_the_index_may_be_deleted_at_any_time(search, put, folder):
    put("facts/a.md", "lamp")
    assert len(await search("lamp")) == 1
    search.finder.close()
    for path in folder.glob(".index*"):
        path.unlink()
    assert len(await search("lamp")) == 1
    assert (folder / ".index.sqlite").stat().st_mode & 0o777 == 0o600


async def test_the_index_is_kept_from_one_process_to_the_next(search, put, tmp_path, folder, monkeypatch):
    put("facts/a.md", "lamp")
    await search("lamp")
    search.finder.close()
    monkeypatch.setattr(searcher, "passages_of_page", None)
    assert len(await search("lamp")) == 1


@pytest.mark.parametrize("damage", [b"no database at all" * 100, b"SQLite format 3\0" + bytes(range(250)) * 40, b"x"])
async def test_a_damaged_index_is_made_anew(search, put, folder, damage):
    put("facts/a.md", "lamp")
    await search("lamp")
    search.finder.close()
    (folder / ".index.sqlite").write_bytes(damage)
    assert len(await search("lamp")) == 1
    search.finder.close()
    assert len(await search("lamp")) == 1


async def test_an_index_by_other_rules_is_made_anew(search, put, folder):
    put("facts/a.md", "lamp")
    await search("lamp")
    search.finder.close()
    with sqlite3.connect(folder / ".index.sqlite") as db:
        db.execute("UPDATE about SET version = 'older'")
        db.execute("DELETE FROM passages")
    db.close()
    assert len(await search("lamp")) == 1


async def test_an_index_that_another_program_holds_is_made_in_memory(search, put, folder, monkeypatch):
    put("facts/a.md", "lamp")
    await search("lamp")
    search.finder.close()
    put("facts/b.md", "lamp")
    holder = sqlite3.connect(folder / ".index.sqlite", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert len(await search("lamp")) == 2
    holder.execute("ROLLBACK")
    assert holder.execute("SELECT count(*) FROM files").fetchone() == (1,)
    holder.close()


async def test_where_no_file_can_be_made_the_index_is_in_memory(put, folder, tmp_path):
    put("facts/a.md", "lamp")
    (tmp_path / "index").mkdir()
    finder = Searcher(folder, FolderFiles(tmp_path), tmp_path / "index")
    assert len((await finder.search("lamp")).hits) == 1
    finder.close()


async def test_searches_at_the_same_time(search, put):
    put("facts/a.md", "lamp")
    found = []
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(lambda: _into(found, search))
    assert [len(hits) for hits in found] == [1] * 20
    assert threading.active_count() < 30


async def _into(found, search):
    found.append(await search("lamp"))


async def test_a_huge_file_is_not_searched(search, put):
    put("facts/a.md", "lamp " * 100_000)
    assert await search("lamp") == ()


# ------------------------------------------------------------------ words and passages


def test_what_is_looked_for():
    first, *others = expressions_of('Deploy "exact words" deploy 北京天气 茶 GPU显存')
    assert first.split('" "') == ['"exact words', "Deploy", "deploy", "北京 京天 天气", '茶"* "gpu', '显存"']
    assert others == [first.replace('" "', '" OR "').replace('"* "', '"* OR "'), '"北京" OR "京天" OR "天气"']
    assert list(expressions_of("!? -- *")) == []
    assert len(next(expressions_of(" ".join(map(str, range(1000))))).split()) == 24


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("When did Caroline go to the support group?", "Caroline support group go"),
        ("What's the name of Melanie’s dog", "name Melanie dog"),
        ("Wann war die Reise nach Lissabon?", "Reise Lissabon"),
        ("Où est-ce que nous avons mangé l'entrecôte ?", "est-ce avons mangé entrecôte"),
        ("¿Cuándo es el cumpleaños de mi hermana?", "cumpleaños hermana"),
        ("Когда у нас была встреча в Москве?", "встреча Москве"),
        ("when did the plant die", "plant die"),
        ("die hard", "die hard"),
        ("the who", "the who"),
        ('who said "to be or not to be"', "to be or not to be who said"),
    ],
)
def test_function_words_of_the_language_are_not_looked_for(query, words):
    terms = next(expressions_of(query)).replace('"', "").split()
    assert sorted(map(str.casefold, terms)) == sorted(map(str.casefold, words.split()))


async def test_function_words_do_not_spoil_the_order(search, put):
    put(
        "facts/talk.md",
        "When did you go? Did you go to the place that we had been to? We did go, to be there when it was.",
    )
    put(
        "facts/group.md",
        "## Caroline\n" + "went to a support group, and much else besides happened there that day. " * 3,
    )
    assert (await search("When did Caroline go to the support group?"))[0].path == "facts/group.md"


async def test_a_whole_question_without_spaces_finds_what_it_is_about(search, put):
    put("facts/a.md", "上周去了北京，天气很好")
    put("facts/b.md", "喜欢喝茶")
    assert [hit.path for hit in await search("我什么时候去的北京呢")] == ["facts/a.md"]
    assert [hit.path for hit in await search("「北京的天气」")] == []


def test_a_snippet_is_of_the_place_where_most_words_are():
    text = "lamp " + "x " * 300 + "the red lamp of the harbour " + "y " * 300
    shown = snippet(text, needles_of("harbour lamp"))
    assert "red lamp of the harbour" in shown
    assert shown.startswith("…")
    assert len(shown) < 250
    assert snippet("short", needles_of("nothing")) == "short"
    assert "İstanbul lamp" in snippet("İstanbul lamp", needles_of("lamp"))


def test_passages_of_a_page():
    found = list(passages_of_page(EPISODES))
    assert [(one.line, one.title) for one in found] == [
        (1, ""),
        (5, "Moved the blog to static pages"),
        (9, "北京天气总结"),
        (12, "Hafenlampe"),
    ]
    long = list(passages_of_page("## Long\n" + "line\n" * 3000))
    assert len(long) > 2
    assert {one.title for one in long} == {"Long"}
    assert sum(one.text.count("line") for one in long) == 3000
    assert long[1].line == long[0].text.count("\n") + 2
    assert list(passages_of_page("")) == []
    assert list(passages_of_page("x")) == [Passage(1, "", "x")]


def test_a_new_index_is_merged_and_a_cleared_file_leaves_no_words(tmp_path):
    """A search looks into every part that words were put in by, and at every word that is still there."""
    index = Index(str(tmp_path / "index.sqlite"))

    def count(what):
        return index._db.execute(f"SELECT count({what}").fetchone()[0]

    for n in range(12):
        index.begin()
        file = index.mark(f"facts/{n}.md", "1 2 3")
        index.add(file, "facts", [Passage(1, "Title", f"harbour {n} 北京天气 Café")])
        index.commit()
    before = count("DISTINCT segid) FROM words_idx")
    index.merge()
    assert count("DISTINCT segid) FROM words_idx") == 1 < before
    assert len(index.find("harbour", 20)) == 12
    index.clear(file)
    for word in ("harbour", "11", "北京", "cafe", "title"):
        assert count(f"*) FROM words WHERE words MATCH '{word}'") == (0 if word == "11" else 11)
    index.close()


@pytest.fixture
def index():
    index = Index(":memory:")
    yield index
    index.close()


def add(index, path, place, *texts, prefix=""):
    index.add(index.mark(path, "1 2 3"), place, [Passage(n, "", text) for n, text in enumerate(texts, 1)], prefix)


def test_a_conversation_is_searched_without_the_archives_of_others(index):
    add(index, "facts/a.md", "facts", "a lamp in the long and dark hall of the house")
    add(index, "a.jsonl", "sessions", "lamp of all channels")
    for n in range(3):  # passages that would be better
        add(index, f"web.2.{n}.jsonl", "sessions", "lamp", prefix="web.2.")
    add(index, "web.1.a.jsonl", "sessions", "the lamp of chat 1", prefix="web.1.")
    add(index, "episodes/a.md", "episodes", "lamp")
    assert [hit.path for hit in index.find("lamp", 9)] == ["episodes/a.md", "a.jsonl", "facts/a.md"]
    assert [hit.path for hit in index.find("lamp", 9, prefix="web.1.")] == ["episodes/a.md", "a.jsonl", "facts/a.md"]
    assert [hit.path for hit in index.find("lamp", 2, prefix="web.2.")] == ["2.jsonl", "1.jsonl"]
    assert [(hit.place, hit.path) for hit in index.find("lamp", 9, "sessions", "web.1.")] == [("sessions", "a.jsonl")]
    assert [hit.path for hit in index.find("lamp", 9, "facts", "web.1.")] == ["facts/a.md"]
    assert [hit.path for hit in index.find("lamp", 9, prefix="web.3.")] == ["episodes/a.md", "facts/a.md"]
    assert index.find("lamp", 9, "sessions", "web.3.") == ()


def test_of_equal_passages_the_newest_are_found(index):
    add(index, "episodes/a.md", "episodes", *["lamp"] * 5)
    assert [hit.line for hit in index.find("lamp", 3)] == [5, 4, 3]
    add(index, "episodes/a.md", "episodes", "lamp")
    assert [hit.line for hit in index.find("lamp", 3)] == [1, 5, 4]


def test_an_index_knows_its_conversations_when_it_is_opened_again(tmp_path):
    for words in ("harbour lamp", "harbour light"):
        index = Index(str(tmp_path / "index.sqlite"))
        add(index, "web.1.a.jsonl", "sessions", words, prefix="web.1.")
        add(index, "web.2.a.jsonl", "sessions", words, prefix="web.2.")
        found = [hit.text for hit in index.find("harbour", 9, prefix="web.1.")]
        index.close()
    assert found == ["harbour light", "harbour lamp"]
