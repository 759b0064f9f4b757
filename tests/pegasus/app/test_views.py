"""The control plane's methods that the web page is made of."""

from __future__ import annotations

from types import SimpleNamespace

import attrs
import pytest

from actors import Child, open_supervisor
from pegasus.access.principal import StoredToken, TokenGrant
from pegasus.app.control_plane import MemoryMethods, ViewMethods
from pegasus.app.control_plane.views import TAIL
from pegasus.gateway import BadParams, Caller, Conflict
from pegasus.memory import MemoryRefused, Written
from pegasus.messages import Address
from pegasus.settings import LiveValue, Settings
from pegasus.skills import BUILT_IN, SkillCatalog
from pegasus.storage import FolderFiles, KnownAddresses

CALLER = Caller("web", "main")


async def journal(inbox):
    async for question in inbox:
        known = (Address("web", "main"), Address("cli", "main"))
        question.reply.send(known if isinstance(question, KnownAddresses) else ())


@pytest.fixture
async def views(tmp_path):
    skills, settings = SkillCatalog(BUILT_IN, tmp_path / "skills"), LiveValue(Settings())
    files, log = FolderFiles(tmp_path / "data"), tmp_path / "log"
    async with open_supervisor([Child("journal", journal)]) as root:
        yield ViewMethods(root.ref("journal"), files, log, skills, tmp_path / "skills", settings)


async def test_markdown_is_rendered_text_by_text(views):
    answer = await views.markdown(CALLER, {"texts": ["*a*", "<b>"]})
    assert ["<em>a</em>" in answer["html"][0], "&lt;b&gt;" in answer["html"][1]] == [True, True]


@pytest.mark.parametrize("texts", [None, "text", [1], ["a"] * 51, ["x" * 200_000, "y" * 200_000]])
async def test_markdown_takes_texts_within_bounds(views, texts):
    with pytest.raises(BadParams, match="texts: "):
        await views.markdown(CALLER, {"texts": texts})


async def test_a_token_without_control_sees_its_own_history_only(views):
    guest = attrs.evolve(CALLER, grant=TokenGrant(StoredToken("phone", "", ("message", "read"))))
    assert (await views.history(guest, {}))["messages"] == []
    with pytest.raises(BadParams, match="its own conversation"):
        await views.history(guest, {"type": "slack", "channelId": "C1"})
    assert (await views.history(CALLER, {"type": "slack", "channelId": "C1"}))["messages"] == []


async def test_history_refuses_a_place_that_it_did_not_name(views):
    with pytest.raises(BadParams, match="before: "):
        await views.history(CALLER, {"before": "../token:0"})


async def test_the_log_is_read_from_where_the_last_answer_ended(views, tmp_path):
    log = tmp_path / "log"
    assert await views.tail_log(CALLER, {}) == {"lines": [], "end": 0}
    log.write_bytes(b"one\ntwo\nhal")
    first = await views.tail_log(CALLER, {})
    assert first["lines"] == ["one", "two"]
    log.write_bytes(b"one\ntwo\nhalf\n")
    second = await views.tail_log(CALLER, {"after": first["end"]})
    assert second["lines"] == ["half"]
    assert (await views.tail_log(CALLER, {"after": second["end"]}))["lines"] == []
    log.write_bytes(b"new\n")  # rotated
    assert (await views.tail_log(CALLER, {"after": second["end"]}))["lines"] == ["new"]


async def test_of_a_large_log_the_end_is_shown_in_whole_lines(views, tmp_path):
    lines = [f"line {n} {'x' * 50}" for n in range(5000)]
    (tmp_path / "log").write_text("".join(f"{line}\n" for line in lines))
    shown = (await views.tail_log(CALLER, {}))["lines"]
    assert shown == lines[-len(shown) :]
    assert TAIL - 100 < sum(len(line) + 1 for line in shown) <= TAIL


async def test_lines_of_a_session_come_in_pages_and_damaged_ones_too(views, tmp_path):
    folder = tmp_path / "data" / "main"
    folder.mkdir(parents=True)
    good = b'{"ts":1,"role":"assistant","content":"hm","toolCalls":[{"id":"c","name":"t","arguments":{"a":"b"}}]}\n'
    (folder / "current.jsonl").write_bytes(good * 3 + b"torn")
    first = await views.show_session(CALLER, {"file": "current.jsonl", "limit": 2})
    assert [line["n"] for line in first["lines"]] == [1, 2]
    assert first["lines"][0]["calls"] == [{"name": "t", "arguments": {"a": "b"}}]
    rest = await views.show_session(CALLER, {"file": "current.jsonl", "offset": first["next"]})
    assert rest["lines"][-1] == {"n": 4, "damaged": "torn"}
    assert rest["next"] is None
    assert [session["file"] for session in (await views.list_sessions(CALLER, {}))["sessions"]] == ["current.jsonl"]


async def test_sessions_of_chats_are_listed_and_shown_with_their_chats(views, tmp_path):
    folder = tmp_path / "data" / "sessions"
    folder.mkdir(parents=True)
    for name in ("ann", "bob"):
        (folder / f"web%3A{name}.jsonl").write_bytes(b'{"ts":1,"role":"user","content":"hi"}\n')
    page = await views.list_sessions(CALLER, {"chat": "ann", "limit": 5})
    assert [(row["file"], row["chat"]) for row in page["sessions"]] == [("web%3Aann.jsonl", "web:ann")]
    assert (page["total"], page["next"]) == (1, None)
    for name in ("web%3Abob.jsonl", "web:bob"):
        shown = await views.show_session(CALLER, {"file": name})
        assert (shown["file"], shown["chat"], len(shown["lines"])) == ("web%3Abob.jsonl", "web:bob", 1)


@pytest.mark.parametrize("name", ["../../token", "/etc/passwd", "2026-01-01-000000.jsonl", ""])
async def test_only_sessions_are_shown(views, name):
    with pytest.raises(BadParams, match="file: "):
        await views.show_session(CALLER, {"file": name})


async def test_skills_are_listed_with_their_texts(views):
    skills = (await views.list_skills(CALLER, {}))["skills"]
    review = next(skill for skill in skills if skill["name"] == "review")
    assert review["source"] == "built-in"
    assert len(review["text"]) > 100


async def test_conversations_are_listed(views):
    answer = await views.list_conversations(CALLER, {})
    assert answer["conversations"] == [{"type": "cli", "channelId": "main"}, {"type": "web", "channelId": "main"}]


# ------------------------------------------------------------------ memory.write


class Files:
    """A memory with one file."""

    def __init__(self):
        self.text = "old\n"

    async def list(self):
        return [SimpleNamespace(path="facts/a.md")]

    async def read(self, path):
        return self.text

    async def write(self, path, content, by):
        if path.startswith("/"):
            raise MemoryRefused("no such folder")
        self.text, self.by = content, by
        return Written(len(content))


async def test_a_file_of_memory_is_written_in_the_callers_name():
    memory = Files()
    answer = await MemoryMethods(memory).write(CALLER, {"path": "facts/a.md", "content": "new\n", "was": "old\n"})
    assert (answer, memory.text) == ({"path": "facts/a.md", "size": 4}, "new\n")
    assert (memory.by.kind, memory.by.channel) == ("user", "web:main")


async def test_a_change_that_somebody_else_made_meanwhile_is_not_overwritten():
    memory = Files()
    with pytest.raises(Conflict, match="changed since"):
        await MemoryMethods(memory).write(CALLER, {"path": "facts/a.md", "content": "new", "was": "older\n"})
    with pytest.raises(Conflict, match="changed since"):
        await MemoryMethods(memory).write(CALLER, {"path": "facts/gone.md", "content": "new", "was": "old\n"})
    assert memory.text == "old\n"


@pytest.mark.parametrize("params", [{}, {"path": "a"}, {"path": "/etc/x", "content": ""}, {"path": "a", "content": 1}])
async def test_a_change_that_makes_no_sense_is_refused(params):
    with pytest.raises(BadParams):
        await MemoryMethods(Files()).write(CALLER, params)
