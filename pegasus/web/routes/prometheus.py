"""The answers of `/api/status`, `/api/usage` and `/api/tree`, and the sums of the agent's activity, as a text that Prometheus reads.

Gauges are made of the same answers that people and programs see, at the moment of a scrape, so the numbers cannot differ from those
of the other routes. Counters are what has happened since the start: Prometheus makes rates of them, and notices a restart.

A scrape gets a registry of its own with a single collector. The library's global registry is not used: it would
add metrics of the Python process and keep values from one scrape to the next.

Fields of the answers that are missing count as 0, so an older or partly started agent still gives metrics.
Labels are names of states, actors, models, tools and types of channels. None of them comes from a message, and the series of what
others may name are bounded where they are counted.

prometheus-client takes 1 MB and 15 ms, so this file is imported when the metrics are first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

import attrs
from prometheus_client import generate_latest
from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from pegasus import __version__
from pegasus.messages import Json
from pegasus.observe import BUCKETS, COUNTERS, DURATIONS, GAUGES, Activity

STATES: Final = ("starting", "up", "stopping", "stuck", "waiting", "down")
"""States that an actor may have."""


def format_metrics(
    status: Mapping[str, Json],
    usage: Mapping[str, Json],
    tree: Mapping[str, Json],
    streams: int,
    repeats: Mapping[str, int],
    activity: Activity,
) -> bytes:
    """Return the metrics of these answers.

    streams: open streams of events. repeats: webhook deliveries that came again, by hook. activity: sums since the start.

    Returns the text format 0.0.4, UTF-8. Raises nothing for any form of the answers.
    """
    registry = CollectorRegistry()
    registry.register(StateCollector(status, usage, tree, streams, repeats, activity))
    return generate_latest(registry)


@attrs.frozen(eq=False, repr=False)
class StateCollector:
    """Turns the answers of the control plane into metrics. Used once, for one scrape."""

    _status: Mapping[str, Json]
    _usage: Mapping[str, Json]
    _tree: Mapping[str, Json]
    _streams: int
    _repeats: Mapping[str, int]
    _activity: Activity

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. The library calls this for a scrape. It only reads the answers, so it never waits."""
        info = GaugeMetricFamily("pegasus_info", "Version of the agent", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        yield GaugeMetricFamily(
            "pegasus_uptime_seconds", "Seconds since the start", value=_number(self._status.get("uptime"))
        )
        yield GaugeMetricFamily(
            "pegasus_messages_waiting", "Messages that are not done", value=_number(self._status.get("waiting"))
        )
        yield GaugeMetricFamily(
            "pegasus_approvals_open", "Calls that wait for an owner", value=_number(self._status.get("approvals"))
        )
        yield GaugeMetricFamily("pegasus_event_streams", "Open streams of /api/events", value=float(self._streams))
        repeats = CounterMetricFamily(
            "pegasus_hook_repeats_total", "Webhook deliveries that came again and were not carried out", labels=["hook"]
        )
        for hook, repeated in self._repeats.items():
            repeats.add_metric([hook], repeated)
        yield repeats
        tasks = GaugeMetricFamily("pegasus_tasks", "Background tasks by state", labels=["state"])
        for state, count in _items(self._status.get("tasks")):
            tasks.add_metric([state], _number(count))
        yield tasks
        yield from self._actors()
        today = GaugeMetricFamily("pegasus_usage_today", "Use of models today (UTC)", labels=["kind"])
        # The day is that of UTC, as budgets count it. What is no number is left out.
        for kind, amount in _items(self._usage.get("today")):
            if isinstance(amount, int | float):
                today.add_metric([kind], float(amount))
        yield today
        yield from _sums(self._activity)

    def _actors(self) -> Iterator[Metric]:
        """Yield the number of actors in each state, and the restarts.

        States without an actor are 0 instead of missing, so that a rule about the state "stuck" always has a value. Restarts are
        listed only for actors that had one, because most never have.
        """
        counts = dict.fromkeys(STATES, 0)
        restarts = CounterMetricFamily(
            "pegasus_actor_restarts_total", "Restarts of actors that were restarted", labels=["actor"]
        )
        for node in _walk(self._tree):
            state = str(node.get("state"))
            counts[state] = counts.get(state, 0) + 1
            if restarted := _number(node.get("restarts")):
                restarts.add_metric([str(node.get("path"))], restarted)
        actors = GaugeMetricFamily("pegasus_actors", "Actors by state", labels=["state"])
        for state, count in counts.items():
            actors.add_metric([state], count)
        yield actors
        yield restarts


def _sums(activity: Activity) -> Iterator[Metric]:
    """Yield the counters and histograms of what has happened since the start, and the gauges of a node."""
    for name, head in COUNTERS.items():
        counter = CounterMetricFamily(name, head.help, labels=head.labels)
        for labels, count in activity.counts[name].items():
            counter.add_metric(labels, count)
        yield counter
    for name, head in DURATIONS.items():
        histogram = HistogramMetricFamily(name, head.help, labels=head.labels)
        for labels, found in activity.durations[name].items():
            sums = list(accumulate(found.buckets))
            ends = [*map(str, BUCKETS), "+Inf"]
            histogram.add_metric(labels, buckets=list(zip(ends, sums, strict=True)), sum_value=found.seconds)
        yield histogram
    for name, read in activity.gauges.items():
        gauge = GaugeMetricFamily(name, GAUGES[name].help, labels=GAUGES[name].labels)
        for labels, value in read().items():
            gauge.add_metric(labels, value)
        yield gauge


def _number(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _items(value: Json) -> list[tuple[str, Json]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def _walk(node: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    yield node
    children = node.get("children")
    for child in children if isinstance(children, list) else []:
        if isinstance(child, Mapping):
            yield from _walk(child)
