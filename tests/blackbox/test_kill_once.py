"""One kill -9 at each interesting moment."""

from __future__ import annotations

import json
import os
import re

import pytest
import trio

from tests.blackbox.support import SILENCE, Book, Call, Daemon, Exited, Thought, open_calls, reply, say, serving, until
from tests.blackbox.support.files import session


async def assert_answered_once(daemon, *texts, last=0):
    """A client that knows `last` hears exactly these texts, then the answer to something new."""
    async with daemon.client(lastSeq=last) as client:
        await client.say("fence")
        replies = await client.replies(len(texts) + 1)
        assert [frame["text"] for frame in replies] == [*texts, "echo: fence"]
        assert [frame["seq"] for frame in replies] == list(range(last + 1, last + len(texts) + 2))


async def test_right_after_accepted(stage, name):
    async with stage.play(Book(), name) as daemon:
        async with daemon.client() as client:
            await client.say("hello")
            daemon.kill()
        await daemon.start()
        await assert_answered_once(daemon, "echo: hello")


async def test_while_the_model_thinks(stage, name):
    async with stage.play(book := Book(), name) as daemon:
        async with daemon.client() as client:
            book.hold()
            await client.say("hello")
            await client.say("are you there?")
            await book.waiting()
            daemon.kill()
        book.release()
        await daemon.start()
        await assert_answered_once(daemon, "echo: hello", "echo: are you there?")
        assert len(book.about("hello")) == 2


async def test_after_the_reply_before_the_ack(stage, name):
    async with stage.play(book := Book(), name) as daemon:
        async with daemon.client() as client:
            await client.say("hello")
            first = await client.reply()
            daemon.kill()
        await daemon.start()
        async with daemon.client() as client:
            assert await client.reply() == first
        await assert_answered_once(daemon, last=1)
        assert len(book.about("hello")) == 1, "what was said is not thought about again"


async def test_between_two_thoughts_about_one_message(stage, name):
    """What the first thought said is not said again, and the second goes on from its results."""
    book = Book({"go": [Thought("step one", (reply("working"), Call("current_time"))), say("done")]})
    async with stage.play(book, name) as daemon:
        async with daemon.client() as client:
            book.hold(after=1)
            await client.say("go")
            await client.reply()
            await book.waiting()
            daemon.kill()
        book.release()
        await daemon.start()
        await assert_answered_once(daemon, "working", "done")
        assert [view.thoughts for view in book.about("go")] == [0, 1, 1]
        assert len(book.about("go")[2].results) == 2


async def test_in_the_middle_of_several_replies(stage, name):
    texts = [f"part {n}" for n in range(20)]
    async with stage.play(Book({"tell me": say(*texts)}), name) as daemon:
        async with daemon.client() as client:
            await client.say("tell me")
            await client.reply()
            daemon.kill()
        await daemon.start()
        await assert_answered_once(daemon, *texts)


async def test_after_silence(stage, name):
    """Chosen silence is not reconsidered."""
    async with stage.play(book := Book({"👍": SILENCE}), name) as daemon:
        async with daemon.client() as client:
            await client.ask(
                "hello"
            )  # from here on the model is known to call tools, so that its text alone is not spoken
            await client.say("👍")
            await client.ask("next")
            daemon.kill()
        await daemon.start()
        await assert_answered_once(daemon, last=2)
        assert len(book.about("👍")) == 1


async def test_with_a_backlog(stage, name):
    async with stage.play(book := Book(), name) as daemon:
        async with daemon.client() as client:
            book.hold()
            for n in range(30):
                await client.post(f"m{n}", id=f"m{n}")
            for n in range(30):
                await client.accepted(f"m{n}")
            daemon.kill()
        book.release()
        await daemon.start()
        await assert_answered_once(daemon, *(f"echo: m{n}" for n in range(30)))


async def test_while_starting(stage, name):
    """Killed again and again, a little later each time, with work waiting for it."""
    async with stage.play(book := Book(), name) as daemon:
        async with daemon.client() as client:
            book.hold()
            for n in range(3):
                await client.say(f"m{n}")
            daemon.kill()
        book.release()
        for moment in (0.02, 0.08, 0.15, 0.2, 0.25, 0.3, 0.35):
            daemon.spawn()
            await trio.sleep(moment)
            daemon.kill()
        await daemon.start()
        await assert_answered_once(daemon, *(f"echo: m{n}" for n in range(3)))


@pytest.mark.parametrize("moment", [0.1, 0.17, 0.22, 0.3])
async def test_during_the_very_first_start(tmp_path, moment):
    """Whatever the first start left behind, the next one works."""
    daemon = Daemon(tmp_path / "home", {"models.default": "offline/stand-in"})
    daemon.spawn()
    await trio.sleep(moment)
    await daemon.restart()
    async with daemon.client() as client:
        await client.say("hello")
        assert (await client.reply())["seq"] == 1


@pytest.mark.parametrize("moment", [0, 0.003])
async def test_around_new(tmp_path, moment):
    """The old session is in an archive or still current, never lost; /new is answered once."""
    async with serving(tmp_path, Book()) as daemon:
        async with daemon.client() as client:
            await client.ask("remember 42")
            await client.say("/new")
            await trio.sleep(moment)
            daemon.kill()
        await daemon.start()
        async with daemon.client(lastSeq=1) as client:
            await client.say("fence")
            replies = await client.replies(2)
            assert replies[1]["text"] == "echo: fence"
            assert [frame["seq"] for frame in replies] == [2, 3]
        archives = [p for p in (daemon.home / "data" / "main").glob("*.jsonl") if p.name != "current.jsonl"]
        assert len(archives) == 1
        assert "remember 42" in archives[0].read_text()
        assert "remember 42" not in json.dumps(session(daemon.home))


async def test_between_the_archive_and_the_fresh_session(stage, name):
    """/new is two names in a folder. Killed when it has moved the old session, it must not forget what was answered in it."""
    async with stage.play(book := Book(), name) as daemon:
        folder = daemon.home / "data" / "main"
        async with daemon.client() as client:
            book.hold()
            for n in range(3):
                await client.say(f"hello {n}")
            await client.say("/new")
            await client.say("after")
            await book.waiting()  # the folder exists once the first thought has begun
            before = set(os.listdir(folder))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, _kill_at_a_new_name, daemon, folder, before)
                book.release()
        await daemon.start()
        async with daemon.client(lastSeq=0) as client:
            await client.say("fence")
            replies = await client.replies(6)
        texts = [frame["text"] for frame in replies]
        assert texts[:3] == ["echo: hello 0", "echo: hello 1", "echo: hello 2"]
        assert "fresh" in texts[3]
        assert texts[4:] == ["echo: after", "echo: fence"]


def _kill_at_a_new_name(daemon, folder, before):
    """Looks as often as it can: what it waits for is over in a millisecond."""
    while daemon.alive:
        if any(re.fullmatch(r"[\d-]+\.jsonl", name) for name in set(os.listdir(folder)) - before):
            daemon.kill()


async def test_during_stop(stage, name):
    """/stop accepted, then killed: the answer comes after the restart, and the session is well-formed."""
    async with stage.play(book := Book(), name) as daemon:
        async with daemon.client() as client:
            book.hold()
            await client.say("a long thought")
            await book.waiting()
            await client.say("/stop")
            daemon.kill()
        book.release()
        await daemon.start()
        async with daemon.client(lastSeq=0) as client:
            await client.say("fence")
            await client.get("reply", text="echo: fence")
            await until(lambda: open_calls(session(daemon.home)) == [], "a well-formed session")


async def test_many_kills_over_one_message_do_not_set_it_aside(stage, name):
    """Three crashes of the Main Agent set a message aside; kills of the process are not its fault."""
    async with stage.play(book := Book(), name) as daemon:
        book.hold()
        async with daemon.client() as client:
            await client.say("hello")
        for n in range(4):
            await book.reached(n + 1)
            daemon.kill()
            await daemon.start()
        await book.reached(5)
        book.release()
        await assert_answered_once(daemon, "echo: hello")


async def test_nothing_is_lost_when_the_stop_is_graceful(stage, name):
    async with stage.play(book := Book(), name) as daemon:
        async with daemon.client() as client:
            book.hold()
            await client.say("hello")
            await book.waiting()
        assert await daemon.stop() == 0
        book.release()
        await daemon.start()
        await assert_answered_once(daemon, "echo: hello")


async def test_a_home_copied_while_running_is_a_good_backup(tmp_path):
    """Append-only files: a copy taken at any moment starts, and knows everything that was accepted before it."""
    import shutil

    async with serving(tmp_path, Book()) as daemon:
        async with daemon.client() as client:
            await client.ask("hello")
            shutil.copytree(daemon.home, tmp_path / "copy", ignore=shutil.ignore_patterns("lock", "run"))
        daemon.kill()
        daemon.home = tmp_path / "copy"
        try:
            await daemon.start()
        except Exited as error:
            raise AssertionError("the copy does not start") from error
        await assert_answered_once(daemon, last=1)
