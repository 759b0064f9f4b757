"""Compaction at work: on a real session and journal, in virtual time."""

from contextlib import asynccontextmanager, suppress

import pytest
import trio

from actors import ActorError
from pegasus.conversation import entry_tokens
from pegasus.main_agent.compaction import Compactor, OpenTask
from pegasus.main_agent.session import Session, load_session
from pegasus.models import ModelRequest, PromptSize, UserTurn
from pegasus.testing.memory_disk import MemoryDisk, PowerLoss
from pegasus.testing.scripted import After, Hang, ScriptedModel, down, say
from tests.pegasus.conversation.test_projection import is_valid
from tests.pegasus.storage.conftest import run_journal

from .kit import GOOD, NOW, Talk, good, is_well_formed, long_talk

PATH = "main/current.jsonl"
ARCHIVE = "2026-02-25-143000.jsonl"
WINDOW = 10_000


def nobody(request):
    raise AssertionError("no model was to be asked")


async def no_tokens(request, share):
    return PromptSize(0, WINDOW)


def compactor(model=nobody, *, window=WINDOW, reads=100_000, timeout=60.0, **more):
    scripted = model if isinstance(model, ScriptedModel) else ScriptedModel(model)
    windows = {"default": window, "compact": reads}.__getitem__
    return Compactor(scripted, windows, lambda: NOW, no_tokens, timeout=timeout, **more)


@asynccontextmanager
async def session_of(talk, disk=None):
    """A session with these entries on a disk. A compaction that never ends fails after a day of virtual time, instead of hanging."""
    disk = disk or MemoryDisk()
    with trio.fail_after(86_400):
        async with run_journal(disk) as journal:
            session = Session((), journal.ref)
            await session.commit(talk.entries)
            session.disk = disk
            yield session


async def reloaded(disk):
    async with run_journal(disk) as journal:
        return (await load_session(journal.ref, lambda: NOW)).entries


def total(entries):
    return sum(map(entry_tokens, entries))


# ------------------------------------------------------------------ what comes of it


async def test_older_turns_become_a_summary_that_names_the_archive_of_all_of_them(autojump_clock):
    talk = long_talk()
    async with session_of(talk) as session:
        content = session.disk.content(PATH)
        assert await compactor([good()]).compact(session, ()) == ARCHIVE
        assert session.disk.content(f"main/{ARCHIVE}") == content
        opening, *kept = session.entries
        assert opening.role == "system"
        assert opening.metadata["type"] == "compact"
        assert opening.metadata["previousSession"] == ARCHIVE
        assert ARCHIVE in opening.content
        assert "Anna wants the report." in opening.content
        assert kept == talk.entries[-len(kept) :]
        assert 0 < len(kept) < 20
        assert is_valid(session.projection.turns)
        assert await reloaded(session.disk.survivor()) == session.entries


async def test_the_summary_is_asked_for_with_its_role_and_the_item_it_is_made_for(autojump_clock):
    model = ScriptedModel([good()])
    async with session_of(long_talk()) as session:
        await compactor(model).compact(session, [99])
    [request] = model.requests
    assert (request.label.role, request.label.item, request.tools) == ("compact", 99, ())
    assert "message 0 " in request.turns[0].text
    assert "message 39 " not in request.turns[0].text  # it stays


async def test_where_nothing_can_be_summarised_nothing_happens(autojump_clock):
    talk = Talk()
    talk.heard("hi")
    async with session_of(talk) as session:
        assert await compactor().compact(session, [1]) is None
        assert session.entries == talk.entries
        assert session.disk.paths() == [PATH]


@pytest.mark.parametrize("before", [0, 40])
async def test_a_message_that_no_provider_could_take_is_cut_before_it_is_sent(autojump_clock, before):
    """Some providers do not say that it is too long, but leave out what they like; the whole of it is in the archive."""
    talk = long_talk(messages=before)
    talk.heard("begin " + "many words " * 10_000 + "end")
    async with session_of(talk) as session:
        name = await compactor(lambda _: good()).compact(session, [talk.last_item])
        assert total(session.entries) < WINDOW
        [message] = [entry for entry in session.entries if entry.item == talk.last_item]
        assert "begin many words" in message.content
        assert message.content.endswith("end")
        assert "characters left out" in message.content
        assert "many words " * 10_000 in session.disk.content(f"main/{name}").decode()


async def test_one_that_may_fit_is_left_to_the_provider(autojump_clock):
    """Our count is too high on purpose: nothing is cut that might have been taken."""
    talk = Talk()
    talk.heard("word " * (WINDOW * 4 // 5))
    async with session_of(talk) as session:
        assert await compactor().compact(session, [1]) is None


async def test_one_compaction_after_the_other_keeps_one_summary(autojump_clock):
    talk, model = long_talk(), ScriptedModel(lambda _: good())
    async with session_of(talk) as session:
        agent = compactor(model)
        for n in range(4):
            await agent.compact(session, ())
            assert [entry.role for entry in session.entries].count("system") == 1
            more = long_talk(messages=40)
            await session.commit(more.entries)
            assert model.requests[n].turns[0].text.count("Anna wants the report.") == (1 if n else 0)
        names = [path for path in session.disk.paths() if path != PATH and path.startswith("main/")]
        assert len(names) == 4


async def test_tasks_and_memory_are_asked_and_stand_in_the_new_session(autojump_clock):
    async def open_tasks():
        return [OpenTask("t7", "count the stars", kind="explore", state="acting")]

    async def index(is_apart):
        return "[Memory: facts/user.md]"

    async with session_of(long_talk()) as session:
        await compactor([good()], open_tasks=open_tasks, memory_index=index).compact(session, ())
        opening, memory, *_ = session.entries
    assert "t7 (explore, acting): count the stars" in opening.content
    assert (memory.role, memory.content, memory.metadata) == (
        "user",
        "[Memory: facts/user.md]",
        {"type": "memory_index"},
    )
    assert memory.item is None


async def test_who_does_not_answer_or_fails_costs_no_turn(autojump_clock):
    async def open_tasks():
        await trio.sleep_forever()

    async def index(is_apart):
        raise ExceptionGroup("several", [ValueError("no memory")])

    talk = long_talk()
    talk.heard("go")
    talk.gave("t1", "count the stars")
    async with session_of(talk) as session:
        await compactor([good()], open_tasks=open_tasks, memory_index=index).compact(session, ())
        assert "t1, asked for on cli:main: count the stars" in session.entries[0].content
        assert trio.current_time() < 10


# ------------------------------------------------------------------ summaries that fail


async def test_a_summary_that_fails_its_checks_is_asked_for_once_more_with_what_is_wrong(autojump_clock):
    model = ScriptedModel([say("So, they talked."), good()])
    async with session_of(long_talk()) as session:
        await compactor(model).compact(session, ())
        assert session.entries[0].metadata["mechanical"] is False
    first, second = model.requests
    assert is_valid(second.turns)
    assert second.turns[:1] == first.turns
    assert 'the heading "## Now" is missing' in second.turns[-1].text


@pytest.mark.parametrize(
    "steps",
    [
        [say("no"), say("no")],
        [say(""), say("")],
        [down("budget", "the budget of this day is used up")],
        [down("auth")],
        [down("overflow"), down("overflow")],
        [say(GOOD, stop_reason="length"), Hang()],
        [Hang()],
    ],
)
async def test_where_no_summary_can_be_had_code_makes_one(autojump_clock, steps):
    async with session_of(long_talk()) as session:
        await compactor(steps).compact(session, ())
        opening = session.entries[0]
        assert opening.metadata["mechanical"] is True
        assert "answer 3" in opening.content
        assert trio.current_time() <= 61


async def test_a_model_with_a_smaller_window_than_was_thought_gets_smaller_parts(autojump_clock):
    def answer(request):
        return down("overflow") if len(request.turns[0].text) > 8_000 else good()

    model = ScriptedModel(answer)
    async with session_of(long_talk()) as session:
        await compactor(model, reads=12_000).compact(session, ())
        assert session.entries[0].metadata["mechanical"] is False
    assert len(model.requests) > 3
    assert "part 2 of" in model.requests[2].turns[0].text
    assert "Anna wants the report." in model.requests[2].turns[0].text


# ------------------------------------------------------------------ crashes


def states(disk):
    archives = [path for path in disk.paths() if path.startswith("main/2")]
    return disk.content(PATH), [disk.content(path) for path in archives]


@pytest.mark.parametrize("killed", [False, True])
async def test_a_crash_at_any_operation_leaves_the_session_as_it_was_or_as_it_is_to_be(autojump_clock, killed):
    """killed: the process dies, and the machine goes on."""
    talk = long_talk(20)
    seen = set()
    for operation in range(1, 60):
        disk = MemoryDisk()
        with suppress(ActorError, PowerLoss, BaseExceptionGroup):
            async with session_of(talk, disk) as session:
                old = session.disk.content(PATH)
                disk.lose_power(operation)
                with trio.move_on_after(100):
                    await compactor([good()], window=3_000).compact(session, ())
        alive = disk.operations < operation
        if killed:
            disk.reopen()
        else:
            disk.crash(torn_bytes=10)
        entries = await reloaded(disk)
        content, archives = states(disk)
        is_old = content == old
        seen.add(is_old)
        assert archives == [] if is_old else archives == [old]
        assert is_old or entries[0].metadata["previousSession"] == ARCHIVE
        assert is_well_formed(entries)
        assert not any(path.endswith((".next", ".tmp")) for path in disk.paths() if killed or path.endswith(".next"))
        if alive:
            break
    assert seen == {True, False}


async def test_a_full_disk_delays_it_and_loses_nothing(autojump_clock):
    talk = long_talk()
    async with session_of(talk) as session:
        session.disk.fail(1, times=6)
        old = session.disk.content(PATH)
        assert await compactor([good()]).compact(session, ()) == ARCHIVE
        assert session.disk.content(f"main/{ARCHIVE}") == old
        assert await reloaded(session.disk.survivor()) == session.entries


async def test_cancelled_before_the_summary_is_there_nothing_has_happened(autojump_clock):
    talk = long_talk()
    async with session_of(talk) as session:
        with trio.move_on_after(5):
            await compactor([Hang()]).compact(session, ())
        assert session.entries == talk.entries
        assert session.disk.paths().count(PATH) == 1
        await session.commit(talk.entries[:1])


# ------------------------------------------------------------------ forced


async def test_forced_again_and_again_it_gets_smaller_until_nothing_is_left(autojump_clock):
    talk = long_talk(30)
    start = talk.heard("the question " + "q" * 8_000)
    for n in range(6):
        talk.called("memory_read", "r" * 6_000, text="t" * 3_000, path=f"{n}" * 500)
    calls = [call.id for entry in talk.entries[talk.entries.index(start) :] for call in entry.calls]
    agent, sizes = compactor(lambda _: good()), []
    async with session_of(talk) as session:
        old = session.disk.content(PATH)
        for _ in range(40):
            if await agent.compact(session, [talk.last_item], forced=True) is None:
                break
            sizes.append(total(session.entries))
            assert is_well_formed(session.entries)
            assert is_valid(session.projection.turns)
            running = session.of_item(talk.last_item)
            assert running[0].item == start.item
            assert [call.id for entry in running for call in entry.calls] == calls
        assert sizes == sorted(sizes, reverse=True)
        assert len(sizes) < 12
        assert sizes[-1] < 2_500
        assert session.disk.content(f"main/{ARCHIVE}") == old
        names = {path for path in session.disk.paths() if path.startswith("main/2")}
        assert len(names) == len(sizes)


async def test_the_summary_itself_is_shortened_last(autojump_clock):
    talk = long_talk(30)
    long_summary = say(GOOD.replace("Anna", "Anna " * 100) + " main")
    agent = compactor(lambda _: long_summary)
    async with session_of(talk) as session:
        await agent.compact(session, [30], forced=True)
        before = total(session.entries)
        for _ in range(40):
            if await agent.compact(session, [30], forced=True) is None:
                break
            assert total(session.entries) < before
            before = total(session.entries)
        else:
            raise AssertionError("it never ends")
        assert before < 700


# ------------------------------------------------------------------ early


@asynccontextmanager
async def preparing(agent):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


async def test_a_summary_that_was_prepared_while_turns_went_on_is_there_at_once(autojump_clock):
    model = ScriptedModel([After(20, good())])
    agent = compactor(model)
    async with session_of(long_talk()) as session, preparing(agent):
        agent.prepare(session.entries, ())
        await trio.sleep(1)
        late = long_talk(3)
        await session.commit(late.entries)
        agent.prepare(session.entries, ())  # again at every turn
        await trio.sleep(30)
        began = trio.current_time()
        await agent.compact(session, ())
        assert trio.current_time() - began < 0.1
        assert session.entries[-len(late.entries) :] == late.entries
        assert session.entries[0].metadata["mechanical"] is False
    assert len(model.requests) == 1


async def test_one_that_is_under_way_is_waited_for(autojump_clock):
    model = ScriptedModel([After(20, good())])
    agent = compactor(model)
    async with session_of(long_talk()) as session, preparing(agent):
        agent.prepare(session.entries, ())
        await trio.sleep(15)
        began = trio.current_time()
        await agent.compact(session, ())
        assert 4 < trio.current_time() - began < 6
    assert len(model.requests) == 1


async def test_one_of_a_session_that_was_put_aside_is_dropped_and_its_call_ended(autojump_clock):
    model = ScriptedModel([Hang(), good()])
    agent = compactor(model)
    async with session_of(long_talk()) as session, preparing(agent):
        agent.prepare(session.entries, ())
        await trio.sleep(1)
        await session.restart(lambda name: (), NOW)
        other = long_talk(50)
        await session.commit(other.entries)
        agent.prepare(session.entries, ())
        await trio.sleep(1)
        assert model.cancelled == 1
        await agent.compact(session, ())
        assert session.entries[0].metadata["mechanical"] is False
    assert len(model.requests) == 2


async def test_a_slow_model_may_write_for_many_minutes(autojump_clock):
    """Its own limits, for the first token and for silence, end a call that hangs."""
    windows = {"default": WINDOW, "compact": 100_000}.__getitem__
    agent = Compactor(ScriptedModel([After(900, good())]), windows, lambda: NOW, no_tokens)
    async with session_of(long_talk()) as session:
        await agent.compact(session, ())
        assert session.entries[0].metadata["mechanical"] is False


async def test_a_model_that_did_not_answer_in_time_is_not_waited_for_again(autojump_clock):
    model = ScriptedModel([After(120, down("timeout"))])
    agent = compactor(model, timeout=1_800)
    async with session_of(long_talk()) as session, preparing(agent):
        agent.prepare(session.entries, ())
        await trio.sleep(130)
        await agent.compact(session, ())
        assert session.entries[0].metadata["mechanical"] is True
    assert len(model.requests) == 1


async def test_where_the_model_was_down_meanwhile_it_is_asked_again_when_the_summary_is_wanted(autojump_clock):
    model = ScriptedModel([down(), good()])
    agent = compactor(model)
    async with session_of(long_talk()) as session, preparing(agent):
        for _ in range(3):
            agent.prepare(session.entries, ())
            await trio.sleep(1)
        assert len(model.requests) == 1
        await agent.compact(session, ())
        assert session.entries[0].metadata["mechanical"] is False


async def test_one_that_covers_an_item_that_is_taken_up_again_is_not_used(autojump_clock):
    talk = long_talk()
    agent = compactor([good(), good()])
    async with session_of(talk) as session, preparing(agent):
        agent.prepare(session.entries, ())
        await trio.sleep(1)
        await agent.compact(session, [3])
        assert session.of_item(3)


async def test_stopped_while_it_prepares_it_ends_and_a_later_one_is_made_anew(autojump_clock):
    model = ScriptedModel([Hang(), good()])
    agent = compactor(model)
    async with session_of(long_talk()) as session:
        async with preparing(agent):
            agent.prepare(session.entries, ())
            await trio.sleep(1)
        assert model.cancelled == 1
        agent.prepare(session.entries, ())  # nobody would make it
        await agent.compact(session, ())
        assert session.entries[0].metadata["mechanical"] is False


async def test_where_nothing_prepares_it_is_made_when_it_is_due(autojump_clock):
    agent = compactor([good()])
    async with session_of(long_talk()) as session:
        agent.prepare(session.entries, ())
        await agent.compact(session, ())
        assert session.entries[0].metadata["mechanical"] is False


# ------------------------------------------------------------------ when


def counting(agent, tokens, *, is_assumed=False):
    """Let the next request have so many tokens."""

    async def measure(request, share):
        return PromptSize(tokens, WINDOW, is_assumed)

    agent.measure = measure
    return agent


REQUEST = ModelRequest("", ())


async def test_the_session_is_compacted_at_the_threshold_and_a_summary_begun_a_tenth_before(autojump_clock):
    model = ScriptedModel([good()])
    agent = compactor(model)
    async with session_of(long_talk()) as session, preparing(agent):
        running = [session.entries[-2].item or 40]
        for tokens, requests in ((WINDOW * 0.719, 0), (WINDOW * 0.72, 1), (WINDOW * 0.799, 1)):
            assert not await counting(agent, tokens).fit(session, REQUEST, running)
            await trio.sleep(1)
            assert len(model.requests) == requests
        assert await counting(agent, WINDOW * 0.8).fit(session, REQUEST, running)
        assert session.entries[0].metadata["type"] == "compact"
    assert len(model.requests) == 1


async def test_nothing_is_compacted_for_an_assumed_window_before_the_model_has_answered(autojump_clock):
    """The model may be out of reach, or a name with a typing error; the conversation goes on with another one."""
    model = ScriptedModel([good()])
    agent = compactor(model)
    talk = long_talk()
    async with session_of(talk) as session, preparing(agent):
        for tokens in (WINDOW * 0.75, WINDOW * 2):
            assert not await counting(agent, tokens, is_assumed=True).fit(session, REQUEST, [40])
            await trio.sleep(1)
        assert session.entries == talk.entries
        assert not model.requests
        assert await counting(agent, WINDOW * 2).fit(session, REQUEST, [40])


@pytest.mark.parametrize("kind", ["auth", "network", "request"])
async def test_at_the_threshold_nothing_is_compacted_by_code_because_the_model_is_out_of_reach(autojump_clock, kind):
    """Only what does not fit into the window any more is; a model that is back writes the summary."""
    talk = long_talk()
    agent = compactor([down(kind), down(kind)], window=10_000)
    async with session_of(talk) as session:
        assert not await counting(agent, 8_500).fit(session, REQUEST, [40])
        assert session.entries == talk.entries
        assert await counting(agent, 10_000).fit(session, REQUEST, [40])
        assert session.entries[0].metadata["mechanical"] is True
    agent = compactor([down(kind), good()], window=10_000)
    async with session_of(talk) as session:
        assert not await counting(agent, 8_500).fit(session, REQUEST, [40])
        assert not await counting(agent, 8_600).fit(session, REQUEST, [40])
        assert await counting(agent, 9_500).fit(session, REQUEST, [40])
        assert session.entries[0].metadata["mechanical"] is False


async def test_what_stays_large_after_a_compaction_is_not_compacted_at_every_thought(autojump_clock):
    agent = compactor(lambda _: good(), window=10_000)
    async with session_of(long_talk()) as session:
        await agent.compact(session, ())
        await session.commit(long_talk().entries)
        assert [await counting(agent, tokens).fit(session, REQUEST, [0]) for tokens in (8_500, 9_400, 9_600)] == [
            False,
            False,
            True,
        ]


async def test_what_comes_after_a_compaction_goes_on_in_the_new_session(autojump_clock):
    async with session_of(long_talk()) as session:
        await compactor([good()]).compact(session, ())
        late = Talk()
        late.heard("more")
        await session.add(*late.entries)
        assert (await reloaded(session.disk.survivor()))[-1] == late.entries[0]
        assert isinstance(session.projection.turns[-1], UserTurn)
