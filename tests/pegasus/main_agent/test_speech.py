"""Any model is heard: how the agent finds out how a model speaks, and what it keeps of that."""

import json
from contextlib import suppress

import attrs
import pytest
import trio

from actors import ActorError, GaveUp
from pegasus.messages import ChannelInfo
from pegasus.models import ModelError, ModelResponse, Usage
from pegasus.settings import AgentSettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, ScriptedModel, call, down, reply, say
from pegasus.testing.world import FakeChannel, kill, open_world
from tests.pegasus.conversation.test_projection import is_valid
from tests.pegasus.main_agent.voices import CLI_OWNS, SLACK, spawn

NAME = "scripted/test"
MONOLOGUE = Settings(agent=AgentSettings(speech="monologue"))

TRAITS_FILE = "models/traits.json"


async def texts_after(world, *messages):
    for text in messages:
        await world.say(text)
        await world.idle()
    return world.channels["cli"].texts


def traits_on(disk):
    return json.loads(disk.content(TRAITS_FILE))[NAME]


# ------------------------------------------------------------------ finding out


async def test_text_without_a_call_is_nudged_once_and_then_delivered(autojump_clock):
    model = ScriptedModel([say("Hello!"), say("Sorry. Hello again!")])
    async with open_world(model) as world:
        assert await texts_after(world, "hi") == ["Hello!"]
        assert traits_on(world.disk)["writesText"]
    assert "Nobody heard this" in model.requests[1].turns[-1].text
    assert all(is_valid(request.turns) for request in model.requests)


async def test_the_nudge_and_the_second_text_leave_the_session(autojump_clock):
    async with open_world(ScriptedModel([say("Hello!"), say("Hello again!")])) as world:
        await texts_after(world, "hi")
        assert [(line["role"], line["content"]) for line in world.session()] == [
            ("user", "[channel: cli | id: main]\nhi"),
            ("assistant", "Hello!"),
        ]


async def test_a_model_that_writes_text_speaks_directly_from_then_on(autojump_clock):
    model = ScriptedModel([say("Hello!"), say("Hello!"), say("Fine.")])
    async with open_world(model) as world:
        assert await texts_after(world, "hi", "how are you?") == ["Hello!", "Fine."]
    assert "INNER MONOLOGUE" in model.requests[0].system
    assert "INNER MONOLOGUE" not in model.requests[2].system


async def test_what_was_found_out_is_kept_over_restarts(autojump_clock):
    async with open_world(ScriptedModel([say("Hello!"), say("Hello!")])) as world:
        await texts_after(world, "hi")
    again = ScriptedModel([say("Fine.")])
    async with open_world(again, disk=world.disk) as world:
        assert await texts_after(world, "how are you?") == ["Fine."]


async def test_a_model_that_replies_after_the_nudge_is_trusted(autojump_clock):
    model = ScriptedModel([say("Hello!"), say("", reply("r1", "Hello!")), say("They only thanked me.")])
    async with open_world(model) as world:
        assert await texts_after(world, "hi", "thanks") == ["Hello!"]
        assert traits_on(world.disk)["callsTools"]
    assert len(model.requests) == 3


async def test_a_trusted_models_text_is_never_delivered(autojump_clock):
    model = ScriptedModel([say("", reply("r1", "Hello!")), say("a private thought"), say("")])
    async with open_world(model) as world:
        assert await texts_after(world, "hi", "thanks", "bye") == ["Hello!"]
    assert len(model.requests) == 3


async def test_a_call_of_a_tool_that_is_not_offered_proves_nothing(autojump_clock):
    model = ScriptedModel([say("", call("speak", "c1")), say("Hello!"), say("Hello?")])
    async with open_world(model) as world:
        assert await texts_after(world, "hi") == ["Hello!"]


@pytest.mark.parametrize("first", ["", "  \n"])
async def test_if_the_first_answer_was_empty_the_second_text_is_delivered(autojump_clock, first):
    model = ScriptedModel([say(first), say("Hello!")])
    async with open_world(model) as world:
        assert await texts_after(world, "hi") == ["Hello!"]
    assert "Your answer was empty" in model.requests[1].turns[-1].text
    assert all(is_valid(request.turns) for request in model.requests)


@pytest.mark.parametrize("empty", [say(""), say(" \n\t"), ModelResponse("", (), Usage(), "end", reasoning="Hm.")])
async def test_a_model_that_gives_no_answer_twice_is_reported_in_one_sentence(autojump_clock, empty):
    async with open_world(ScriptedModel([empty, empty])) as world:
        [text] = await texts_after(world, "hi")
        assert text.startswith("The model gave no answer.")
        assert TRAITS_FILE not in world.disk.paths()


async def test_an_empty_answer_after_the_nudge_does_not_hide_the_first_text(autojump_clock):
    async with open_world(ScriptedModel([say("Hello!"), say("")])) as world:
        assert await texts_after(world, "hi") == ["Hello!"]
        assert TRAITS_FILE not in world.disk.paths()


async def test_a_failure_after_the_nudge_does_not_hide_the_first_text(autojump_clock):
    async with open_world(ScriptedModel([say("Hello!"), down()])) as world:
        assert await texts_after(world, "hi") == ["Hello!"]


async def test_silence_on_purpose_stays_silence(autojump_clock):
    model = ScriptedModel([say("They only greeted the room."), say("(silence)")])
    async with open_world(model) as world:
        assert await texts_after(world, "hi all") == []


async def test_a_model_found_to_speak_directly_is_asked_again_after_an_empty_answer(autojump_clock):
    model = ScriptedModel([say("Hello!"), say("Hello!"), say(""), say("Fine.")])
    async with open_world(model) as world:
        assert await texts_after(world, "hi", "how are you?") == ["Hello!", "Fine."]


async def test_the_reply_goes_to_where_the_message_came_from(autojump_clock):
    slack = FakeChannel("slack")
    async with open_world(ScriptedModel([say("Hello!"), say("Hello!")]), channels=(slack,)) as world:
        await world.say("hi", SLACK, message_id="m1")
        heard = await world.next_reply("slack")
    assert (heard.text, heard.channel.channel_id, heard.channel.reply_to) == ("Hello!", "D-general", "thread:1")
    assert heard.metadata["inReplyTo"] == "m1"


async def test_in_an_explicit_monologue_text_is_never_delivered(autojump_clock):
    model = ScriptedModel([say("a private thought")])
    async with open_world(model, settings=MONOLOGUE) as world:
        assert await texts_after(world, "hi") == []


@pytest.mark.parametrize("operation", range(1, 14))
async def test_the_first_text_is_delivered_once_whenever_the_power_fails(autojump_clock, operation):
    cli, model = FakeChannel("cli"), ScriptedModel(lambda _: say("hello"))
    with suppress(GaveUp):
        async with open_world(model, channels=(cli,)) as world:
            await world.say("x")
            world.disk.lose_power(operation)
            with suppress(ActorError):
                await world.idle()
            await kill(world)
    world.disk.crash()
    for _ in range(2):
        async with open_world(model, disk=world.disk, channels=(cli,)) as again:
            await again.idle()
            await kill(again)
    assert cli.texts == ["hello"]


# ------------------------------------------------------------------ results of tasks


@pytest.mark.parametrize("answer", ["It is ten.", ""])
async def test_a_tasks_result_is_not_lost_with_a_model_that_has_called_nothing_yet(autojump_clock, answer):
    """The model was changed while the task was at work."""
    model = ScriptedModel([say("", spawn("count")), say(answer), say(answer)])
    async with open_world(model, task_model=ScriptedModel([After(5, say("ten"))])) as world:
        await world.say("count to ten")
        await trio.sleep(1)
        await world.tree.services.main_agent.traits.choose_speech(NAME, "auto")
        text = (await world.next_reply()).text
    assert "ten" in text
    assert (text == answer) is bool(answer)


# ------------------------------------------------------------------ servers without tools


def refusal():
    return ModelError("scripted/test: the provider does not take tools with this model (400)", kind="tools", status=400)


async def test_a_server_that_refuses_tools_is_asked_without_them_in_the_same_turn(autojump_clock):
    model = ScriptedModel([refusal(), say("Hello!"), say("Fine.")])
    async with open_world(model) as world:
        assert await texts_after(world, "hi", "how are you?") == ["Hello!", "Fine."]
        assert traits_on(world.disk)["refusesTools"]
    assert model.requests[0].tools
    assert not model.requests[1].tools
    assert not model.requests[2].tools


async def test_a_fallback_that_refuses_tools_is_asked_without_them(autojump_clock):
    error = refusal()
    error.model = "other/model"
    model = ScriptedModel([error, say("Hello!"), say("", reply("r1", "Back again."))])
    async with open_world(model) as world:
        assert await texts_after(world, "hi", "and now?") == ["Hello!", "Back again."]
        assert json.loads(world.disk.content(TRAITS_FILE))["other/model"]["refusesTools"]
    assert [bool(request.tools) for request in model.requests] == [True, False, True]


async def test_a_call_of_reply_in_the_text_is_what_it_says_where_there_are_no_tools(autojump_clock):
    text = '<tool_call>{"name": "reply", "arguments": {"channelId": "main", "text": "Hello!"}}</tool_call>'
    async with open_world(ScriptedModel([refusal(), say(text)])) as world:
        assert await texts_after(world, "hi") == ["Hello!"]


async def test_earlier_calls_become_text_for_a_server_that_refuses_tools(autojump_clock):
    first = [say("", reply("r1", "Hello!"), call("current_time", "t1")), say("")]
    model = ScriptedModel([*first, refusal(), say("Fine.")])
    async with open_world(model) as world:
        assert await texts_after(world, "hi", "how are you?") == ["Hello!", "Fine."]
    turns = model.requests[-1].turns
    assert is_valid(turns)
    assert not any(getattr(turn, "calls", ()) or getattr(turn, "results", ()) for turn in turns)
    assert "Hello!" in turns[1].text
    assert "Result of current_time" in turns[2].text


async def test_a_monologue_without_tools_says_what_to_do(autojump_clock):
    async with open_world(ScriptedModel([refusal()]), settings=MONOLOGUE) as world:
        [text] = await texts_after(world, "hi")
    assert "/speech auto" in text


# ------------------------------------------------------------------ calls in circles


async def test_the_same_call_three_times_in_a_row_ends_the_turn_and_is_named(autojump_clock):
    model = ScriptedModel(lambda _: say("", call("current_time", "c")))
    async with open_world(model) as world:
        [text] = await texts_after(world, "hi")
    assert text == "I gave up: the tool current_time was called 3 times in a row with the same arguments."
    assert len(model.requests) == 3


async def test_three_calls_that_fail_for_the_same_reason_end_the_turn_and_name_it(autojump_clock):
    ids = iter(range(9))
    model = ScriptedModel(lambda _: say("", reply("r", "hi", f"wrong-{next(ids)}", channelType="sms")))
    async with open_world(model) as world:
        [text] = await texts_after(world, "hi")
    assert text.startswith(
        "I gave up: the tool reply failed 3 times in a row: nothing was said: no channel of type 'sms' with the id 'wrong-2'"
    )
    assert len(model.requests) == 3


async def test_calls_of_one_answer_that_fail_alike_do_not_end_the_turn(autojump_clock):
    looks = [call("memory_read", f"c{n}", path=f"facts/{n}.md") for n in range(4)]
    async with open_world(ScriptedModel([say("", *looks), say("", reply("r", "Nothing there."))])) as world:
        assert await texts_after(world, "hi") == ["Nothing there."]


async def test_the_same_reply_three_times_in_one_answer_is_said_twice_at_most(autojump_clock):
    answer = say("", *(reply(f"r{n}", "hi") for n in range(5)))
    async with open_world(ScriptedModel([answer])) as world:
        assert await texts_after(world, "hi") == ["hi", "hi"]


async def test_a_message_joined_by_nothing_counts_its_calls_anew(autojump_clock):
    look = say("", call("current_time", "c"))
    model = ScriptedModel([look, look, say(""), look, look, say("")])
    async with open_world(model) as world:
        assert await texts_after(world, "one", "two") == []


# ------------------------------------------------------------------ reply without a channelId


@pytest.mark.parametrize("missing", [{}, {"channelId": ""}, {"channelId": None}, {"channelType": "slack"}])
async def test_a_reply_without_a_channel_goes_to_the_source(autojump_clock, missing):
    slack = FakeChannel("slack")
    model = ScriptedModel([say("", call("reply", "r1", text="Hello!", **missing))])
    async with open_world(model, channels=(slack,)) as world:
        await world.say("hi", SLACK)
        heard = await world.next_reply("slack")
    assert (heard.text, heard.channel.channel_id, heard.channel.reply_to) == ("Hello!", "D-general", "thread:1")


async def test_a_wrong_channel_is_an_error(autojump_clock):
    model = ScriptedModel(
        [say("", reply("r1", "Hello!", "nowhere", channelType="sms")), say("", reply("r2", "Hello!"))]
    )
    async with open_world(model) as world:
        assert await texts_after(world, "hi") == ["Hello!"]
    assert model.requests[1].turns[-1].results[0].is_error


# ------------------------------------------------------------------ /speech and /model


async def test_speech_shows_and_changes_how_the_model_speaks(autojump_clock):
    model = ScriptedModel([say("Hello!"), say("a thought")])
    async with open_world(model) as world:
        texts = await texts_after(world, "/speech")
        assert texts[-1].startswith(f"{NAME}: It speaks only through the tool reply (auto:")
        texts = await texts_after(world, "/speech direct", "hi")
        assert texts[-2:] == [f"{NAME}: It speaks directly: its text is the reply (chosen with /speech).", "Hello!"]
        texts = await texts_after(world, "/speech monologue", "hi")
        assert texts[-1].endswith(
            "It speaks only through the tool reply (chosen with /speech)."
        )  # and "a thought" is private


async def test_the_choice_is_kept_over_restarts(autojump_clock):
    async with open_world(ScriptedModel([])) as world:
        await texts_after(world, "/speech direct")
    async with open_world(ScriptedModel([say("Hello!")]), disk=world.disk) as world:
        assert await texts_after(world, "hi", "/model") == [
            "Hello!",
            "I use scripted/test.\nIt speaks directly: its text is the reply (chosen with /speech).",
        ]


async def test_auto_finds_out_anew(autojump_clock):
    model = ScriptedModel([say("Hello!"), say("Hello!"), say("", reply("r1", "Now I know."))])
    async with open_world(model) as world:
        await texts_after(world, "hi", "/speech auto")
        assert (await texts_after(world, "again"))[-1] == "Now I know."
        assert traits_on(world.disk)["callsTools"]


async def test_a_word_that_is_no_way_of_speaking_is_refused(autojump_clock):
    async with open_world(ScriptedModel([])) as world:
        [text] = await texts_after(world, "/speech loudly")
    assert text == '/speech: found "loudly"; allowed: auto, monologue, direct.'


async def test_only_the_owner_may_change_it(autojump_clock):
    slack = FakeChannel("slack")
    async with open_world(ScriptedModel([]), channels=(slack,), settings=CLI_OWNS) as world:
        await world.say("/speech direct", ChannelInfo("slack", "#general", "stranger"))
        assert (await world.next_reply("slack")).text == "Only my owner sees and changes how I speak."


async def test_help_lists_it(autojump_clock):
    async with open_world(ScriptedModel([])) as world:
        [text] = await texts_after(world, "/help")
    assert "/speech" in text


# ------------------------------------------------------------------ the file of traits


@pytest.mark.parametrize(
    "content", [b"no JSON", b"[]", b'{"a/b": 5}', b'{"a/b": {"speech": "loud"}}', b'{"a/b": {"callsTools": 1}}']
)
async def test_a_damaged_file_of_traits_is_set_aside(autojump_clock, content):
    disk = MemoryDisk()
    disk.put(TRAITS_FILE, content)
    async with open_world(ScriptedModel([say("Hello!"), say("Hello!")]), disk=disk) as world:
        assert await texts_after(world, "hi") == ["Hello!"]
    [aside] = [path for path in disk.paths() if ".bad-" in path]
    assert disk.content(aside) == content
    assert traits_on(disk)["writesText"]


# ------------------------------------------------------------------ answers that broke off

DIRECT = Settings(agent=AgentSettings(speech="direct"))


def broken_off(partial):
    return ModelError("scripted/test: silent for 60 seconds (models.silence_timeout)", kind="timeout", partial=partial)


async def test_text_that_had_arrived_is_delivered_with_the_reason_in_direct_speech(autojump_clock):
    async with open_world(ScriptedModel([broken_off("Once upon a time")]), settings=DIRECT) as world:
        [text] = await texts_after(world, "tell me")
        assert text.startswith("Once upon a time\n\n(The answer ends here.")
        assert "models.silence_timeout" in text


@pytest.mark.parametrize("partial", ["", " \n"])
async def test_without_text_the_reason_alone_is_told(autojump_clock, partial):
    async with open_world(ScriptedModel([broken_off(partial)]), settings=DIRECT) as world:
        [text] = await texts_after(world, "tell me")
    assert text.startswith("The model did not answer: ")


@pytest.mark.parametrize("settings", [MONOLOGUE, Settings()])
async def test_half_a_thought_is_never_delivered(autojump_clock, settings):
    async with open_world(ScriptedModel([broken_off("I should tell them")]), settings=settings) as world:
        [text] = await texts_after(world, "tell me")
    assert "I should tell them" not in text
    assert "models.silence_timeout" in text


# ------------------------------------------------------------------ endless texts


async def test_a_text_that_repeats_itself_is_delivered_once(autojump_clock):
    line = "I am here to help you with anything you need today.\n"
    model = ScriptedModel(lambda _: say("Hello!\n" + line * 200, stop_reason="length"))
    async with open_world(model) as world:
        [text] = await texts_after(world, "hi")
    assert text.startswith(f"Hello!\n{line.strip()}\n\n(The model went on to repeat itself")
    assert len(model.requests) == 2


async def test_in_direct_speech_it_ends_the_turn(autojump_clock):
    model = ScriptedModel(lambda _: say("again and again. " * 300, stop_reason="length"))
    async with open_world(model, settings=DIRECT) as world:
        [text] = await texts_after(world, "hi")
    assert text.startswith("again and again.\n\n(")
    assert len(model.requests) == 1


@pytest.mark.parametrize(("settings", "calls"), [(Settings(), 2), (DIRECT, 1)])
async def test_a_long_text_at_the_limit_is_delivered_once_and_says_so(autojump_clock, settings, calls):
    model = ScriptedModel(lambda _: say(" ".join(map(str, range(3000))), stop_reason="length"))
    async with open_world(model, settings=settings) as world:
        [text] = await texts_after(world, "hi")
    assert "2999\n\n(The answer was cut off at the token limit" in text
    assert len(model.requests) == calls


# ------------------------------------------------------------------ small windows


def overflow(window=0):
    return ModelError(
        "scripted/test: the conversation is too long for this model (400)", kind="overflow", context_window=window
    )


async def test_a_refusal_that_names_a_small_window_is_answered_with_the_lean_prompt(autojump_clock):
    model = ScriptedModel([overflow(4096), say("", reply("r1", "Hello!"))])
    async with open_world(model) as world:
        assert await texts_after(world, "hi") == ["Hello!"]
        assert traits_on(world.disk)["contextWindow"] == 4096
    full, lean = (len(request.system) + len(str(request.tools)) for request in model.requests)
    assert lean < full / 2


async def test_a_refusal_without_a_number_leads_to_the_lean_prompt_when_nothing_else_can_be_shortened(autojump_clock):
    model = ScriptedModel([overflow(), say("", reply("r1", "Hello!"))])
    async with open_world(model) as world:
        assert await texts_after(world, "hi") == ["Hello!"]
    assert len(model.requests[1].system) < len(model.requests[0].system) / 2


async def test_when_not_even_the_lean_prompt_fits_it_says_what_to_do(autojump_clock):
    model = ScriptedModel(lambda _: overflow(512))
    async with open_world(model) as world:
        [text] = await texts_after(world, "hi")
    assert "even my shortest prompt does not fit into the model's context window (512 tokens)" in text
    assert "/model" in text
    assert len(model.requests) == 2


# ------------------------------------------------------------------ notices about the server


async def test_a_notice_about_the_server_is_shown_to_the_owner_beside_the_answer(autojump_clock):
    cli, slack = FakeChannel("cli"), FakeChannel("slack")
    answer = attrs.evolve(say("", reply("r1", "Hello!")), notice="The server cuts prompts.")
    other = attrs.evolve(
        say("", reply("r2", "Hello!", "#general", channelType="slack")), notice="The server cuts prompts."
    )
    async with open_world(ScriptedModel([answer, other]), channels=(cli, slack), settings=CLI_OWNS) as world:
        assert await texts_after(world, "hi") == ["Hello!", "The server cuts prompts."]
        await world.say("hi", ChannelInfo("slack", "#general", "stranger"))
        await world.idle()
        assert slack.texts == ["Hello!"]
