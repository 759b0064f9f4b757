"""Activity of an agent since its start: counters for `/metrics`, and each piece of finished work for whoever exports it.

A piece of work (a message, a reply, a model call, a tool call) is reported once, when it has ended, by the part that knows
everything about it: the journal, `UsageTracker`, the tool executor. Reporting is a few additions in memory: it never waits, raises
nothing and starts nothing, so that it needs no setting. Sums begin at 0 with the process, as Prometheus expects of counters; what
must outlive a restart (costs, budgets) is in the files of usage.

Labels come from names that are few: models, tools, types of channels, kinds of errors. Servers and bridges choose some of these, so
each metric has at most MAX_SERIES of them; everything beyond counts under OTHER and the totals stay right.

An exporter is one function that gets every piece of work (`Activity.observer`). Without one nothing is kept.

    activity = Activity(wall_clock)
    activity.message_done(12, "telegram", accepted_at=1_772_029_800_000)
    activity.counts["pegasus_messages_done_total"]                    # {("telegram",): 1.0}
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

import attrs

from pegasus.messages import Address, Json
from pegasus.observe.log import get_logger

MAX_SERIES: Final = 200
"""Combinations of labels of one metric. Thousands would slow down every scrape and fill the database of whoever scrapes."""
OTHER: Final = "other"
"""Value of every label of what is counted beyond MAX_SERIES."""
BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper ends of the buckets of durations, in seconds: from a quick tool to a model that thinks for minutes."""


class MetricHead(NamedTuple):
    """Description of a metric: `MetricHead("Accepted messages", ("channel",))`."""

    help: str
    """Sentence for people."""
    labels: tuple[str, ...]
    """Names of its labels."""


COUNTERS: Final[Mapping[str, MetricHead]] = {
    "pegasus_messages_total": MetricHead(
        "Messages that were accepted; source agent: reports of tasks and what schedules start", ("channel", "source")
    ),
    "pegasus_messages_done_total": MetricHead("Messages that need no more work", ("channel",)),
    "pegasus_replies_total": MetricHead("Replies that were posted", ("channel",)),
    "pegasus_replies_acknowledged_total": MetricHead("Replies that their client has", ("channel",)),
    "pegasus_model_calls_total": MetricHead(
        "Calls of models; outcome: ok or the kind of the error", ("model", "role", "outcome")
    ),
    "pegasus_model_tokens_total": MetricHead(
        "Tokens of models; cache_read and cache_write are parts of prompt", ("model", "kind")
    ),
    "pegasus_model_cost_dollars_total": MetricHead("Dollars, of calls that have a price", ("model",)),
    "pegasus_tool_calls_total": MetricHead(
        "Calls of tools; outcome: ok, failed, or waits for an owner", ("tool", "outcome")
    ),
    "pegasus_errors_total": MetricHead("What went wrong, by the part that it went wrong in", ("source", "kind")),
    "pegasus_keys_taken_total": MetricHead(
        "Chats, tasks and services that this node has taken; kind: the beginning of their owner key", ("kind",)
    ),
    "pegasus_keys_lost_total": MetricHead("Chats, tasks and services that this node owns no more", ("kind",)),
    "pegasus_database_transactions_total": MetricHead(
        "Transactions; outcome: ok, or down where they are made again", ("outcome",)
    ),
    "pegasus_database_seconds_total": MetricHead("Seconds of transactions, waiting for a connection included", ()),
}
"""Counters by name."""

DURATIONS: Final[Mapping[str, MetricHead]] = {
    "pegasus_message_duration_seconds": MetricHead("Seconds from accepting a message until it is done", ("channel",)),
    "pegasus_model_call_duration_seconds": MetricHead(
        "Seconds of calls of models, retries and waiting included", ("model",)
    ),
    "pegasus_tool_call_duration_seconds": MetricHead(
        "Seconds of calls of tools, an owner's answer not included", ("tool",)
    ),
    "pegasus_pickup_duration_seconds": MetricHead(
        "Seconds from accepting a message, at any node, until the node that owns its chat has it", ("channel",)
    ),
}
"""Histograms of durations by name."""

GAUGES: Final[Mapping[str, MetricHead]] = {
    "pegasus_nodes": MetricHead("Nodes that live, this one among them", ()),
    "pegasus_node_lease_seconds": MetricHead("Seconds until this node stops, unless its lease is renewed", ()),
    "pegasus_node_keys": MetricHead("Chats, tasks and services that this node owns", ("kind",)),
}
"""State of a node that shares a database with others, by name."""

_log = get_logger("activity")

# ------------------------------------------------------------------ finished work


@attrs.frozen(eq=False, kw_only=True)
class MessageDone:
    """A message that needs no more work: `MessageDone(n=12, address=Address("web", "c1"), began=ms, ended=ms)`."""

    n: int
    """Number of the message in the queue."""
    address: Address
    """Conversation that it came from."""
    began: int
    """Wall clock when it was accepted, ms."""
    ended: int
    """Wall clock when it was done, ms."""
    is_internal: bool = False
    """True for a report of the agent itself."""


@attrs.frozen(eq=False, kw_only=True)
class ReplyPosted:
    """A reply that is on disk: `ReplyPosted(key="main/12/call_1", address=Address("web", "c1"), at=ms)`."""

    key: str
    """Idempotency key of its post, which names the message that it answers."""
    address: Address
    """Conversation that it goes to."""
    seq: int
    """Its number there."""
    at: int
    """Wall clock, ms."""


@attrs.frozen(eq=False, kw_only=True)
class ModelCallEnded:
    """A call of a model that has ended: `ModelCallEnded(model="openai/gpt-6", role="default", began=ms, seconds=1.2)`."""

    model: str
    """`<provider>/<model>`."""
    role: str = "default"
    """Role of the call, as in `Label.role`."""
    address: Address | None = None
    """Conversation that it was for."""
    item: int | None = None
    """Message that it was for: its number in the queue."""
    task_id: str = ""
    """Task that it was for."""
    began: int = 0
    """Wall clock when it began, ms."""
    seconds: float = 0.0
    """Duration."""
    prompt_tokens: int = 0
    """Tokens of the prompt, the cached ones included."""
    completion_tokens: int = 0
    """Tokens of the answer."""
    cache_read_tokens: int = 0
    """Part of the prompt that came from the provider's cache."""
    cache_write_tokens: int = 0
    """Part of the prompt that went into the provider's cache."""
    cost: float | None = None
    """Dollars, None if no price is known."""
    failed: str = ""
    """Kind of the error, "cancelled", or "" if the call was answered."""
    stop_reason: str = ""
    """Reason why the answer ended, as the model's client names it."""
    content: Callable[[], Mapping[str, Json]] = dict
    """Returns the texts of the call, by the names of the attributes of a trace. They are made only for an exporter that wants them.

    They may hold secrets, which the exporter removes."""


@attrs.frozen(eq=False, kw_only=True)
class ToolCallEnded:
    """A call of a tool that has ended: `ToolCallEnded(tool="read_file", key="t-1/call_7", task_id="t-1", began=ms, seconds=0.1)`."""

    tool: str
    """Name of the tool."""
    key: str = ""
    """Identifier of the call."""
    task_id: str = ""
    """Task that made it; "" for the Main Agent, whose key names the message."""
    began: int = 0
    """Wall clock when it began, ms."""
    seconds: float = 0.0
    """Duration."""
    outcome: str = "ok"
    """ok, failed, or waits."""
    content: Callable[[], Mapping[str, Json]] = dict
    """As in `ModelCallEnded`."""


FinishedWork: TypeAlias = MessageDone | ReplyPosted | ModelCallEnded | ToolCallEnded
"""Everything that an observer gets."""


# ------------------------------------------------------------------ sums


@attrs.define(eq=False, repr=False)
class DurationSum:
    """Durations of one series: `durations.buckets` has a number for each of BUCKETS, and one for what is longer."""

    buckets: list[int] = attrs.field(factory=lambda: [0] * (len(BUCKETS) + 1))
    """Durations that fall into each bucket, not added up."""
    seconds: float = 0.0
    """Sum of all."""

    def add(self, seconds: float) -> None:
        """Add a duration. One below 0, by a clock that was set back, counts as 0."""
        seconds = max(0.0, seconds)
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


class Activity:
    """Sums of everything that an agent has done since its start. clock: wall clock, ms since the epoch.

    Example: see the top of this file.
    """

    def __init__(self, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.clock = clock
        """Returns the wall clock, ms."""
        self.counts: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in COUNTERS}
        """Counters by name and values of the labels."""
        self.durations: dict[str, dict[tuple[str, ...], DurationSum]] = {name: {} for name in DURATIONS}
        """Histograms by name and values of the labels."""
        self.gauges: dict[str, Callable[[], Mapping[tuple[str, ...], float]]] = {}
        """Functions that return the present values by those of the labels, by names of GAUGES. Absent where the state is in files."""
        self.waits_for = ""
        """Sentence about what the whole process waits for, such as a database that does not answer; "" = nothing."""
        self.reason = ""
        """Error behind `waits_for`. It names machines and users, so it is for owners only."""
        self.is_draining = False
        """True if this node gives back what it owns, and takes nothing until it is started again."""
        self.observer: Callable[[FinishedWork], None] | None = None
        """Gets every piece of finished work. It must not wait; what it raises is logged and goes no further."""

    # ------------------------------------------------------------ reports

    def message_accepted(self, channel: str, *, is_internal: bool) -> None:
        """Count a message that is on disk and was not known. channel: type of its channel."""
        self._count("pegasus_messages_total", channel, "agent" if is_internal else "person")

    def message_done(self, done: MessageDone) -> None:
        """Count a message that needs no more work. One whose time of acceptance is not known has no duration."""
        self._count("pegasus_messages_done_total", done.address.type)
        if done.began:
            self._time("pegasus_message_duration_seconds", (done.ended - done.began) / 1000, done.address.type)
        self._tell(done)

    def reply_posted(self, posted: ReplyPosted) -> None:
        """Count a reply that is on disk."""
        self._count("pegasus_replies_total", posted.address.type)
        self._tell(posted)

    def replies_acknowledged(self, channel: str, number: int) -> None:
        """Count replies that a client has. channel: type of its channel."""
        self._count("pegasus_replies_acknowledged_total", channel, amount=number)

    def model_called(self, call: ModelCallEnded) -> None:
        """Count a call of a model, with its tokens, cost and seconds."""
        self._count("pegasus_model_calls_total", call.model, call.role, call.failed or "ok")
        for kind in ("prompt", "completion", "cache_read", "cache_write"):
            if tokens := getattr(call, f"{kind}_tokens"):
                self._count("pegasus_model_tokens_total", call.model, kind, amount=tokens)
        if call.cost:
            self._count("pegasus_model_cost_dollars_total", call.model, amount=call.cost)
        self._time("pegasus_model_call_duration_seconds", call.seconds, call.model)
        if call.failed and call.failed != "cancelled":
            self.failed("model", call.failed)
        self._tell(call)

    def tool_called(self, call: ToolCallEnded) -> None:
        """Count a call of a tool."""
        self._count("pegasus_tool_calls_total", call.tool, call.outcome)
        self._time("pegasus_tool_call_duration_seconds", call.seconds, call.tool)
        if call.outcome == "failed":
            self.failed("tool", "failed")
        self._tell(call)

    def failed(self, source: str, kind: str) -> None:
        """Count something that went wrong: `activity.failed("inbox", "overloaded")`."""
        self._count("pegasus_errors_total", source, kind)

    def keys_taken(self, keys: Iterable[str]) -> None:
        """Count owner keys that this node has taken: `activity.keys_taken(["chat/web%3Ac1"])`."""
        for key in keys:
            self._count("pegasus_keys_taken_total", key.partition("/")[0])

    def keys_lost(self, keys: Iterable[str]) -> None:
        """Count owner keys that this node owns no more."""
        for key in keys:
            self._count("pegasus_keys_lost_total", key.partition("/")[0])

    def transaction_ended(self, seconds: float, outcome: str = "ok") -> None:
        """Count a transaction of the database."""
        self._count("pegasus_database_transactions_total", outcome)
        self._count("pegasus_database_seconds_total", amount=seconds)

    def message_picked_up(self, channel: str, accepted_at: int) -> None:
        """Note that the node which owns a chat has a message of it now. channel: its type. accepted_at: wall clock, ms."""
        self._time("pegasus_pickup_duration_seconds", (self.clock() - accepted_at) / 1000, channel)

    # ------------------------------------------------------------ inside

    def _count(self, name: str, *labels: str, amount: float = 1) -> None:
        series = self.counts[name]
        key = _bounded(series, labels)
        series[key] = series.get(key, 0.0) + amount

    def _time(self, name: str, seconds: float, *labels: str) -> None:
        series = self.durations[name]
        key = _bounded(series, labels)
        found = series.get(key)
        if found is None:
            found = series[key] = DurationSum()
        found.add(seconds)

    def _tell(self, work: FinishedWork) -> None:
        if self.observer is None:
            return
        try:
            self.observer(work)
        except Exception as error:  # an exporter must not fail the work that it is told of
            _log.warning("finished work cannot be exported", error=repr(error))


def _bounded(series: Mapping[tuple[str, ...], object], labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the key of a series: the labels, or OTHER for each where there are too many already."""
    return labels if labels in series or len(series) < MAX_SERIES else (OTHER,) * len(labels)
