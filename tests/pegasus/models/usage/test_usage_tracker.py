"""Every call is counted: its tokens, its price, for whom; written to data/usage and summed up again at the next start."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import pytest
import trio

from actors import Child, open_supervisor
from pegasus.messages import Address, ChannelInfo
from pegasus.models import (
    Label,
    ModelClient,
    ModelError,
    ModelResponse,
    ModelService,
    PriceList,
    TextPiece,
    Usage,
    UsageTracker,
)
from pegasus.models.catalog import FREE, PRICES, TokenPrice, known_price
from pegasus.models.usage.keeper import GATHERING, RETRY, keep_usage
from pegasus.models.usage.report import usage_report, usage_text
from pegasus.models.usage.tracker import MOST_UNSAVED, UsageLedger, UsageRecord, lines_by_month, parse_record
from pegasus.settings import BudgetSettings, ModelSettings, PriceSettings, ProviderSettings
from pegasus.storage import ReadFile, StorageError, run_journal
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, Hang, ScriptedModel, down
from pegasus.wire import WireError, decode_object, encode_line
from tests.pegasus.models.conftest import client, request, usage_record

NOON = 1_795_348_800_000  # 2026-11-22 12:00 UTC
DAY = 86_400_000
SLACK = ChannelInfo("slack", "C1", "u1")
FILE = "usage/2026-11.jsonl"


def wall_clock() -> int:
    return NOON + int(trio.current_time() * 1000)


def prices() -> PriceList:
    return PriceList(
        {"lab/priced": PriceSettings(input=1.0, output=10.0, cache_read=0.5)}, {"lab": ProviderSettings("openai")}
    )


def tracker(seed: int = 1, *, clock=wall_clock, budget: BudgetSettings | None = None) -> UsageTracker:
    return UsageTracker(clock, Random(seed), budget or BudgetSettings(), prices())


def line_of(record: UsageRecord) -> bytes:
    [[line]] = lines_by_month([record]).values()
    return encode_line(line)


def metered(kept: UsageTracker, *script: object, name: str = "lab/priced") -> ModelClient:
    return client(ScriptedModel(script or (lambda request: answer()), name=name), kept)


def answer(prompt: int = 1000, completion: int = 100, cached: int = 0) -> ModelResponse:
    return ModelResponse("hello", (), Usage(prompt, completion, cached), "end")


@asynccontextmanager
async def keeping(kept: UsageTracker, disk: MemoryDisk):
    """The bookkeeper at work on a journal; ended in order."""
    async with open_supervisor() as root:
        ref = await root.start_child(Child("journal", partial(run_journal, clock=wall_clock), disk))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_usage, kept, ref)
            yield ref
            nursery.cancel_scope.cancel()


def lines(disk: MemoryDisk, path: str = FILE) -> list[dict[str, object]]:
    return [json.loads(line) for line in disk.content(path).splitlines()]


# ------------------------------------------------------------------ what is counted


async def test_a_call_counts_for_its_day_month_model_chat_task_and_message(autojump_clock) -> None:
    kept = tracker()
    await metered(kept).generate(request(label=Label("subagent", SLACK, 7, "t1")))
    ledger = kept.ledger
    sums = [
        ledger.days["2026-11-22"],
        ledger.months["2026-11"],
        ledger.models["2026-11", "lab/priced"],
        ledger.models["2026-11-22", "lab/priced"],
        ledger.chats["2026-11-22", Address("slack", "C1")],
        ledger.tasks["t1"],
        ledger.items[7],
    ]
    assert [(used.calls, used.prompt, used.completion, used.cost) for used in sums] == [(1, 1000, 100, 0.002)] * 7


async def test_a_model_without_a_price_counts_in_tokens_only(autojump_clock) -> None:
    kept = tracker()
    await metered(kept, name="lab/other").generate(request())
    used = kept.ledger.days["2026-11-22"]
    assert (used.tokens, used.cost, used.unpriced) == (1100, 0.0, 1)
    assert "No price is known for lab/other" in usage_text(usage_report(kept))


async def test_a_server_that_does_not_count_is_estimated(autojump_clock) -> None:
    kept = tracker()
    await metered(kept, answer(0, 0)).generate(request(text="word " * 1000))
    used = kept.ledger.days["2026-11-22"]
    assert used.estimated == 1
    assert 1000 < used.prompt < 2000
    assert used.completion > 0


async def test_a_call_that_failed_before_it_began_to_answer_costs_nothing(autojump_clock) -> None:
    kept = tracker()
    with pytest.raises(ModelError):
        await metered(kept, down()).generate(request())
    assert kept.ledger.days == {}
    assert kept.unsaved == []


class Talker:
    """Says something and then never ends."""

    name = "lab/priced"

    async def generate(self, request):
        request.on_pieces([TextPiece("half an answer " * 100)])
        await trio.sleep_forever()


async def test_what_was_said_before_a_stop_is_counted(autojump_clock) -> None:
    kept = tracker()
    heard = []
    with trio.move_on_after(1):
        await client(Talker(), kept).generate(request(on_pieces=heard.extend))
    [record] = kept.unsaved
    assert (record.failed, record.estimated) == ("cancelled", True)
    assert record.completion_tokens > 300
    assert heard[1:] == [None]


async def test_the_answer_and_the_error_are_those_of_the_model(autojump_clock) -> None:
    response = answer()
    model = metered(tracker(), response, down("auth", "no key"))
    assert await model.generate(request()) is response
    with pytest.raises(ModelError, match="no key"):
        await model.generate(request())


async def test_a_call_belongs_to_the_day_it_began(autojump_clock) -> None:
    kept = tracker(clock=lambda: NOON + DAY // 2 - 1000 + int(trio.current_time() * 1000))
    await metered(kept, After(5.0, answer())).generate(request())
    assert list(kept.ledger.days) == ["2026-11-22"]


# ------------------------------------------------------------------ prices


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(1_000_000, 0), 1.0),
        (Usage(1_000_000, 1_000_000), 6.0),
        (Usage(1_000_000, 0, 1_000_000), 0.05),
        (Usage(1_000_000, 0, 400_000, 600_000), 0.4 * 0.05 + 0.6 * 1.25),
        (Usage(100, 0, 1_000_000), 0.05),  # a server that counts the cache apart
    ],
)
def test_cost_of_a_call(usage: Usage, cost: float) -> None:
    assert TokenPrice(1, 5, 0.05, 1.25).cost(usage) == pytest.approx(cost)


def test_a_long_prompt_makes_the_whole_call_dearer() -> None:
    price = PRICES["gpt-6.1-terra"]
    assert price.cost(Usage(272_000, 100_000)) == pytest.approx(0.272 + 0.5)
    assert price.cost(Usage(272_001, 100_000)) == pytest.approx(2 * 0.272001 + 0.75)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4o-mini", "gpt-4o-mini"),
        ("openai/GPT-6-luna", "gpt-6-luna"),
        ("gemini-3.1-pro-preview", "gemini-3.1-pro"),
        ("gpt-5.2", None),
        ("gpt-oss-20b", None),
        ("claude-sonnet-9", None),
        ("my-gpt-4o", None),
    ],
)
def test_models_are_known_with_and_without_a_date_and_others_are_not(name: str, known: str | None) -> None:
    assert known_price(name) == (PRICES[known] if known else None)


def test_prices_of_the_settings_win_and_what_runs_at_home_is_free() -> None:
    own = {"openai/gpt-4o": PriceSettings(input=9.0), "ollama/dear": PriceSettings(input=3.0)}
    prices = PriceList(own, {"box": ProviderSettings("ollama"), "gate": ProviderSettings("anthropic")})
    assert prices.find("openai/gpt-4o").input == 9.0
    assert prices.find("ollama/dear").input == 3.0
    assert prices.find("box/llama") == prices.find("offline/stand-in") == FREE
    assert prices.find("gate/claude-haiku-4-5").input == 1.0
    assert prices.find("unheard/claude-haiku-4-5") is None


def test_every_price_makes_sense() -> None:
    for name, price in PRICES.items():
        assert 0 < price.input < price.output, name
        assert price.cache_read <= price.input, name
        assert price.at_most(1000, 1000) >= price.cost(Usage(1000, 1000, 0, 1000)) - 1e-12, name


# ------------------------------------------------------------------ on disk


async def test_records_are_written_together_and_read_again(autojump_clock) -> None:
    disk, kept = MemoryDisk(), tracker()
    async with keeping(kept, disk):
        model = metered(kept)
        for _ in range(3):
            await model.generate(request(label=Label("default", SLACK, 5)))
        await trio.sleep(GATHERING + 0.2)
        written = lines(disk)
    assert [line["promptTokens"] for line in written] == [1000] * 3
    assert written[0]["channel"] == {"type": "slack", "channelId": "C1"}
    assert "taskId" not in written[0]
    again = tracker(2)
    again.wanted.set()
    async with keeping(again, disk):
        await again.loaded.wait()
        assert usage_report(again)["today"] == usage_report(kept)["today"]
        assert again.ledger.items[5].calls == 3


async def test_what_is_left_is_written_when_it_is_stopped(autojump_clock) -> None:
    disk, kept = MemoryDisk(), tracker()
    async with keeping(kept, disk):
        await metered(kept).generate(request())
    assert len(lines(disk)) == 1


class Refusing:
    """A journal that refuses the first writes."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.written: list[bytes] = []

    async def ask(self, make, *args):
        await trio.lowlevel.checkpoint()
        if make is ReadFile:
            raise StorageError("the disk is broken")
        if self.times:
            self.times -= 1
            raise StorageError("the disk is full")
        self.written += [data for _, data in args[0]]


async def test_a_journal_that_refuses_loses_no_record(autojump_clock) -> None:
    """Nor does one that cannot be read keep the agent from going on."""
    kept, refusing = tracker(), Refusing(2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_usage, kept, refusing)
        await metered(kept).generate(request())
        await trio.sleep(GATHERING)
        await metered(kept).generate(request())
        await trio.sleep(3 * (GATHERING + RETRY))
        nursery.cancel_scope.cancel()
    assert b"".join(refusing.written).count(b"\n") == 2
    assert kept.loaded.is_set()


async def test_records_that_cannot_be_written_are_kept_up_to_a_limit(autojump_clock) -> None:
    kept = tracker()
    record = usage_record("x", NOON, "m", Usage(1, 1), None)
    kept.add_unsaved(older=[record] * (MOST_UNSAVED + 5))
    assert len(kept.unsaved) == MOST_UNSAVED


async def test_a_record_that_was_written_twice_counts_once(autojump_clock) -> None:
    kept = tracker()
    record = usage_record("same", NOON, "m", Usage(1, 1), None)
    kept.load([record, parse_record(decode_object(line_of(record)))])
    assert kept.ledger.days["2026-11-22"].calls == 1


async def test_what_was_used_while_the_files_were_read_counts_once(autojump_clock) -> None:
    kept = tracker()
    await metered(kept).generate(request())
    kept.load([usage_record("old", NOON, "m", Usage(1, 1), None)])
    kept.load([usage_record("again", NOON, "m", Usage(1, 1), None)])
    assert kept.ledger.days["2026-11-22"].calls == 2


BAD = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"x"',
    b"\xff\xfe",
    b'{"ts":-1}',
    b'{"ts":"a"}',
    b'{"ts":true}',
    b'{"ts":1e99}',
    b'{"ts":253402300800000}',
    b'{"cost":"a"}',
    b'{"cost":NaN}',
    b'{"cost":-1}',
    b'{"promptTokens":-5}',
    b'{"model":5}',
    b'{"channel":{"type":1}}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("line", [line for line in BAD if line.startswith(b'{"') and b"NaN" not in line])
def test_a_line_that_makes_no_sense(line: bytes) -> None:
    with pytest.raises(WireError):
        parse_record(decode_object(line))


async def test_bad_lines_hide_no_good_ones(autojump_clock) -> None:
    good = line_of(usage_record("a", NOON, "m", Usage(10, 1), 0.5))
    disk = MemoryDisk()
    disk.put(FILE, b"\n".join([*BAD, good]))
    kept = tracker()
    kept.wanted.set()
    async with keeping(kept, disk):
        await kept.loaded.wait()
    assert kept.ledger.days["2026-11-22"].cost == 0.5


def test_a_record_comes_back_as_it_was() -> None:
    record = usage_record(
        "a-1", NOON, "m/é", Usage(1, 2, 3, 4), 0.25, "compact",
        channel=Address("sms", "+49\ud800"), item=3, task_id="t", estimated=True, failed="timeout",
    )  # fmt: skip
    assert parse_record(decode_object(line_of(record))) == record


def test_lines_of_earlier_versions_are_read() -> None:
    line = b'{"id":"a","ts":%d,"model":"m","role":"default","promptTokens":0,"completionTokens":2,"cost":0.0}' % NOON
    assert parse_record(decode_object(line)) == usage_record("a", NOON, "m", Usage(0, 2), 0.0)


async def test_last_month_is_read_too(autojump_clock) -> None:
    old = usage_record("a", NOON - 25 * DAY, "m", Usage(10, 1), 0.5)
    disk, kept = MemoryDisk(), tracker()
    disk.put("usage/2026-10.jsonl", line_of(old))
    kept.wanted.set()
    async with keeping(kept, disk):
        await kept.loaded.wait()
    assert kept.ledger.months["2026-10"].calls == 1


def test_memory_is_bounded() -> None:
    usage = Usage(1, 1)
    ledger = UsageLedger(
        usage_record(
            str(n), NOON + n * DAY, f"m{n}", usage, None, channel=Address("sms", str(n)), item=n, task_id=f"t{n}"
        )
        for n in range(6000)
    )
    sizes = [len(sums) for sums in (ledger.days, ledger.chats, ledger.tasks, ledger.items, ledger.models)]
    assert sizes == [70, 5000, 2000, 1000, 500]
    assert "t5999" in ledger.tasks


# ------------------------------------------------------------------ reports


async def test_the_answer_to_usage(autojump_clock) -> None:
    kept = tracker(budget=BudgetSettings(daily_cost=1.0, monthly_tokens=100_000))
    kept.load([usage_record("a", NOON - DAY, "lab/priced", Usage(500_000, 10, 400_000), 0.25)])
    model = metered(kept, answer(1000, 100, 800), answer(2000, 50))
    kept.configure(BudgetSettings(daily_cost=1.0), prices())
    await model.generate(request(label=Label(channel=SLACK, item=1)))
    await model.generate(request(label=Label(channel=ChannelInfo("cli", "main"), item=2)))
    text = usage_text(usage_report(kept, SLACK))
    assert text.splitlines() == [
        "The last message: 1 call, 2,000 tokens in, 50 out, $0.0025",
        "Today: 2 calls, 3,000 tokens in (800 from the cache), 150 out, $0.0041",
        "This chat today: 1 call, 1,000 tokens in (800 from the cache), 100 out, $0.0016",
        "This month: 3 calls, 503,000 tokens in (400,800 from the cache), 160 out, $0.25",
        "Budget today: $0.0041 of $1.00 used",
    ]


def test_the_answer_to_usage_when_there_is_none() -> None:
    assert usage_text(usage_report(tracker(clock=lambda: NOON))) == "Today: nothing\nThis month: nothing"


async def test_a_call_is_counted_once_whenever_somebody_looks(autojump_clock) -> None:
    """Before it is written, after it, and in between."""
    kept = tracker()
    asked = metered(kept)
    for n in range(1, 5):
        await asked.generate(request())
        if n % 2:
            assert kept.ledger.days["2026-11-22"].calls == n
        assert len(kept.take_unsaved(10)) == 1
    assert kept.ledger.days["2026-11-22"].calls == 4


async def test_a_hanging_call_keeps_nothing_from_being_reported(autojump_clock) -> None:
    kept = tracker()
    with trio.move_on_after(1):
        await metered(kept, Hang()).generate(request())
    assert usage_report(kept)["today"]["calls"] == 0


async def test_the_stand_in_is_not_charged(autojump_clock) -> None:
    kept = tracker(budget=BudgetSettings(daily_tokens=1))
    service = ModelService(ModelSettings(), {}, rng=Random(1), usage=kept)
    with trio.fail_after(60):  # a call that counts would wait until the files of the budget have been read
        assert (await service.client().generate(request())).text
    assert kept.unsaved == []
    assert usage_text(usage_report(kept)).startswith("Today: nothing")


async def test_usage_says_how_tokens_are_counted(autojump_clock) -> None:
    kept = tracker()
    kept.load([])
    service = ModelService(ModelSettings(default="ollama/x"), {}, rng=Random(1), usage=kept)
    assert (await service.usage_text()).endswith(
        "The tokens of a conversation are estimated from the length of the text."
    )
    assert (
        await ModelService(ModelSettings(default="ollama/x"), {}, rng=Random(1)).usage_text() == "Usage is not counted."
    )
