"""`pegasus memory …` while no daemon runs: from the files, and with the home held for an undo; and against a daemon."""

from __future__ import annotations

import json
import os
from functools import partial

import pytest
import trio

from pegasus.app.control_plane import MemoryMethods
from pegasus.cli.control import fit_terminal
from pegasus.cli.knowledge import found_text, list_text, log_text, run_list, run_log, run_search, run_show, run_undo
from pegasus.gateway import BadParams, Caller
from pegasus.host import Home, own_home
from pegasus.memory import NOTES, Author, memory_in
from pegasus.memory.logged_files import LARGEST
from pegasus.settings import Settings
from tests.pegasus.gateway.world import TOKEN, world
from tests.pegasus.memory.conftest import open_memory

TASK = Author("task", "t1", "zhang", "slack:#general", "asked to remember", "web")


@pytest.fixture
def home(user):
    """A home in which an agent has remembered something."""
    home = Home(user / ".pegasus")

    async def live():
        async with open_memory(home.data) as memory:
            await memory.write("facts/user.md", "# User\n\n> Summary: who the user is\n\n- Name: Ann\n")
            await memory.append("facts/user.md", "- Tea: green", by=TASK)

    trio.run(live)
    return home


def test_everything_is_listed_and_shown(pegasus, home):
    assert pegasus("memory", "list") == (0, "facts/user.md       75 B  who the user is\n", "")
    [file] = json.loads(pegasus("memory", "list", "--json")[1])["files"]
    assert file["path"] == "facts/user.md"
    assert pegasus("memory", "show", "facts/user.md")[1].endswith("- Name: Ann\n- Tea: green [source: web]\n")


def test_a_row_is_cut_for_a_terminal_only(pegasus, home, monkeypatch):
    """Who looks for a word in it with grep finds what stands far right."""
    (home.data / "memory" / "facts" / "user.md").write_text(f"> Summary: {'many words ' * 10}end\n")
    monkeypatch.setenv("COLUMNS", "40")
    assert pegasus("memory", "list")[1].endswith("many words end\n")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert fit_terminal("x" * 41) == "x" * 39 + "…"
    assert fit_terminal("x" * 40) == "x" * 40
    assert fit_terminal("ü" * 40) == "ü" * 40
    assert fit_terminal("茶" * 20) == "茶" * 20, "each takes the place of two"
    assert fit_terminal("茶" * 21) == "茶" * 19 + "…"


def test_without_a_daemon_the_answers_are_those_of_one(pegasus, home):
    facts = home.data / "memory" / "facts"
    [file] = json.loads(pegasus("memory", "list", "--json")[1])["files"]
    assert file["marked"] == ["web"]
    (facts / "long.md").write_text("x" * (LARGEST + 1))
    code, out, err = pegasus("memory", "show", "facts/long.md")
    assert (code, out) == (1, "")
    assert "facts/long.md has 262,145 bytes, more than can be read" in err


def test_the_log_says_who_did_what_and_why(pegasus, home):
    code, out, err = pegasus("memory", "log")
    assert (code, err) == (0, "")
    append, added, write, *_ = out.splitlines()
    assert append.startswith("   2  ")
    assert append.endswith(
        "facts/user.md  append by task t1 zhang for slack:#general (asked to remember) [source: web]"
    )
    assert added == "    + - Tea: green [source: web]"
    assert write.endswith("facts/user.md  write by the agent")
    assert pegasus("memory", "log", "--limit", "1")[1].startswith("   2  ")
    unknown = 'pegasus: there is no "facts/other.md" in memory. There are: facts/user.md\n'
    assert pegasus("memory", "log", "facts/other.md") == (1, "", unknown)
    (home.data / "memory" / "facts" / "other.md").write_text("not logged yet")
    assert pegasus("memory", "log", "facts/other.md") == (0, "Nothing was changed yet.\n", "")
    assert pegasus("memory", "log", NOTES) == (0, "Nothing was changed yet.\n", "")
    assert [one["n"] for one in json.loads(pegasus("memory", "log", "--json")[1])["changes"]] == [2, 1]


def test_a_change_is_taken_back(pegasus, home):
    assert pegasus("memory", "undo", "1") == (0, "Change 1 of facts/user.md is taken back, by change 3.\n", "")
    assert pegasus("memory", "show", "facts/user.md")[1] == "- Tea: green [source: web]\n"
    assert "undo of 1 by you for cli:memory" in pegasus("memory", "log")[1]
    code, out, err = pegasus("memory", "undo", "1")
    assert (code, out) == (1, "")
    assert err == "pegasus: change 1 of facts/user.md cannot be taken back: change 3 took it back\n"


def test_an_undo_while_a_daemon_holds_the_home_is_refused(pegasus, home):
    with own_home(home):
        code, _, err = pegasus("memory", "undo", "1")
    assert code == 75
    assert "already runs Pegasus here" in err


def test_search(pegasus, home):
    assert pegasus("memory", "search", "tea")[:2] == (
        0,
        "facts/user.md:1\n    # User > Summary: who the user is - Name: Ann - Tea: green [source: web]\n",
    )
    assert pegasus("memory", "search", "coffee")[1] == "nothing has these words; try others, or fewer\n"
    [hit] = json.loads(pegasus("memory", "search", "--in", "facts", "--json", "tea")[1])["results"]
    assert hit["marked"] == ["web"]


def test_what_is_wrong_is_told_in_one_line(pegasus, home):
    assert pegasus("memory", "show", "x.md") == (
        1,
        "",
        'pegasus: there is no "x.md" in memory. There are: facts/user.md\n',
    )
    assert pegasus("memory", "undo", "9")[2] == "pegasus: there is no change 9 in the log (any more)\n"
    assert pegasus("memory", "undo", "zero")[0] == 2
    assert pegasus("memory", "search", "--in", "else", "x")[0] == 2


def test_a_home_without_memory(pegasus, user):
    assert pegasus("memory", "list") == (0, "Nothing is remembered yet.\n", "")
    assert pegasus("memory", "log") == (0, "Nothing was changed yet.\n", "")
    assert "It is empty" in pegasus("memory", "show", "facts/user.md")[2]
    assert not (user / ".pegasus").exists()


def test_the_notes_of_conversations_are_shown_and_without_a_daemon_an_undo_brings_them_back(user, pegasus):
    home = Home(user / ".pegasus")

    async def rewrite():
        async with open_memory(home.data) as opened:
            memory = memory_in(home.data, opened._logged._journal, lambda: 5, home.workspace)
            for content in (b"- Likes tea\n", b"- Likes coffee\n"):
                await memory.write_as_it_is(NOTES, content, Author("consolidation", channel="web:c1"))

    (home.workspace).mkdir(parents=True)
    trio.run(rewrite)
    assert pegasus("memory", "show", NOTES) == (0, "- Likes coffee\n", "")
    assert "write by consolidation for web:c1" in pegasus("memory", "log", NOTES)[1]
    assert pegasus("memory", "undo", "2")[0] == 0
    assert (home.workspace / "memory" / "MEMORY.md").read_text() == "- Likes tea\n"


def test_texts_for_people():
    assert list_text({"files": []}) == "Nothing is remembered yet."
    change = {"n": 1, "ts": 0, "path": "a.md", "how": "edit", "by": {"kind": "hand"}, "removed": None, "added": None}
    assert "edit by hand\n      (too large" in log_text({"changes": [change]})
    assert "a.md  edit" in log_text({"changes": [{**change, "ts": 10**40}]})
    hit = {"file": "2026-02-25-143000.jsonl", "line": 3, "role": "user", "snippet": "hi"}
    assert found_text({"results": [hit]}) == "2026-02-25-143000.jsonl:3  user\n    hi"


# ------------------------------------------------------------------ with a daemon


@pytest.fixture
async def control(user):
    data = Home(user / ".pegasus").data
    async with open_memory(data) as memory:
        await memory.write("facts/user.md", "# User\n", TASK)
        yield MemoryMethods(memory_in(data, memory._logged._journal, lambda: 5))


CALLER = Caller("web", "c1", "u1")


async def test_the_methods_of_the_control_plane(control):
    [file] = (await control.list(CALLER, {}))["files"]
    assert (file["path"], file["marked"]) == ("facts/user.md", ["web"])
    assert (await control.show(CALLER, {"path": "facts/user.md"}))["content"].startswith("> [source: web]")
    undone = (await control.undo(CALLER, {"n": 1}))["change"]
    assert undone["by"] == {"kind": "user", "user": "u1", "channel": "web:c1"}
    changes = (await control.log(CALLER, {"path": "facts/user.md", "limit": 1, "before": 2}))["changes"]
    assert [change["n"] for change in changes] == [1]
    assert (await control.search(CALLER, {"query": "user", "in": "facts"}))["results"] == []


@pytest.mark.parametrize(
    ("method", "params", "problem"),
    [
        ("show", {}, "path: found None"),
        ("show", {"path": "../x"}, 'there is no "../x"'),
        ("log", {"limit": "all"}, 'limit: found "all"'),
        ("log", {"path": 7}, "path: found 7"),
        ("log", {"path": "facts/x.md"}, 'there is no "facts/x.md"'),
        ("undo", {}, "n: found None"),
        ("undo", {"n": True}, "n: found True"),
        ("undo", {"n": 99}, "there is no change 99"),
        ("search", {"query": ""}, 'query: found ""'),
        ("search", {"query": "x", "in": "y"}, "allowed: facts, episodes, sessions"),
    ],
)
async def test_bad_params_are_said(control, method, params, problem):
    with pytest.raises(BadParams, match=problem.replace("?", r"\?")):
        await getattr(control, method)(CALLER, params)


async def test_with_a_daemon_it_is_asked(control, user, capsys):
    home = Home(user / ".pegasus")
    methods = {f"memory.{name}": getattr(control, name) for name in ("list", "show", "log", "undo", "search")}
    async with world(methods=methods) as gate:
        home.daemon.parent.mkdir(parents=True)
        home.token.write_text(TOKEN)
        home.daemon.write_text(
            json.dumps({"pid": os.getpid(), "ws": gate.url, "http": None, "version": "0", "startedAt": 0})
        )

        async def told(command, **given):
            code = await trio.to_thread.run_sync(partial(command, home, Settings(), **given))
            out, err = capsys.readouterr()
            return code, out or err

        assert (await told(run_list, as_json=False))[1].startswith("facts/user.md")
        assert (await told(run_show, path="facts/user.md"))[1].startswith("> [source: web]")
        assert "write by task t1" in (await told(run_log, path=None, limit=5, as_json=False))[1]
        assert (await told(run_search, query="user", limit=1, in_=None, as_json=False))[0] == 0
        assert await told(run_undo, n=1) == (0, "Change 1 of facts/user.md is taken back, by change 2.\n")
        code, problem = await told(run_undo, n=9)
        assert (code, "there is no change 9" in problem) == (1, True)
