"""Whole interactions as a person lives them: a terminal, a Slack bridge, one agent, both wires.

Every thought begins with the same words, and nobody may ever hear them: what the agent thinks is its own.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest

from tests.blackbox.support import SILENCE, Call, Exited, Thought, refuse, reply, running, say, serving, session, until
from tests.blackbox.support.serving import standing
from tests.blackbox.support.shared_state import IS_SHARED
from tests.blackbox.support.work import NOTICE, Office, Workplace, act, answer, events, heard, log_of

MIND = "(to myself)"
WEATHER = "Search Beijing weather and summarize"
REPORT = "北京今天晴，25°C，适合外出。"
NO_PERMISSION = "没有权限读取该文件。需要我换一种方式吗？"
THREAD = {"type": "slack", "channelId": "#general", "userId": "zhangsan", "replyTo": "thread:weather-discussion"}


def think(text, *calls):
    return Thought(f"{MIND} {text}", calls)


def spawn(description, job):
    return Call("spawn_subagent", {"description": description, "input": job})


def tell_time(view):
    found = json.loads(view.results[-1])
    assert found["timezone"] == "Asia/Shanghai"
    return think("It's 15:25, let me tell them.", reply("现在是下午3:25。"))


PAGES = {
    "你好": think("A simple greeting, I should respond warmly.", reply("你好！有什么可以帮你的？")),
    "现在几点了？": [
        think("They want the time, I can check this directly.", Call("current_time", {"timezone": "Asia/Shanghai"})),
        tell_time,
    ],
    "查一下北京天气，然后写个总结": think(
        "This needs web search and several steps.", reply("好的，我来帮你查一下..."), spawn("search weather", WEATHER)
    ),
    "👍": think("Just an acknowledgment, no response needed."),
    "读取 /etc/shadow": think("A task can try.", spawn("read file", "/etc/shadow")),
    "早": think("Nobody asks me anything."),
    "@Pegasus 北京天气怎么样？": think(
        "To the thread, to them alone, and to all.",
        reply("25°C 晴天", "#general", None, "thread:weather-discussion"),
        reply("结果私聊给你了", "@zhangsan", "slack"),
        reply("大家注意今天有雨", "#general"),
    ),
    "把结果发到 Slack 上": think(
        "They are on CLI and want it on Slack.",
        reply("好的，已发送到 Slack", "main"),
        reply("北京今天晴，25°C", "#weather-updates"),
    ),
}


def about_tasks(view):
    """What the agent makes of a task's word."""
    notice = NOTICE.match(view.question.text)
    assert notice, f"a question that no story asks: {view.question.text}"
    if view.replied:
        return SILENCE
    if notice["what"] == "completed":
        return think("Weather results are back.", reply(REPORT))
    return think("It failed, which is expected; I should tell them.", reply(NO_PERMISSION))


JOBS = {
    WEATHER: [act(Call("current_time")), answer("Beijing: sunny, 25 °C")],
    "/etc/shadow": [act(Call("read_file", {"path": "/etc/shadow"})), lambda view: refuse(400, view.last)],
}


class Cast:
    """Who is there: the user at the terminal, the Slack workspace, and what all of them ever saw."""

    def __init__(self, daemon, book, user, slack):
        self.daemon, self.book, self.user, self.slack = daemon, book, user, slack

    async def silent(self, text, peer, **more):
        """Something that gets no answer, and is done."""
        await peer.say(text, **more)
        await until(lambda: self.book.about(text), f"a thought about {text}")
        await self.quiet()

    async def quiet(self):
        """Return when nothing waits to be worked on."""
        while (await self.user.call("status"))["waiting"]:
            pass
        await self.user.fence()
        await self.slack.fence()

    def nobody_heard_a_thought(self):
        """Drafts are another thing: in direct speech they show what is being written before it is known what it will be."""
        for peer in (self.user, self.slack):
            frames = [frame for frame in peer.seen if frame["type"] != "progress"]
            assert MIND not in json.dumps(frames, ensure_ascii=False)


@asynccontextmanager
async def playing(theatre, pages=PAGES, otherwise=about_tasks):
    book = Office(JOBS, pages, otherwise)
    async with (
        theatre.play(book, "main") as daemon,
        daemon.client("cli", "main") as user,
        daemon.bridge("slack") as slack,
    ):
        cast = Cast(daemon, book, user, slack)
        yield cast
        await cast.quiet()
        cast.nobody_heard_a_thought()
        for frame in slack.seen:
            if frame["type"] == "reply":
                await slack.ack(frame)  # or the next story would hear it again
        await slack.fence()


def routing(frame):
    channel = frame["channel"]
    return frame["text"], channel["type"], channel["channelId"], channel.get("replyTo")


@pytest.fixture(params=["openai", "anthropic"])
def wire(request):
    return request.param


OWNERS = ["cli:*", "web:*", "api:*", "slack:zhangsan"]
"""What a guest asks to be said in another conversation needs a yes."""


def _theatre(request, tmp_path_factory, **settings):
    place = Workplace(tmp_path_factory.mktemp("theatre"), settings, request.param)
    yield from standing(place.daemon, place, finish=place.finish)


@pytest.fixture(scope="module", params=["openai", "anthropic"])
def theatre(request, tmp_path_factory):
    """One daemon a wire, in which the stories happen one after another, in any order: so how the model speaks is not found out."""
    yield from _theatre(request, tmp_path_factory, **{"agent.speech": "monologue", "agent.owners": OWNERS})


@pytest.fixture(scope="module", params=["openai", "anthropic"])
def direct_theatre(request, tmp_path_factory):
    """The same with direct speech."""
    yield from _theatre(request, tmp_path_factory, **{"agent.speech": "direct", "agent.owners": OWNERS})


# ------------------------------------------------------------------ one by one


async def test_greeting(theatre):
    """One thought, one reply, no task."""
    async with playing(theatre) as cast:
        assert await cast.user.ask("你好") == "你好！有什么可以帮你的？"
        await cast.quiet()
        assert (len(cast.book.asked), cast.book.thinking) == (1, [])


async def test_time(theatre):
    """A quick look at the clock, then the reply."""
    async with playing(theatre) as cast:
        assert await cast.user.ask("现在几点了？") == "现在是下午3:25。"
        await cast.quiet()
        assert len(cast.book.asked) == 2


async def test_delegation(theatre):
    """A word at once, the work in the background, its result later and by itself; meanwhile the agent is there."""
    async with playing(theatre) as cast:
        cast.book.hold_tasks()
        assert await cast.user.ask("查一下北京天气，然后写个总结") == "好的，我来帮你查一下..."
        await cast.book.thought(WEATHER)
        assert await cast.user.ask("你好") == "你好！有什么可以帮你的？"
        cast.book.release()
        assert await heard(cast.user) == [REPORT]
        await cast.quiet()
        assert len(cast.book.asked) == 3, "after delegating it does not look again by itself"
        assert "TASK_COMPLETED" in events(cast.daemon.home, WEATHER)


async def test_silence(theatre):
    async with playing(theatre) as cast:
        await cast.silent("👍", cast.user)
        assert cast.user.texts() == []
        assert await cast.user.ask("你好") == "你好！有什么可以帮你的？"


async def test_failure(theatre):
    """The task may not, and fails; the agent hears why and finds words for it."""
    async with playing(theatre) as cast:
        await cast.user.say("读取 /etc/shadow")
        assert await heard(cast.user) == [NO_PERMISSION]
        failure = log_of(cast.daemon.home, "/etc/shadow")[-1]
        assert failure["event"] == "TASK_FAILED"
        assert "/etc/shadow" in cast.book.thinking[-1].last
        assert "root:" not in json.dumps(log_of(cast.daemon.home, "/etc/shadow"))


async def test_from_cli_to_slack(theatre):
    """The result of work that was asked for in the terminal goes to a Slack channel on the user's word."""
    async with playing(theatre) as cast:
        await cast.silent("早", cast.slack, channel={"type": "slack", "channelId": "#weather-updates"})
        await cast.user.say("查一下北京天气，然后写个总结")
        assert await heard(cast.user, 2) == ["好的，我来帮你查一下...", REPORT]
        assert await cast.user.ask("把结果发到 Slack 上") == "好的，已发送到 Slack"
        assert routing(await cast.slack.reply()) == ("北京今天晴，25°C", "slack", "#weather-updates", None)
        await cast.quiet()
        assert len(cast.user.texts()) == 3
        assert len(cast.slack.texts()) == 1


async def test_slack_thread_private_and_channel(theatre):
    async with playing(theatre) as cast:
        await cast.slack.say("@Pegasus 北京天气怎么样？", channel=THREAD)
        assert [routing(frame) for frame in await cast.slack.replies(3)] == [
            ("25°C 晴天", "slack", "#general", "thread:weather-discussion"),
            ("结果私聊给你了", "slack", "@zhangsan", None),
            ("大家注意今天有雨", "slack", "#general", None),
        ]
        assert cast.user.texts() == []


# ------------------------------------------------------------------ one life


async def test_all_of_it_in_one_life_that_is_cut_off_in_between(tmp_path, wire):
    """Killed with the work under way: the agent says so, and goes on as itself, with the same prompt and all it has thought."""
    book = Office(JOBS, PAGES, about_tasks)
    async with serving(tmp_path, book, {"tasks.recovery": "fail", "agent.owners": OWNERS}, wire=wire) as daemon:
        async with daemon.client("cli", "main") as user:
            assert await user.ask("你好") == "你好！有什么可以帮你的？"
            assert await user.ask("现在几点了？") == "现在是下午3:25。"
            book.hold_tasks()
            assert await user.ask("查一下北京天气，然后写个总结") == "好的，我来帮你查一下..."
            await book.thought(WEATHER)
            await until(lambda: _spawned(daemon.home), "what the spawn gave, in the session")
        daemon.kill()
        book.release()
        await daemon.start()
        async with daemon.client("cli", "main", lastSeq=3) as user, daemon.bridge("slack") as slack:
            assert await heard(user) == [NO_PERMISSION]  # what became of the task is told: it was cut off
            cast = Cast(daemon, book, user, slack)
            await cast.silent("👍", user)
            group = {"type": "slack", "channelId": "#weather-updates", "userId": "zhangsan"}
            await cast.silent("早", slack, channel=group)
            assert await user.ask("把结果发到 Slack 上") == "好的，已发送到 Slack"
            assert (await slack.reply())["text"] == "北京今天晴，25°C"
            await cast.quiet()
            cast.nobody_heard_a_thought()
        thoughts = [line["content"] for line in session(daemon.home) if line["role"] == "assistant"]
        assert len([text for text in thoughts if text.startswith(MIND)]) == len(thoughts) == 7
        greeting, in_the_group = f"{MIND} A simple greeting", book.about("早")
        own = [view for view in book.asked if view not in in_the_group]
        assert len({(view.system, view.tools) for view in own}) == 1, "the prompt is another one"
        assert greeting in json.dumps(own[-1].messages, ensure_ascii=False)
        # A group has a conversation of its own, and neither knows of the other.
        assert len(in_the_group) == 1
        assert greeting not in json.dumps(in_the_group[0].messages, ensure_ascii=False)
        assert "Nobody asks me anything" not in json.dumps(session(daemon.home), ensure_ascii=False)


def _spawned(home):
    *_, thought, replied, last = session(home)
    return last["role"] == replied["role"] == "tool" and thought["toolCalls"][1]["name"] == "spawn_subagent"


# ------------------------------------------------------------------ plain text is the reply


DIRECT = {
    "你好": Thought("你好！有什么可以帮你的？"),
    "现在几点了？": [Thought(f"{MIND} look", (Call("current_time"),)), Thought("现在是下午3:25。")],
    "👍": Thought("(silence)"),
    "查一下北京天气，然后写个总结": Thought(
        "", (reply("好的，我来帮你查一下..."), Call("spawn_task", {"description": "w", "input": WEATHER}))
    ),
    "@Pegasus 北京天气怎么样？": Thought("25°C 晴天"),
}


async def test_direct_speech(direct_theatre):
    """Greeting, time, silence, delegation and a thread in Slack, with text as the reply."""

    def on_result(view):
        return Thought("(silence)" if view.replied else REPORT)

    async with playing(direct_theatre, DIRECT, on_result) as cast:
        assert await cast.user.ask("你好") == "你好！有什么可以帮你的？"
        assert await cast.user.ask("现在几点了？") == "现在是下午3:25。"
        await cast.silent("👍", cast.user)
        await cast.user.say("查一下北京天气，然后写个总结")
        assert await heard(cast.user, 2) == ["好的，我来帮你查一下...", REPORT]
        await cast.slack.say("@Pegasus 北京天气怎么样？", channel=THREAD)
        assert routing(await cast.slack.reply()) == ("25°C 晴天", "slack", "#general", "thread:weather-discussion")


# ------------------------------------------------------------------ who goes first


def in_group(person):
    """Where everybody speaks in one conversation: guests elsewhere have one each, and wait for nobody."""
    return {"type": "slack", "channelId": "#all", "userId": person}


async def test_the_owner_goes_first(tmp_path):
    """Three strangers wait in a group; the owner's message there, though the last to come, is the next to be taken up."""
    book = Office({}, {"long": say("done")})
    async with serving(tmp_path, book, {"agent.owners": OWNERS}) as daemon, daemon.bridge("slack") as slack:
        book.hold()
        await slack.say("long", channel=in_group("0"))
        await book.waiting()
        for n in range(1, 4):
            await slack.say(f"stranger {n}", channel=in_group(f"{n}"))
        await slack.say("mine", channel=in_group("zhangsan"))
        book.release()
        await slack.replies(5)
        order = [view.question.text for view in book.asked if not view.thoughts]
        assert order == ["long", "mine", "stranger 1", "stranger 2", "stranger 3"]


async def test_the_owner_does_not_wait_for_guests_elsewhere(tmp_path):
    """Guests in conversations of their own, whose answers hang, are as many as calls may run at a time (3); a place is the owner's."""
    book = Office({}, {})
    async with (
        serving(tmp_path, book) as daemon,
        daemon.client("cli", "main") as owner,
        daemon.bridge("slack") as slack,
    ):
        book.hold(only=lambda view: view.question.text.startswith("stranger"))
        for n in range(3):
            await slack.say(f"stranger {n}", channel={"type": "slack", "channelId": f"#{n}", "userId": f"{n}"})
        await book.reached(2)
        await owner.ask("mine")
        assert slack.texts() == []
        book.release()
        await slack.replies(3)


async def test_the_order_of_what_waits_survives_a_kill(tmp_path):
    book = Office({}, {"long": say("done")})
    async with serving(tmp_path, book, {"agent.owners": OWNERS}) as daemon:
        async with daemon.bridge("slack") as slack:
            book.hold()
            for n in range(3):
                await slack.say(f"stranger {n}", channel=in_group(f"{n}"))
            await book.waiting()
            await slack.say("mine", channel=in_group("zhangsan"))
        daemon.kill()
        book.release()
        await daemon.start()
        async with daemon.bridge("slack") as slack:
            await slack.replies(4)
            asked = [view.question.text for view in book.asked]
            assert asked == ["stranger 0", "stranger 0", "mine", "stranger 1", "stranger 2"]


# ------------------------------------------------------------------ who the agent becomes


async def test_the_agent_asks_to_change_and_its_owner_decides(tmp_path):
    """Proposed in a chat, decided on the command line, in force from the next start on; the running prompt stays as it is."""
    wish = {"field": "style", "value": "short and warm", "why": "They thank me for short answers."}
    book = Office(
        {},
        {
            "be shorter": [
                think("I should ask.", Call("propose_persona_change", wish)),
                lambda view: say(json.loads(view.results[-1])["note"]),
            ]
        },
        lambda view: say("hm"),
    )
    async with serving(tmp_path, book) as daemon:
        async with daemon.client("cli", "main") as owner, daemon.bridge("slack") as slack:
            assert "/persona accept 1" in await owner.ask("be shorter")
            with pytest.raises(AssertionError, match="only an owner"):
                await slack.call("persona.accept", n=1)
            shown = await daemon.command("persona", "list")
            assert "1. style: “short and warm”" in shown.out
            assert "on cli:main" in shown.out
            assert (await daemon.command("persona", "accept", "1")).out.startswith(
                "Accepted; it takes effect at the next"
            )
            await owner.ask("hello")
        daemon.kill()
        await daemon.start()
        before = book.asked[-1].system
        async with daemon.client("cli", "main", lastSeq=2) as owner:
            await owner.ask("and now?")
            while IS_SHARED and book.asked[-1].system == before:  # a node learns of it a moment after its start
                await owner.ask("and now?")
        after = book.asked[-1].system
        assert "Speaking style: short and warm." in after
        assert "Speaking style: short and warm." not in before
        daemon.kill()
        if IS_SHARED:  # with a database a running agent changes what its nodes know
            await daemon.start()
        assert (await daemon.command("persona", "reject", "1")).out.startswith("Taken back")
        await daemon.restart()
        async with daemon.client("cli", "main", lastSeq=3) as owner:
            await owner.ask("and now again?")
            while IS_SHARED and book.asked[-1].system == after:
                await owner.ask("and now again?")
        assert book.asked[-1].system == before


async def test_a_mistake_in_what_the_agent_became_stops_the_start_and_names_it(home):
    (home / "data" / "identity").mkdir(parents=True)
    (home / "data" / "identity" / "persona.json").write_text('{"style": 5}')
    with pytest.raises(Exited) as caught:
        async with running(home):
            pass
    assert caught.value.code == 78
    assert "persona.json: style: found 5; a text is wanted" in caught.value.stderr
