"""Floods of one stranger, or of many: they do not keep the owner from an answer, measured by the order of what is answered."""

from __future__ import annotations

import pytest

from tests.blackbox.support import HANG, Book, connect, serving, until
from tests.blackbox.support.model import SILENCE, Thought
from tests.blackbox.support.work import Office, log_of, spawn, unfinished

NO_LIMITS = {"limits.guest_messages_per_minute": 0, "limits.guest_waiting": 0, "limits.guest_tasks": 0}


def by(user, channel_id="#general", kind="slack"):
    return {"type": kind, "channelId": channel_id, "userId": user}


async def flood(bridge, count, channel_of, text="spam"):
    """Send so many messages of strangers; how many were accepted, and the errors."""
    for n in range(count):
        await bridge.post(f"{text} {n}", id=f"{text}-{n}", channel=channel_of(n))
    frames = [await bridge.get("accepted", "error", timeout=30) for _ in range(count)]
    return sum(frame["type"] == "accepted" for frame in frames), [f for f in frames if f["type"] == "error"]


@pytest.mark.deadline(60)
@pytest.mark.parametrize("strangers", [1, 1300])
async def test_the_owner_is_answered_before_1300_messages_of_strangers(tmp_path, strangers):
    async with (
        serving(tmp_path, book := Book(), NO_LIMITS) as daemon,
        daemon.bridge("slack") as bridge,
        daemon.client() as owner,
    ):
        book.hold()
        await bridge.say("first", channel=by("eve"))
        await book.waiting()
        accepted, errors = await flood(bridge, 1300, lambda n: by(f"u{n % strangers}"))
        assert accepted >= 900
        assert {error["code"] for error in errors} <= {"overloaded"}
        await owner.say("are you there?")
        book.release()
        assert (await owner.reply(timeout=40))["text"] == "echo: are you there?"
        asked = list(dict.fromkeys(view.question.text for view in book.asked))
        assert asked.index("are you there?") <= 2, asked[:5]


async def test_the_owners_commands_pass_a_flood_of_commands(tmp_path):
    async with (
        serving(tmp_path, Book(), NO_LIMITS) as daemon,
        daemon.bridge("slack") as bridge,
        daemon.client() as owner,
    ):
        for n in range(600):
            await bridge.post("/help", id=f"h{n}", channel=by(f"u{n}"))
        assert "Model:" in await owner.ask("/status")
        answered = sum(frame["type"] == "reply" for frame in bridge.seen)
        assert answered < 600


async def test_a_guest_who_writes_too_much_is_told_so_and_others_are_not(tmp_path):
    settings = {"limits.guest_messages_per_minute": 5}
    async with (
        serving(tmp_path, Book(), settings) as daemon,
        daemon.bridge("slack") as bridge,
        daemon.client() as owner,
    ):
        accepted, errors = await flood(bridge, 8, lambda n: by("eve"))
        assert accepted == 5
        assert {error["code"] for error in errors} == {"overloaded"}
        assert all("try again in" in error["message"] for error in errors)
        assert (await flood(bridge, 3, lambda n: by("mal"), "other"))[0] == 3
        for n in range(12):
            await owner.say(f"m{n}")


async def test_a_guest_has_so_many_messages_waiting_also_after_kill_9(tmp_path):
    settings = {"limits.guest_waiting": 3}
    async with serving(tmp_path, book := Book(otherwise=HANG), settings) as daemon:
        async with daemon.bridge("slack") as bridge:
            accepted, errors = await flood(bridge, 6, lambda n: by("eve"))
            assert accepted == 3
            assert all("of yours are waiting already" in error["message"] for error in errors)
            assert (await flood(bridge, 2, lambda n: by("mal"), "other"))[0] == 2
        before = len(book.asked)
        await daemon.restart()
        async with daemon.bridge("slack") as bridge:
            assert (await flood(bridge, 1, lambda n: by("eve"), "more"))[0] == 0
            await bridge.say("spam 0", id="spam-0", channel=by("eve"))  # the same message again is accepted
        await until(lambda: len(book.asked) > before, "work on what waits, after the restart too")


async def test_a_client_gains_nothing_by_naming_other_users(tmp_path):
    settings = {"limits.guest_messages_per_minute": 3}
    async with serving(tmp_path, Book(), settings) as daemon:
        token = (await daemon.command("token", "add", "x", "--type", "web", "--channel", "x")).out.strip()
        async with connect(daemon.url) as peer:
            await peer.hello(token, "web", "x")
            for n in range(6):
                await peer.post(f"m{n}", channel={"type": "web", "channelId": "x", "userId": f"u{n}"})
            frames = [await peer.get("accepted", "error") for _ in range(6)]
        assert sum(frame["type"] == "accepted" for frame in frames) == 3


@pytest.mark.deadline(90)
async def test_tasks_of_a_stranger_do_not_keep_the_owner_from_a_task(tmp_path):
    """105 tasks that never end: the owner's is begun all the same, and its result comes."""
    jobs = {f"spam {n}": HANG for n in range(105)} | {"mine": Thought("the result")}

    def many(view):
        made = len(view.results)
        return (
            SILENCE
            if made >= 105
            else Thought(calls=tuple(spawn(f"spam {n}") for n in range(made, min(105, made + 50))))
        )

    office = Office(jobs, {"spam": many})
    async with (
        serving(tmp_path, office, NO_LIMITS) as daemon,
        daemon.bridge("slack") as bridge,
        daemon.client() as owner,
    ):
        await bridge.say("spam", channel=by("eve"))
        await until(lambda: len(unfinished(daemon.home)) >= 50, "a flood of tasks")
        await owner.say("do mine")
        assert (await owner.reply(timeout=60))["text"] == "completed: the result"
        assert len(unfinished(daemon.home)) <= 60


async def test_a_guest_may_have_so_many_tasks_and_the_model_is_told_why(tmp_path):
    jobs = {f"job {n}": HANG for n in range(4)} | {"mine": Thought("the result")}
    lines = "\n".join(f"do job {n}" for n in range(4))
    refused = []

    def delegate(view):
        refused.extend(result for result in view.results if "limits.guest_tasks" in result)
        return SILENCE if view.thoughts else Thought(calls=tuple(spawn(f"job {n}") for n in range(4)))

    office = Office(jobs, {lines: delegate})
    async with serving(tmp_path, office, {"limits.guest_tasks": 2}) as daemon, daemon.bridge("slack") as bridge:
        await bridge.say(lines, channel=by("eve"))
        await until(lambda: refused, "a refusal")
        assert len(unfinished(daemon.home)) == 2
        async with daemon.client() as owner:
            await owner.say("do mine")
            assert (await owner.reply())["text"] == "completed: the result"
        assert log_of(daemon.home, "mine")
