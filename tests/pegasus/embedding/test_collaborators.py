"""What a program reaches of the agent's parts: skills and memory; files of a turn; the order of the steps of a turn."""

from __future__ import annotations

import json
import subprocess
import sys

import trio

from pegasus.embedding import InboundMessage, content_of
from pegasus.main_agent import actor
from pegasus.main_agent.session import chat_files
from pegasus.messages import Address, Media
from pegasus.settings import AgentSettings, SessionSettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import ScriptedModel, call, say

from .world import DIRECT, converse, final, open_agent, reply


def write_skill(folder, name, body="Do it."):
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: does it\n---\n{body}\n")


async def test_skills_are_the_folders_with_a_skill_file_and_have_absolute_paths(autojump_clock, tmp_path):
    write_skill(tmp_path, "tidy")
    (tmp_path / "empty").mkdir()
    async with open_agent(ScriptedModel([]), skills=(tmp_path,)) as agent:
        await agent.skills.refresh()
        skills = {skill.name: skill for skill in agent.skills.all()}
    assert "tidy" in skills
    assert "empty" not in skills
    assert (skills["tidy"].folder / "SKILL.md").is_absolute()


async def test_what_looks_like_a_skill_and_is_none_is_answered_and_a_path_reaches_nothing(autojump_clock, tmp_path):
    write_skill(tmp_path / "skills", "tidy")
    write_skill(tmp_path, "outside", "SECRET")
    model = ScriptedModel(lambda request: say("", reply("just a text")))
    async with open_agent(model, skills=(tmp_path / "skills",)) as agent:
        assert "tidy" in (await final(agent, "/tidi")).content
        await final(agent, "/../outside")
    assert not any("SECRET" in turn.text for request in model.requests for turn in request.turns)


async def test_memory_is_read_and_written(autojump_clock):
    async with open_agent(ScriptedModel([])) as agent:
        await agent.memory.write("facts/cat.md", "# Cat\n\nIts name is Mau.\n")
        assert "Mau" in (await agent.memory.read("facts/cat.md"))


async def test_a_file_that_comes_in_is_named_to_the_model():
    model = ScriptedModel([say("", reply("Nice"))])
    async with open_agent(model) as agent:
        await final(agent, "Look", media=(Media("note.txt", "text/plain", "SGVsbG8="),))
    assert "note.txt" in model.requests[0].turns[-1].text


async def test_files_go_out_with_the_final_message_of_their_own_chat_and_once(tmp_path):
    (tmp_path / "chart.txt").write_text("a chart")
    model = ScriptedModel(
        [say("", call("send_file", "f", path="chart.txt")), say("Here it is"), say("Nothing"), say("Nothing more")]
    )
    async with open_agent(model, settings=DIRECT, workspace=tmp_path) as agent:
        sent = await final(agent, "Draw", "a")
        other = await final(agent, "And you?", "b")
        again = await final(agent, "More?", "a")
    assert [(media.name, content_of(media)) for media in sent.media] == [("chart.txt", b"a chart")]
    assert (other.media, again.media) == ((), ())


async def test_the_steps_of_a_turn_have_the_order_command_window_send_stream_final(autojump_clock):
    """A command reaches no model; older messages are consolidated before the next thought; the answer is streamed, then final."""
    asked = []

    def voice(request):
        asked.append(
            "consolidate" if "historyEntry" in request.turns[-1].text or "historyEntry" in request.system else "think"
        )
        return say(json.dumps({"historyEntry": "We talked."})) if asked[-1] == "consolidate" else say("Yes.")

    settings = Settings(agent=AgentSettings(speech="direct"), session=SessionSettings(memory_window=4))
    disk = MemoryDisk()
    async with open_agent(ScriptedModel(voice), settings=settings, disk=disk) as agent:
        await final(agent, "/help")
        assert asked == []
        for number in range(6):
            messages = await converse(agent, f"Message {number}")
            assert [message.kind for message in messages][-1] == "final"
    assert "consolidate" in asked
    path = chat_files(Address("cli", "main")).path
    assert len(disk.content(path).splitlines()) < 12


async def test_the_session_says_who_has_written_and_where(autojump_clock):
    model = ScriptedModel([say("", reply("Hi", "c1"))])
    async with open_agent(model) as agent:
        async for _ in agent.process_message(InboundMessage("telegram", "anna", "c1", "Hello", reply_to="t9")):
            pass
    assert model.requests[0].turns[-1].text.startswith("[channel: telegram | id: c1 | thread: t9")


async def test_a_session_is_read_once_and_then_held_in_memory(autojump_clock, monkeypatch):
    loaded, load = [], actor.load_session

    async def count(journal, clock, files, *more):
        loaded.append(files.current)
        return await load(journal, clock, files, *more)

    monkeypatch.setattr(actor, "load_session", count)
    async with open_agent(ScriptedModel(lambda request: say("", reply("ok", "a")))) as agent:
        for _ in range(3):
            await final(agent, "Hello", "a")
    assert loaded == ["cli%3Aa.jsonl"]


async def test_a_session_grows_by_turns_and_new_puts_it_aside_whole(autojump_clock):
    disk = MemoryDisk()
    async with open_agent(ScriptedModel(lambda request: say("", reply("ok", "a"))), disk=disk) as agent:
        await final(agent, "Hello", "a")
        path = chat_files(Address("cli", "a")).path
        before = disk.content(path)
        await final(agent, "Again", "a")
        await trio.sleep(1)  # the result of the reply is written a moment later
        assert disk.content(path).startswith(before), "it is only appended to"
        whole = disk.content(path)
        assert "is kept in" in (await final(agent, "/new", "a")).content
    archives = [name for name in disk.paths() if name.startswith("sessions/cli%3Aa.2")]
    assert [disk.content(name) for name in archives] == [whole]
    assert b"Hello" not in disk.content(path)


def test_consolidation_has_thirty_seconds_and_fifty_messages_by_default():
    assert (Settings().session.consolidation_timeout, Settings().session.memory_window) == (30.0, 50)


def test_no_file_of_the_home_is_opened_in_the_event_loop(tmp_path):
    """Python's audit events tell of each call of `open`, by whichever library; files are opened in threads."""
    program = f"""
import sys, threading, trio
from pegasus.embedding import Agent, InboundMessage

home, opened, turns = {str(tmp_path)!r}, [], False

def watch(event, args):
    if event == "open" and turns and threading.current_thread() is threading.main_thread() and str(args[0]).startswith(home):
        opened.append(args[0])

async def main():
    global turns
    async with Agent.create({{"models": {{"default": "offline/stand-in"}}}}, home=home) as agent:
        turns = True
        for text in ("hello", "remember that I like tea", "remind me in 100 seconds to sit", "/new"):
            async for message in agent.process_message(InboundMessage("cli", "me", "main", text)):
                pass
        turns = False

sys.addaudithook(watch)
trio.run(main)
print(opened)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
