"""What a program reaches of the agent's parts: skills and memory; files of a turn; the order of the steps of a turn."""

from __future__ import annotations

import json

from pegasus.embedding import InboundMessage, content_of
from pegasus.main_agent.session_files import chat_files
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
