"""Drafts from the model to the channel: what a person sees while a reply is being written, and after it broke off."""

import json
from itertools import pairwise

import pytest
import trio

from pegasus.messages import ChannelInfo
from pegasus.models import CallBegun, CallPiece, ReasoningPiece
from pegasus.settings import AgentSettings, Settings
from pegasus.testing.scripted import After, Hang, ScriptedModel, Streamed, call, down, reply, say
from pegasus.testing.world import CLI, FakeChannel, open_world

TEXT = "Once upon a time there was a reply."
WEB = ChannelInfo("web", "c1")


class Screen(FakeChannel):
    """A channel that keeps what a client shows: the draft of each conversation, and everything in its order."""

    def __init__(self, type="cli"):
        super().__init__(type)
        self.log = []
        self.draft = {}

    async def show_draft(self, draft):
        self.log.append(("cut", draft.text) if draft.cut else draft.text)
        self.draft[draft.channel.channel_id] = "" if draft.cut else draft.text

    async def deliver(self, reply):
        await super().deliver(reply)
        self.log.append(("reply", reply.text))
        self.draft[reply.channel.channel_id] = ""

    async def show_typing(self, typing):
        if not typing.active:
            self.log.append("end")
            self.draft[typing.channel.channel_id] = ""


def written(*calls, step=None, keep=None, pause=0.1):
    """An answer whose reply calls are streamed in pieces of four characters, and then `step` instead of the answer.

    keep: only so many pieces are streamed.
    """
    pieces = []
    for number, called in enumerate(calls):
        whole = json.dumps(dict(sorted(called.arguments.items())))  # channelId comes before text
        pieces += [CallBegun(number, called.name)]
        pieces += [CallPiece(number, whole[i : i + 4]) for i in range(0, len(whole), 4)]
    return Streamed(tuple(pieces[:keep]), say("private", *calls) if step is None else step, pause)


def settings(**agent):
    return Settings(agent=AgentSettings(**agent))


async def watch(*script, config=None, screens=None):
    """Say something and wait until the agent has nothing to do. Return the screen of the terminal."""
    screens = screens or [Screen()]
    async with open_world(ScriptedModel(script), settings=config, channels=screens) as world:
        await world.say("hi")
        await world.idle()
    return screens[0]


async def test_a_reply_is_shown_while_it_is_written_and_then_replaces_its_draft(autojump_clock):
    screen = await watch(written(reply("r", TEXT)))
    *drafts, delivered, end = screen.log
    assert (delivered, end) == (("reply", TEXT), "end")
    assert len(drafts) > 2
    assert all(TEXT.startswith(draft) and draft for draft in drafts)
    assert drafts == sorted(drafts, key=len)


async def test_an_answer_that_is_not_streamed_has_no_draft(autojump_clock):
    screen = await watch(After(1, say("", reply("r", TEXT))))
    assert screen.log == [("reply", TEXT), "end"]


async def test_several_replies_stay_visible_until_they_come(autojump_clock):
    screen = await watch(written(reply("a", "one"), reply("b", "two"), pause=0.3))
    assert "one\n\ntwo".startswith(screen.log[-4])
    assert screen.log[-4].startswith("one\n\nt")
    assert screen.log[-3:] == [("reply", "one"), ("reply", "two"), "end"]


async def test_the_next_thought_begins_its_draft_anew(autojump_clock):
    script = [written(reply("a", "one"), call("current_time", "t")), written(reply("b", "two"))]
    screen = await watch(*script)
    after = screen.log[screen.log.index(("reply", "one")) + 1 :]
    assert "one" not in "".join(draft for draft in after if isinstance(draft, str))
    assert after[-2:] == [("reply", "two"), "end"]


async def test_an_answer_that_breaks_off_is_withdrawn_before_the_next_attempt(autojump_clock):
    broken = written(reply("r", "wrong text"))
    whole = written(reply("r", "right text"))
    pieces = (*broken.pieces[:-2], None, *[None] * 10, *whole.pieces)
    screen = await watch(Streamed(pieces, whole.step, 0.1))
    begin = screen.log.index("")
    assert "wrong text".startswith(screen.log[begin - 1])
    assert all("right text".startswith(draft) for draft in screen.log[begin:-2])


async def test_a_draft_is_withdrawn_when_the_model_fails(autojump_clock):
    screen = await watch(written(reply("r", TEXT), step=down(), keep=20))
    withdrawn = screen.log.index("")
    assert screen.log[withdrawn - 1]
    assert screen.log[withdrawn + 1][0] == "reply", "the apology"


async def test_a_draft_is_left_as_it_is_by_a_stop_of_its_conversation(autojump_clock):
    screen = Screen()
    model = ScriptedModel([written(reply("r", TEXT), step=Hang(), keep=20)])
    async with open_world(model, channels=[screen]) as world:
        await world.say("hi")
        await trio.sleep(5)
        assert screen.draft["main"]
        began = trio.current_time()
        await world.say("/stop")
        assert "stopped" in (await world.next_reply()).text.lower()
        assert trio.current_time() - began < 1
        cut = next(said for said in screen.log if said[0] == "cut")
        assert TEXT.startswith(cut[1])
        assert "" not in screen.log
        assert [line["content"] for line in world.session() if line["metadata"].get("type") == "cut"] == [cut[1]]
        await trio.sleep(60)
        assert screen.log[screen.log.index(cut) + 1 :] == ["end", ("reply", screen.texts[-1])]


async def test_a_draft_in_another_conversation_is_withdrawn_by_a_stop(autojump_clock):
    cli, web = Screen(), Screen("web")
    elsewhere = reply("r", TEXT, "c1", channelType="web")
    script = [say("", reply("a", "hello", "c1")), written(elsewhere, step=Hang(), keep=30)]
    async with open_world(ScriptedModel(script), channels=[cli, web]) as world:
        await world.say("hi", WEB)
        await world.idle()
        await world.say("tell web")
        await trio.sleep(10)
        assert web.draft["c1"]
        assert cli.draft.get("main", "") == ""
        await world.say("/stop")
        await world.next_reply()
        assert web.draft["c1"] == ""


async def test_a_draft_is_withdrawn_when_a_newer_message_interrupts(autojump_clock):
    screen = Screen()
    script = [written(reply("r", "to the first"), step=Hang(), keep=20), written(reply("r", "to both"))]
    async with open_world(ScriptedModel(script), settings=settings(when_busy="interrupt"), channels=[screen]) as world:
        await world.say("first")
        await trio.sleep(5)
        await world.say("second")
        await world.idle()
    begin = screen.log.index("")
    assert "to the first".startswith(screen.log[begin - 1])
    assert all("to both".startswith(draft) for draft in screen.log[begin:-2])


async def test_a_draft_is_withdrawn_when_the_agent_crashes(autojump_clock):
    screen = await watch(written(reply("r", TEXT), step=RuntimeError("planned"), keep=20), say("", reply("r", TEXT)))
    assert [frame for frame in screen.log if frame != "end"][-2:] == ["", ("reply", TEXT)]


async def test_a_draft_whose_reply_is_refused_is_withdrawn(autojump_clock):
    pieces = (CallBegun(0, "reply"), CallPiece(0, '{"channelId":"main","text":"psst"'), CallPiece(0, ',"replyTo":5}'))
    refused = reply("r", "psst", replyTo=5)
    script = [Streamed(pieces, say("", refused), 1.0), After(60, say(""))]
    screen = Screen()
    async with open_world(ScriptedModel(script), channels=[screen]) as world:
        await world.say("hi")
        await trio.sleep(30)
        assert screen.log == ["psst", ""]


async def test_only_as_many_drafts_are_shown_as_replies_may_be_given(autojump_clock):
    script = [written(reply("a", "one"), reply("b", "two")), say("")]
    screen = await watch(*script, config=settings(max_replies=1))
    assert not [draft for draft in screen.log if isinstance(draft, str) and "t" in draft]


async def test_text_beside_calls_is_never_shown_in_a_monologue(autojump_clock):
    called = written(reply("r", TEXT))
    step = Streamed(("a private ", "thought", *called.pieces), say("a private thought", reply("r", TEXT)), 0.1)
    screen = await watch(step)
    assert "private" not in repr(screen.log)


@pytest.mark.parametrize("is_shown", [True, False])
async def test_reasoning_is_shown_if_the_owner_wants_it_and_is_never_part_of_a_reply(autojump_clock, is_shown):
    called = written(reply("r", TEXT))
    step = Streamed((ReasoningPiece("Let me "), ReasoningPiece("think."), *called.pieces), called.step, 0.5)
    channel = FakeChannel("cli")
    await watch(step, config=settings(show_reasoning=is_shown), screens=[channel])
    reasoning = [draft.reasoning for draft in channel.drafts]
    assert reasoning[:2] == (["Let me ", "Let me think."] if is_shown else ["", ""])
    assert channel.texts == [TEXT]


async def test_reasoning_before_silence_is_withdrawn(autojump_clock):
    channel = FakeChannel("cli")
    step = Streamed((ReasoningPiece("Nothing to say"), ReasoningPiece(".")), say("private"), 1.0)
    await watch(step, config=settings(show_reasoning=True), screens=[channel])
    assert [(draft.text, draft.reasoning) for draft in channel.drafts] == [("", "Nothing to say"), ("", "")]


async def test_a_reply_to_a_thread_is_drafted_there(autojump_clock):
    slack = ChannelInfo("slack", "#a", "U1", "thread|1")
    screen = FakeChannel("slack")
    answered = written(reply("r", TEXT, "#a", replyTo="thread%7C1"))
    async with open_world(ScriptedModel([answered]), channels=[screen]) as world:
        await world.say("hi", slack)
        await world.idle()
    assert screen.drafts[-1].channel == screen.replies[-1].channel == slack


async def test_drafts_are_four_a_second_at_most(autojump_clock):
    times = []

    class Clock(FakeChannel):
        async def show_draft(self, draft):
            times.append(trio.current_time())

    await watch(written(reply("r", TEXT * 20), pause=0.005), screens=[Clock("cli")])
    assert len(times) > 3
    assert min(b - a for a, b in pairwise(times)) > 0.249


async def test_the_first_draft_comes_at_once(autojump_clock):
    times = []

    class Clock(FakeChannel):
        async def show_draft(self, draft):
            times.append(trio.current_time())

    class Model:
        name = "scripted/slow"

        async def generate(self, request):
            request.on_pieces([CallBegun(0, "reply")])
            request.on_pieces([CallPiece(0, '{"channelId":"main",')])
            await trio.sleep(2)
            request.on_pieces([CallPiece(0, '"text":"O')])
            times.append(trio.current_time())
            await trio.sleep(1)
            return say("", reply("r", "Oh"))

    async with open_world(Model(), channels=[Clock("cli")]) as world:
        await world.say("hi", CLI)
        await world.next_reply()
    assert times[1] - times[0] < 0.03


async def test_text_of_an_unproven_model_is_shown_once_it_is_known_to_speak_directly(autojump_clock):
    def spoken(text):
        return Streamed((text[:10], text[10:20], text[20:]), say(text), 0.3)

    screen = Screen()
    script = [spoken("This is only a monologue."), spoken("Sorry, once more."), spoken("This is seen by all.")]
    async with open_world(ScriptedModel(script), channels=[screen]) as world:
        await world.say("first")
        await world.idle()
        assert screen.log == [("reply", "This is only a monologue."), "end"]
        del screen.log[:]
        await world.say("second")
        await world.idle()
    assert screen.log == ["This is se", "This is seen by all.", ("reply", "This is seen by all."), "end"]
