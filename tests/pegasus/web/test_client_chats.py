"""Chats of clients: bounds, the file, and damage. What a request does in its chat is tried in tests/blackbox/test_openai_chats.py."""

import pytest

from pegasus.web.routes import client_chats
from pegasus.web.routes.client_chats import ClientChats, parse_request
from tests.pegasus.web.world import world

PATH = "web/chats.jsonl"


def request(*texts):
    """A history of texts in turn of a person and of the agent; the last one is new."""
    return parse_request([{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)])


async def say(chats, token, id, *texts, answer="fine"):
    placed = chats.place(request(*texts), token, user="", named="", is_front_end=False)
    turn = chats.begin(placed, request(*texts), id)
    await chats.keep(placed, turn)
    assert chats.note_answer(placed.chat.id, id, answer)
    await chats.keep_answer(placed.chat.id, id)
    return placed


async def test_the_oldest_chat_of_the_busiest_token_is_forgotten(monkeypatch):
    monkeypatch.setattr(client_chats, "MOST_CHATS", 4)
    async with world() as there:
        chats = ClientChats(there.supervisor.ref("journal"))
        await chats.read()
        quiet = await say(chats, "home", "m", "mine")
        busy = [await say(chats, "token-a", f"m{n}", f"chat {n}") for n in range(6)]
        assert (await say(chats, "home", "m2", "mine", "fine", "go on")).chat.id == quiet.chat.id
        assert (await say(chats, "token-a", "m9", "chat 0", "fine", "go on")).chat.id != busy[0].chat.id


async def test_the_file_is_written_anew_and_says_the_same(monkeypatch):
    monkeypatch.setattr(client_chats, "MOST_LINES", 40)
    async with world() as there:
        chats = ClientChats(there.supervisor.ref("journal"))
        await chats.read()
        texts, sizes = [], []
        for n in range(15):
            texts.append(f"message {n}")
            placed = await say(chats, "home", f"m{n}", *texts, answer=f"answer {n}")
            texts.append(f"answer {n}")
            sizes.append(there.journal.files[PATH].count(b"\n"))
        assert max(sizes) <= 41
        again = ClientChats(there.supervisor.ref("journal"))
        await again.read()
        found = again.place(request(*texts, "last"), "home", user="", named="", is_front_end=False)
        assert (found.chat.id, found.replaces, found.earlier) == (placed.chat.id, "", ())


@pytest.mark.parametrize(
    "line", [b"torn\n", b'{"chat":"home/x"}\n', b'{"chat":"home/x","id":"m","said":"","kept":-1}\n']
)
async def test_a_damaged_line_costs_no_other_chat(line):
    async with world() as there:
        chats = ClientChats(there.supervisor.ref("journal"))
        await chats.read()
        placed = await say(chats, "home", "m", "mine")
        there.journal.files[PATH] = line + there.journal.files[PATH]
        again = ClientChats(there.supervisor.ref("journal"))
        await again.read()
        assert (await say(again, "home", "m2", "mine", "fine", "go on")).chat.id == placed.chat.id
        assert line.strip() in there.journal.files[f"{PATH}.bad-1"]


async def test_a_message_that_was_refused_is_in_no_chat():
    async with world() as there:
        chats = ClientChats(there.supervisor.ref("journal"))
        await chats.read()
        await say(chats, "home", "m", "mine")
        again = request("mine", "fine", "go on")
        for _ in range(2):
            placed = chats.place(again, "home", user="", named="", is_front_end=False)
            assert (placed.kept, placed.replaces) == (1, "")
            chats.drop(placed, chats.begin(placed, again, "m2"))


def test_no_name_leads_to_another_token():
    chats = ClientChats(None)
    for name in ("../token-b/x", "a/b", "%2F", "x" * 500, "ein\nname", "\u200bhidden"):
        id = chats.place(request("hi"), "token-a", user="", named=name, is_front_end=False).chat.id
        assert id.startswith("token-a/")
        assert id.count("/") == 1
        assert len(id) < 200
