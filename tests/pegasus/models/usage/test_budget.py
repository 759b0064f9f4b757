"""Budgets refuse a call before it is made."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from random import Random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from pegasus.messages import ChannelInfo
from pegasus.models import Label, LanguageModel, ModelError, ModelResponse, PriceList, TokenCounter, Usage, UsageTracker
from pegasus.models.usage.tracker import UsageRecord, format_dollars
from pegasus.settings import BudgetSettings, PriceSettings, ProviderSettings
from pegasus.testing.scripted import After, ScriptedModel, down
from tests.pegasus.models.conftest import client, request, usage_record

NOON = 1_795_348_800_000  # 2026-11-22 12:00 UTC
HOUR = 3_600_000
A, B = ChannelInfo("slack", "A"), ChannelInfo("slack", "B")
PRICES = PriceList(
    {"lab/m": PriceSettings(input=1000.0, output=1000.0)},
    {"lab": ProviderSettings("openai"), "box": ProviderSettings("ollama")},
)
"""A dollar for a thousand tokens."""


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> int:
        return self.now


def tracker(clock=lambda: NOON, *records: UsageRecord, **budget: float) -> UsageTracker:
    made = UsageTracker(clock, Random(1), BudgetSettings(**budget), PRICES)
    made.load(records)
    return made


def spent(tokens: int, ts: int = NOON, **fields: object) -> UsageRecord:
    return usage_record(f"r{ts}", ts, "lab/m", Usage(tokens, 0), tokens / 1000, **fields)


def model(kept: UsageTracker, prompt: int = 100, completion: int = 100, *, seconds: float = 0.0, name: str = "lab/m"):
    answer = ModelResponse("hello", (), Usage(prompt, completion), "end")
    scripted = ScriptedModel(lambda request: After(seconds, answer), name=name)
    return client(scripted, kept), scripted


def small(**fields: object):
    """A request of about 100 tokens that may be answered with 100."""
    return request(**{"text": "word " * 40, "max_tokens": 100, **fields})


async def refused(asked: LanguageModel, **fields: object) -> str:
    with pytest.raises(ModelError) as caught:
        await asked.generate(small(**fields))
    assert caught.value.kind == "budget"
    return str(caught.value)


# ------------------------------------------------------------------ which budget


@pytest.mark.parametrize(
    ("budget", "key", "says"),
    [
        ({"daily_cost": 5.0}, "budget.daily_cost", "limit $5.00 today, used $4.99, this call up to $"),
        ({"daily_tokens": 5000}, "budget.daily_tokens", "limit 5,000 tokens today, used 4,990, this call up to "),
        ({"monthly_cost": 5.0}, "budget.monthly_cost", "this month"),
        ({"monthly_tokens": 5000}, "budget.monthly_tokens", "this month"),
        ({"task_cost": 5.0}, "budget.task_cost", "by one task"),
        ({"task_tokens": 5000}, "budget.task_tokens", "by one task"),
        ({"message_cost": 5.0}, "budget.message_cost", "for one message"),
        ({"message_tokens": 5000}, "budget.message_tokens", "for one message"),
        ({"guest_daily_cost": 5.0}, "budget.guest_daily_cost", "for one guest a day"),
        ({"guest_daily_tokens": 5000}, "budget.guest_daily_tokens", "for one guest a day"),
        ({"channel_daily_cost": 5.0}, "budget.channel_daily_cost", "in one chat a day"),
        ({"channel_daily_tokens": 5000}, "budget.channel_daily_tokens", "in one chat a day"),
    ],
)
async def test_a_call_that_may_exceed_a_budget_is_not_made(autojump_clock, budget, key, says) -> None:
    kept = tracker(lambda: NOON, spent(4990, channel=A.address, task_id="t", item=7, guest="sms:eve"), **budget)
    asked, scripted = model(kept)
    why = await refused(asked, label=Label("subagent", A, 7, "t", "sms:eve"))
    assert key in why
    assert says in why
    assert scripted.requests == []


@pytest.mark.parametrize("budget", ["task_tokens", "message_tokens", "guest_daily_tokens", "channel_daily_tokens"])
async def test_other_tasks_and_chats_go_on(autojump_clock, budget) -> None:
    kept = tracker(lambda: NOON, spent(4990, channel=A.address, task_id="t", item=7, guest="sms:eve"), **{budget: 5000})
    asked, scripted = model(kept)
    await asked.generate(small(label=Label("subagent", B, 8, "u", "sms:bob")))
    await asked.generate(small())
    assert len(scripted.requests) == 2


async def test_the_answer_counts_with_all_it_may_have(autojump_clock) -> None:
    """An upper estimate: the prompt and max_tokens."""
    asked, scripted = model(tracker(daily_tokens=1000))
    await refused(asked, max_tokens=1000)
    await asked.generate(small(max_tokens=500))
    assert len(scripted.requests) == 1


async def test_after_the_answer_only_what_was_used_counts(autojump_clock) -> None:
    asked, scripted = model(tracker(daily_tokens=1000), 50, 10)
    for _ in range(10):
        await asked.generate(small(max_tokens=200))
    assert len(scripted.requests) == 10


async def test_a_failed_call_gives_back_what_was_set_aside(autojump_clock) -> None:
    kept = tracker(daily_tokens=1000)
    failing = client(ScriptedModel(lambda request: down(), name="lab/m"), kept)
    for _ in range(10):
        with pytest.raises(ModelError) as caught:
            await failing.generate(small())
        assert caught.value.kind == "network"


async def test_what_is_free_may_be_asked_when_the_money_is_spent(autojump_clock) -> None:
    kept = tracker(lambda: NOON, spent(6000), daily_cost=5.0)
    asked, scripted = model(kept, name="box/local")
    await asked.generate(small())
    assert len(scripted.requests) == 1
    await refused(model(kept)[0])


async def test_without_a_budget_nothing_waits_for_the_files(autojump_clock) -> None:
    kept = UsageTracker(lambda: NOON, Random(1), BudgetSettings(), PRICES)
    asked, scripted = model(kept)
    await asked.generate(small())
    assert len(scripted.requests) == 1


async def test_with_a_budget_the_first_call_waits_until_the_files_are_read(autojump_clock) -> None:
    kept = UsageTracker(lambda: NOON, Random(1), BudgetSettings(daily_cost=5.0), PRICES)
    asked, scripted = model(kept)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused, asked)
        await trio.testing.wait_all_tasks_blocked()
        assert kept.wanted.is_set()
        kept.load([spent(6000)])
    assert scripted.requests == []


# ------------------------------------------------------------------ together


async def test_calls_at_the_same_time_do_not_exceed_it_together(autojump_clock) -> None:
    """Each sets aside what it may use; who would exceed it with the others waits until they are done, and is then refused."""
    kept = tracker(daily_tokens=1000)
    asked, scripted = model(kept, 200, 100, seconds=5)
    outcomes: list[str] = []

    async def one() -> None:
        try:
            await asked.generate(small(max_tokens=200))
            outcomes.append("answered")
        except ModelError as error:
            outcomes.append(error.kind)

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(one)
    assert kept.ledger.days["2026-11-22"].tokens <= 1000
    assert sorted(set(outcomes)) == ["answered", "budget"]
    assert len(scripted.requests) == outcomes.count("answered") >= 2


async def test_who_waits_for_others_can_be_cancelled(autojump_clock) -> None:
    kept = tracker(daily_tokens=600)
    asked, scripted = model(kept, 10, 10, seconds=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asked.generate, small(max_tokens=300))
        await trio.sleep(1)
        with trio.move_on_after(1) as scope:
            await asked.generate(small(max_tokens=300))
    assert scope.cancelled_caught
    assert len(scripted.requests) == 1
    await asked.generate(small(max_tokens=300))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400), st.booleans()), max_size=20), st.integers(1, 3000))
def test_whatever_happens_no_budget_is_exceeded(calls, budget) -> None:
    """As long as providers count no more than the upper estimate."""
    kept = tracker(daily_tokens=budget)

    async def one(prompt: int, completion: int, fails: bool) -> None:
        asked_for = request(text="word " * prompt, max_tokens=completion)
        usage = Usage(min(prompt, TokenCounter().estimate(asked_for)), completion)
        step = down() if fails else After(prompt / 10, ModelResponse("x", (), usage, "end"))
        with suppress(ModelError):
            await client(ScriptedModel([step], name="lab/m"), kept).generate(asked_for)

    async def all_of_them() -> None:
        async with trio.open_nursery() as nursery:
            for each in calls:
                nursery.start_soon(one, *each)

    trio.run(all_of_them, clock=trio.testing.MockClock(autojump_threshold=0))
    assert sum(used.tokens for used in kept.ledger.days.values()) <= budget


# ------------------------------------------------------------------ days and clocks


async def test_the_next_day_is_a_fresh_budget_and_so_it_says(autojump_clock) -> None:
    clock = Clock()
    asked, scripted = model(tracker(clock, spent(4990), daily_tokens=5000))
    assert "it is fresh from 2026-11-23 00:00 UTC" in await refused(asked)
    clock.now = NOON + 12 * HOUR - 1
    await refused(asked)
    clock.now += 1
    await asked.generate(small())
    assert len(scripted.requests) == 1


@pytest.mark.parametrize(
    ("now", "fresh"), [("2026-11-22", "2026-12-01"), ("2026-12-31", "2027-01-01"), ("2027-01-31", "2027-02-01")]
)
async def test_the_next_month_is_a_fresh_budget(autojump_clock, now, fresh) -> None:
    at = int(datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp() * 1000)
    assert f"fresh from {fresh} 00:00 UTC" in await refused(
        model(tracker(lambda: at, spent(4990, at), monthly_tokens=5000))[0]
    )


async def test_a_clock_that_is_set_back_gives_no_second_budget(autojump_clock) -> None:
    clock = Clock()
    asked, _ = model(tracker(clock, spent(4990), daily_tokens=5000))
    clock.now = NOON + 24 * HOUR
    await asked.generate(small())
    clock.now = NOON - 2 * HOUR
    await refused(asked)


async def test_other_settings_hold_from_the_next_call_on(autojump_clock) -> None:
    kept = tracker(lambda: NOON, spent(4990), daily_tokens=5000)
    asked, _ = model(kept)
    await refused(asked)
    kept.configure(BudgetSettings(daily_tokens=9000), PRICES)
    await asked.generate(small())


# ------------------------------------------------------------------ words


async def test_a_limit_of_tokens_holds_without_a_price(autojump_clock) -> None:
    """One of money cannot: nobody knows what the call costs."""
    kept = tracker(lambda: NOON, spent(4990), daily_tokens=5000, daily_cost=0.01)
    assert "5,000 tokens" in await refused(model(kept, name="lab/unpriced")[0])
    kept.configure(BudgetSettings(daily_cost=0.01), PRICES)
    asked, scripted = model(kept, name="lab/unpriced")
    await asked.generate(small())
    assert len(scripted.requests) == 1


@pytest.mark.parametrize(
    ("cost", "text"),
    [(0, "$0.00"), (1234.5, "$1,234.50"), (0.123, "$0.12"), (0.0123, "$0.0123"), (1e-7, "less than $0.0001")],
)
def test_amounts_for_people(cost, text) -> None:
    assert format_dollars(cost) == text
