"""/help, /status, /new and /stop from a client: answered before any model is asked."""

from __future__ import annotations

import json
import re

import pytest

from tests.blackbox.support import HANG, Book, Call, Thought, open_calls, reply, say, serving, until
from tests.blackbox.support.files import lines, session

ARCHIVE = re.compile(r"\d{4}-\d\d-\d\d-\d{6}(-\d+)?\.jsonl")


@pytest.mark.parametrize("text", ["/help", " /HELP ", "/help me"])
async def test_help_names_the_commands_and_asks_no_model(stage, name, text):
    async with stage.play(book := Book(), name) as daemon, daemon.client() as client:
        told = await client.ask(text)
        for command in ("/stop", "/new", "/status", "/help"):
            assert command in told
        assert book.asked == []


async def test_status_names_the_model_and_asks_no_model(stage, name):
    async with stage.play(book := Book(), name) as daemon, daemon.client() as client:
        assert "test/" in await client.ask("/status")
        assert book.asked == []


async def test_unknown_command_is_answered_and_a_path_is_a_message(stage, name):
    async with stage.play(book := Book(), name) as daemon, daemon.client() as client:
        assert "There is no command /staus. Did you mean /status?" in await client.ask("/staus thing")
        assert book.asked == []
        assert await client.ask("/etc/hosts is broken") == "echo: /etc/hosts is broken"


async def test_commands_pass_a_busy_agent(stage, name):
    async with stage.play(book := Book(), name) as daemon, daemon.client() as client:
        book.hold()
        await client.say("think about this long question")
        await book.waiting()
        assert "/stop" in await client.ask("/help")
        status = await client.ask("/status")
        assert "long question" in status
        book.release()
        assert (await client.reply())["text"] == "echo: think about this long question"


async def test_commands_leave_no_line_in_the_session(stage, name):
    async with stage.play(Book(), name) as daemon, daemon.client() as client:
        await client.ask("/help")
        await client.ask("/status")
        assert stage.session() == []


async def test_commands_are_processed_once_per_id(stage, name):
    async with stage.play(Book(), name) as daemon, daemon.client() as client:
        await client.ask("/help", id="h1")
        await client.say("/help", id="h1")
        await client.ask("fence")
        assert len(client.texts()) == 2


# ------------------------------------------------------------------ /stop


async def test_stop_ends_the_model_call_and_says_what_it_ended(stage, name):
    book = Book({"write a very long novel": HANG})
    async with stage.play(book, name) as daemon, daemon.client() as client:
        await client.say("write a very long novel")
        await book.reached(1)
        told = await client.ask("/stop")
        assert "write a very long novel" in told
        await book.abandoned()
        assert await client.ask("next") == "echo: next"
        assert client.texts() == [told, "echo: next"], "the stopped thought spoke after all"


async def test_stop_with_nothing_running_says_so(stage, name):
    async with stage.play(Book(), name) as daemon, daemon.client() as client:
        told = await client.ask("/stop")
        assert "nothing" in told.lower()


async def test_stop_passes_the_queue_and_leaves_it_alone(stage, name):
    async with stage.play(book := Book(), name) as daemon, daemon.client() as client:
        book.hold()
        await client.say("one")
        await book.waiting()
        await client.say("two")
        await client.say("three")
        told = await client.ask("/stop")
        assert "one" in told
        assert "2" in told, "how many are still waiting"
        book.release()
        assert [frame["text"] for frame in await client.replies(2)] == ["echo: two", "echo: three"]


async def test_stop_leaves_a_well_formed_session(stage, name):
    """Stopped in the second thought: what was done stays, nothing is open, the model is told that it was stopped."""
    book = Book({"go": [Thought("step one", (reply("working"), Call("current_time")))]})
    async with stage.play(book, name) as daemon, daemon.client() as client:
        book.hold(after=1)
        await client.say("go")
        assert (await client.reply())["text"] == "working"
        await book.waiting()
        await client.ask("/stop")
        book.release()
        assert await client.ask("next") == "echo: next"
        await until(lambda: open_calls(session(daemon.home)) == [], "a well-formed session")
        assert "step one" in book.asked[-1].said("assistant")
        assert "stopped" in book.asked[-1].user
        await daemon.restart()
        async with daemon.client(lastSeq=3) as again:
            assert await again.ask("after the restart") == "echo: after the restart"


async def test_a_stopped_message_is_not_taken_up_again_after_a_crash(stage, name):
    async with stage.play(book := Book({"never finish this": HANG}), name) as daemon:
        async with daemon.client() as client:
            await client.say("never finish this")
            await book.reached(1)
            await client.ask("/stop")
        await daemon.restart()
        async with daemon.client(lastSeq=1) as client:
            assert await client.ask("next") == "echo: next"
        assert len(book.about("never finish this")) == 1


async def test_stop_by_the_control_plane(stage, name):
    async with stage.play(book := Book({"a long thought": HANG}), name) as daemon, daemon.client() as client:
        await client.say("a long thought")
        await book.reached(1)
        assert "a long thought" in json.dumps(await client.call("stop"))
        await book.abandoned()
        assert await client.ask("next") == "echo: next"


async def test_stop_from_another_channel(stage, name):
    book = Book({"a long thought": HANG})
    async with (
        stage.play(book, name) as daemon,
        daemon.client("web", "busy") as busy,
        daemon.client("cli", "main") as cli,
    ):
        await busy.say("a long thought")
        await book.reached(1)
        assert "a long thought" in await cli.ask("/stop")
        await book.abandoned()
        assert "stopped from another chat" in (await busy.reply())["text"]
        assert await busy.ask("next") == "echo: next"


async def test_ten_stops_at_once_are_all_answered(stage, name):
    async with stage.play(book := Book({"a long thought": HANG}), name) as daemon, daemon.client() as client:
        await client.say("a long thought")
        await book.reached(1)
        for _ in range(10):
            await client.post("/stop")
        told = [frame["text"] for frame in await client.replies(10)]
        assert sum("a long thought" in text for text in told) == 1
        assert await client.ask("next") == "echo: next"


# ------------------------------------------------------------------ /new and the session file


async def test_new_archives_the_session_byte_for_byte(tmp_path):
    async with serving(tmp_path, book := Book()) as daemon, daemon.client() as client:
        await client.ask("remember 42")
        current = daemon.home / "data" / "main" / "current.jsonl"
        await client.fence()
        before = current.read_bytes()
        told = await client.ask("/new")
        [archive] = [path for path in current.parent.iterdir() if ARCHIVE.fullmatch(path.name)]
        assert archive.name in told
        assert archive.read_bytes().startswith(before)
        assert "remember 42" not in current.read_text()
        await client.ask("what was it?")
        assert "remember 42" not in json.dumps(book.asked[-1].body)


async def test_new_twice_in_one_second_keeps_both_archives(tmp_path):
    async with serving(tmp_path, Book()) as daemon, daemon.client() as client:
        for n in range(4):
            await client.say(f"chapter {n}")
            await client.say("/new")
        await client.replies(8)
        archives = [path for path in (daemon.home / "data" / "main").iterdir() if ARCHIVE.fullmatch(path.name)]
        assert len(archives) == 4
        texts = sorted(
            line["content"].splitlines()[-1] for path in archives for line in lines(path) if line["role"] == "user"
        )
        assert texts == [f"chapter {n}" for n in range(4)]


async def test_new_keeps_its_place_in_the_queue(tmp_path):
    async with serving(tmp_path, book := Book()) as daemon, daemon.client() as client:
        book.hold()
        await client.say("old one")
        await client.say("/new")
        await client.say("young one")
        book.release()
        replies = [frame["text"] for frame in await client.replies(3)]
        assert (replies[0], replies[2]) == ("echo: old one", "echo: young one")
        assert "old one" not in book.about("young one")[0].user


async def test_the_fresh_session_names_its_archive(tmp_path):
    async with serving(tmp_path, Book()) as daemon, daemon.client() as client:
        await client.ask("hello")
        await client.ask("/new")
        first = session(daemon.home)[0]
        assert first["role"] == "system"
        assert ARCHIVE.fullmatch(first["metadata"]["previousSession"])


async def test_session_file_line_by_line(tmp_path):
    """What is in each line of a turn with a thought, a tool and two replies."""
    book = Book({"time?": [Thought("let me look", (Call("current_time", {"timezone": "UTC"}),)), say("late", "very")]})
    async with serving(tmp_path, book) as daemon, daemon.client("web", "c1", replyTo="t") as client:
        await client.say("time?", id="m-1")
        await client.replies(2)
        await client.ask("/help")
        await client.ask("next")
        user, look, clock, speak, first, second, *_ = session(daemon.home)
    for line in (user, look, clock, speak, first, second):
        assert set(line) <= {"ts", "role", "content", "toolCalls", "toolCallId", "metadata"}
        assert isinstance(line["ts"], int)
        assert "" not in line.values()
        assert [] not in line.values()
        assert {} not in line.values()
    assert (user["role"], user["content"]) == ("user", "[channel: web | id: c1 | thread: t]\ntime?")
    assert (look["role"], look["content"]) == ("assistant", "let me look")
    [call] = look["toolCalls"]
    assert set(call) == {"id", "name", "arguments"}
    assert (call["name"], call["arguments"]) == ("current_time", {"timezone": "UTC"})
    assert (clock["role"], clock["toolCallId"]) == ("tool", call["id"])
    assert json.loads(clock["content"])["timezone"] == "UTC"
    assert speak["role"] == "assistant"
    assert "content" not in speak
    assert [c["arguments"]["text"] for c in speak["toolCalls"]] == ["late", "very"]
    assert [first["toolCallId"], second["toolCallId"]] == [c["id"] for c in speak["toolCalls"]]


async def test_the_turn_is_on_disk_before_the_reply_is_seen(stage, name):
    async with stage.play(Book({"hi": Thought("warmly now", (reply("hello"),))}), name) as daemon:
        async with daemon.client() as client:
            await client.say("hi")
            await client.reply()
            daemon.kill()
        assert any(line.get("content") == "warmly now" for line in session(daemon.home))


async def test_ui_events_are_not_in_the_session(stage, name):
    async with stage.play(Book(), name) as daemon, daemon.client() as client:
        await client.ask("hello")
        await client.get("typing", active=False)
        await client.ask("bye")
        assert {line["role"] for line in stage.session()} == {"user", "assistant", "tool"}
        assert "typing" not in json.dumps(stage.session())


# ------------------------------------------------------------------ commands that change the conversation


async def test_the_daily_commands_in_the_real_process(stage, name):
    """Second names, retry, context, and going on with an archived conversation after a restart."""
    async with stage.play(book := Book(), name) as daemon, daemon.client() as client:
        await client.ask("/new")
        await client.ask("the word is xyzzy")
        assert "Today: " in (told := await client.ask("/cost"))
        assert "(/cost is /usage.)" in told
        assert "· free: " in await client.ask("/context")
        await client.ask("/retry")
        assert book.asked[-1].user.endswith("the word is xyzzy")
        assert "(/clear is /new.)" in await client.ask("/clear")
        await client.ask("something else")
        assert "the word is xyzzy" in await client.ask("/resume")
        assert "You are back" in await client.ask("/resume xyzzy")
        await daemon.restart()
        async with daemon.client(lastSeq=9) as again:
            assert await again.ask("and now") == "echo: and now"
            assert any("xyzzy" in str(message) for message in book.asked[-1].messages)
            assert "There is no command /compress. Did you mean /compact?" in await again.ask("/compress")
