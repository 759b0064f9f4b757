"""The base of the adapters of services: order, outages, limits, refusals, parking, and what a crash repeats."""

import itertools
from contextlib import asynccontextmanager, suppress
from functools import partial

import attrs
import pytest
import trio

from actors import ActorError, GaveUp
from pegasus.channels import CredentialsRefused, NotKept, RateLimited, ReplyRefused, ServiceAdapter, ServiceDown
from pegasus.messages import ChannelInfo, ReplyDraft, Typing
from pegasus.storage import UNDELIVERED_REPLY, Commit, Post
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import ScriptedModel, say
from pegasus.testing.world import kill, open_world


class Letters(ServiceAdapter):
    """A service that takes one word of a reply as a piece; `answers` says what it does about each call."""

    typing_pause = 4.0

    def __init__(self, context):
        super().__init__("letters", context)
        self.taken = []  # (chat, piece), as people see it
        self.calls = []  # (chat, piece, time)
        self.answer = lambda chat, piece, calls: None
        self.signs = []
        self.after = lambda: None

    def pieces(self, reply):
        return reply.text.split()

    async def send(self, reply, piece, number):
        await trio.sleep(0.01)
        chat = reply.channel.channel_id
        self.calls.append((chat, piece, trio.current_time()))
        fault = self.answer(chat, piece, sum(call[:2] == (chat, piece) for call in self.calls))
        if isinstance(fault, Exception):
            raise fault
        if fault is not None:
            await fault
        self.taken.append((chat, piece))
        self.after()
        return f"id{len(self.taken)}"

    async def show_typing(self, typing):
        self.signs.append(("typing", trio.current_time()))

    async def show_draft(self, draft):
        self.signs.append((draft.text, trio.current_time()))

    def of(self, chat):
        return [piece for name, piece in self.taken if name == chat]


class Office:
    """A world with the service; `post` is what the agent does."""

    def __init__(self, world, adapter, model):
        self.world, self.adapter, self.model, self.count = world, adapter, model, 0

    async def post(self, chat, *texts):
        for text in texts:
            self.count += 1
            channel = ChannelInfo("letters", chat)
            await self.world.journal.ask(Commit, (), (Post(f"k{text}{self.count}", text, chat, channel, "letters"),))

    def session(self):
        return [line for line in self.world.session() if line.get("metadata", {}).get("type") == UNDELIVERED_REPLY]


@asynccontextmanager
async def office(disk=None, adapters=None):
    model = ScriptedModel(lambda request: say("noted"))
    made = [] if adapters is None else adapters

    def services(context):
        made.append(Letters(context))
        return made[-1:]

    async with open_world(model, disk=disk, services=services) as world:
        yield Office(world, made[-1], model)


async def test_a_reply_is_sent_piece_by_piece_and_replies_keep_their_order(autojump_clock):
    async with office() as it:
        await it.post("a", "one two", "three")
        await it.post("b", "four")
        await trio.sleep(5)
        assert it.adapter.of("a") == ["one", "two", "three"]
        assert it.adapter.of("b") == ["four"]


async def asleep():
    await trio.sleep(3600)


async def test_a_slow_conversation_holds_up_nobody(autojump_clock):
    async with office() as it:
        it.adapter.answer = lambda chat, piece, n: asleep() if chat == "slow" else None
        await it.post("slow", *(f"s{n}" for n in range(30)))
        await it.post("fast", "quick")
        await trio.sleep(1)
        assert it.adapter.taken == [("fast", "quick")]


async def test_an_outage_of_an_hour_loses_nothing_and_keeps_the_order(autojump_clock):
    async with office() as it:
        is_down = True
        it.adapter.answer = lambda chat, piece, n: ServiceDown("no connection") if is_down else None
        for chat in ("a", "b", "c"):
            await it.post(chat, *(f"{n}" for n in range(100)))
        await trio.sleep(3600)
        assert it.adapter.state.state == "down"
        assert it.adapter.state.reason == "no connection"
        times = [time for _, _, time in it.adapter.calls]
        pauses = [after - before for before, after in itertools.pairwise(times)]
        assert max(pauses[: sum(time < times[0] + 60 for time in times)]) <= 10.1
        assert len(times) < 3600 / 45 + 40, "one call at a time looks whether the service is back"
        is_down = False
        await trio.sleep(120)
        assert all(it.adapter.of(chat) == [f"{n}" for n in range(100)] for chat in ("a", "b", "c"))
        assert it.adapter.state.state == "up"


async def test_if_half_of_all_calls_fail_each_piece_is_taken_once_in_order(autojump_clock):
    async with office() as it:
        it.adapter.answer = lambda chat, piece, n: ServiceDown("500") if len(it.adapter.calls) % 2 else None
        for chat in "abcdefghij":
            await it.post(chat, *(f"{n}" for n in range(20)))
        await trio.sleep(1200)
        assert all(it.adapter.of(chat) == [f"{n}" for n in range(20)] for chat in "abcdefghij")


async def test_a_piece_that_the_service_always_fails_at_holds_up_only_its_own_conversation(autojump_clock):
    async with office() as it:
        it.adapter.answer = lambda chat, piece, n: ServiceDown("500") if piece == "poison" else None
        await it.post("a", "poison", "behind")
        await it.post("b", *(f"{n}" for n in range(100)))
        await trio.sleep(600)
        assert it.adapter.of("b") == [f"{n}" for n in range(100)]
        assert it.adapter.of("a") == []


async def test_a_rate_limit_is_obeyed_in_its_conversation_and_the_others_go_on(autojump_clock):
    async with office() as it:
        it.adapter.answer = lambda chat, piece, n: RateLimited(30.0) if chat == "a" and n == 1 else None
        await it.post("a", "one", "two")
        await it.post("b", "three")
        await trio.sleep(1)
        assert it.adapter.taken == [("b", "three")]
        await trio.sleep(120)
        assert it.adapter.of("a") == ["one", "two"]
        times = [time for chat, _, time in it.adapter.calls if chat == "a"]
        assert all(after - before >= 30 for before, after in zip(times[::2], times[1::2], strict=True))


async def test_a_limit_of_the_account_holds_back_everybody(autojump_clock):
    async with office() as it:
        it.adapter.answer = lambda chat, piece, n: (
            RateLimited(30.0, for_all=True) if len(it.adapter.calls) == 1 else None
        )
        await it.post("a", "one")
        await trio.sleep(1)
        await it.post("b", "two")
        await trio.sleep(20)
        assert it.adapter.taken == []
        await trio.sleep(20)
        assert sorted(it.adapter.taken) == [("a", "one"), ("b", "two")]


async def test_a_limit_is_remembered_when_there_is_nothing_to_send(autojump_clock):
    async with office() as it:

        async def limited(draft):
            raise RateLimited(60.0)

        it.adapter.show_draft = limited
        switchboard = it.world.root.ref("channels/switchboard")
        await switchboard.tell(ReplyDraft(ChannelInfo("letters", "a"), "wor"))
        await trio.sleep(5)
        await it.post("a", "word")
        await trio.sleep(50)
        assert it.adapter.taken == []
        await trio.sleep(10)
        assert it.adapter.taken == [("a", "word")]


async def test_what_a_recipient_refuses_is_reported_to_the_agent_and_the_next_reply_follows(autojump_clock):
    async with office() as it:
        it.adapter.answer = lambda chat, piece, n: ReplyRefused("blocked by the user") if piece == "no" else None
        await it.post("a", "no", "yes")
        await it.post("b", "other")
        await it.world.idle()
        assert sorted(it.adapter.taken) == [("a", "yes"), ("b", "other")]
        assert sum(piece == "no" for _, piece, _ in it.adapter.calls) <= 2
        [note] = it.session()
        assert "blocked by the user" in note["content"]


async def test_refused_credentials_park_the_channel_at_once(autojump_clock):
    adapters = []
    async with office(adapters=adapters) as it:
        it.adapter.answer = lambda chat, piece, n: CredentialsRefused("the token was revoked")
        await it.post("a", "one")
        await it.post("b", "two")
        await trio.sleep(3600)
        assert len(it.adapter.calls) <= 2
        assert (it.adapter.state.state, it.adapter.state.reason) == ("parked", "the token was revoked")
        await it.world.say("are the others well?")
        await it.world.idle()
        assert it.model.requests, "everything else goes on"
        disk = it.world.disk
    async with office(disk=disk, adapters=adapters) as it:  # the next start, with a new token
        await trio.sleep(10)
        assert sorted(it.adapter.taken) == [("a", "one"), ("b", "two")], "what waited is sent"


async def test_more_replies_than_fit_into_memory_are_read_from_the_journal(autojump_clock):
    async with office() as it:
        is_down = True
        it.adapter.answer = lambda chat, piece, n: ServiceDown("away") if is_down else None
        await it.post("a", *(f"{n}" for n in range(170)))
        await trio.sleep(30)
        is_down = False
        await trio.sleep(120)
        assert it.adapter.of("a") == [f"{n}" for n in range(170)]


async def test_typing_is_repeated_until_the_agent_has_ended(autojump_clock):
    async with office() as it:
        switchboard, here = it.world.root.ref("channels/switchboard"), ChannelInfo("letters", "a")
        await switchboard.tell(Typing(here, True))
        await trio.sleep(10)
        await switchboard.tell(Typing(here, False))
        await trio.sleep(20)
        assert len(it.adapter.signs) == 3
        await switchboard.tell(Typing(here, True))  # and its end is never announced
        await trio.sleep(7200)
        assert len(it.adapter.signs) < 300


async def test_drafts_are_shown_at_most_once_a_second_and_never_behind_their_reply(autojump_clock):
    async with office() as it:
        switchboard, here = it.world.root.ref("channels/switchboard"), ChannelInfo("letters", "a")
        for n in range(40):
            await switchboard.tell(ReplyDraft(here, f"draft {n}"))
            await trio.sleep(0.1)
        await switchboard.tell(ReplyDraft(here, "the last"))
        await it.post("a", "reply")
        await trio.sleep(10)
        times = [time for _, time in it.adapter.signs]
        assert all(after - before >= 1 for before, after in itertools.pairwise(times))
        assert 3 <= len(times) <= 5
        assert it.adapter.taken == [("a", "reply")]


async def test_a_draft_goes_while_the_model_is_asked_once_more(autojump_clock):
    async with office() as it:
        shown, here = [], ChannelInfo("letters", "a")

        async def show(draft):
            shown.append(draft)

        it.adapter.show_draft = show
        for draft in (ReplyDraft(here, "begun"), ReplyDraft(here, "", activity="retrying (429), attempt 2")):
            await it.world.root.ref("channels/switchboard").tell(draft)
            await trio.sleep(2)
        assert [draft.is_withdrawal for draft in shown] == [False, True]


@pytest.mark.parametrize("operation", range(1, 24))
async def test_a_power_failure_repeats_at_most_the_piece_that_was_not_recorded(autojump_clock, operation):
    adapters, disk = [], MemoryDisk()
    with suppress(GaveUp):
        async with office(disk, adapters) as it:
            await it.world.idle()
            await it.post("a", "one two three")
            disk.lose_power(operation)
            with suppress(ActorError):
                await it.post("a", "four")
            await trio.sleep(5)
            await kill(it.world)
    disk.crash()
    for _ in range(2):
        async with office(disk, adapters) as it:
            await trio.sleep(20)
            await kill(it.world)
    seen = [piece for adapter in adapters for _, piece in adapter.taken]
    assert [piece for n, piece in enumerate(seen) if piece not in seen[:n]][:3] == ["one", "two", "three"]
    assert sum(seen.count(piece) - 1 for piece in set(seen)) <= 1, seen


async def test_a_restart_of_the_actor_repeats_nothing(autojump_clock):
    async with office() as it:
        adapter = it.adapter
        crashes = iter([True, False, True])

        def crash():
            if next(crashes, False):
                raise RuntimeError("the adapter fails behind a call")

        original = adapter.log.add_piece

        async def record(*args, **fields):
            await original(*args, **fields)
            crash()

        adapter.log.add_piece = record
        await it.post("a", "one two three four")
        await trio.sleep(30)
        assert adapter.of("a") == ["one", "two", "three", "four"]


async def test_a_stop_lets_the_call_under_way_end_so_that_nothing_is_repeated(autojump_clock):
    adapters, disk = [], MemoryDisk()
    async with office(disk, adapters) as it:
        await it.world.idle()
        it.adapter.answer = lambda chat, piece, n: trio.sleep(1)  # noqa: ASYNC105 the service awaits it
        await it.post("a", "one", "two")
        await trio.sleep(0.5)
        await it.world.root.stop()
    async with office(disk, adapters):
        await trio.sleep(20)
    assert [piece for adapter in adapters for _, piece in adapter.taken] == ["one", "two"]


async def test_bots_that_answer_each_other_come_to_an_end(autojump_clock):
    async with office() as it:

        def hear():
            """Let a bot write once; return whether it is heard."""
            is_heard = it.adapter.bots.has_room("a")
            it.adapter.note_writer("a", is_bot=True)
            return is_heard

        assert sum(hear() for _ in range(1000)) == 5
        assert not it.adapter.bots.has_room("a")
        it.adapter.note_writer("a", is_bot=False)
        assert all(it.adapter.bots.has_room("a") for _ in range(1000))
        assert hear()


async def test_work_of_a_webhook_is_refused_when_the_channel_has_stopped(autojump_clock):
    async with office() as it:
        assert await it.adapter.start_work(partial(trio.sleep, 1)).is_kept_within(2)
        await it.world.root.stop()
        with pytest.raises(NotKept):
            it.adapter.start_work(partial(trio.sleep, 1))


def test_states_are_values():
    from pegasus.channels import ChannelState

    assert attrs.asdict(ChannelState("sms", "up")) == {"type": "sms", "state": "up", "reason": "", "name": ""}
