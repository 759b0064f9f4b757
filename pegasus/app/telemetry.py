"""Traces and metrics over OTLP, by the semantic conventions of OpenTelemetry for generative AI. Imported only if an endpoint is set.

`Telemetry` observes the agent's activity (`pegasus.observe`). Each piece of finished work becomes a span with the times that it had:

    invoke_agent                    a message, from accepting it until it is done
    ├─ chat <model>                 a call of a model
    ├─ execute_tool <tool>          a call of a tool
    ├─ reply                        a reply that was posted
    └─ invoke_agent <task>          a task that the message began, until it has ended
       ├─ chat <model>
       └─ execute_tool <tool>

Ids are computed from the numbers of messages and tasks, so that work of a task belongs to the trace of its message however much
later it is done, over restarts too, and nothing about a trace has to be stored or handed along. A child may reach the collector before
its parent, which has not ended yet; OpenTelemetry allows that.

The SDK exports in threads of its own, which know nothing of Trio, and nothing of ours runs in them. The loop only puts a span into a
bounded queue. With a dead collector the queue is full after QUEUE spans and the oldest are dropped; no call waits for it, and
the log says once that it does not answer. At the end the queue has LAST_EXPORT seconds.

Texts of people, models and tools are exported only with `telemetry.content`, and without secrets. Otherwise the conversation is
named by a digest, since a channelId may be a telephone number.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final, TypeVar

import trio
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from pegasus import __version__
from pegasus.events import EventReader, EventWindow
from pegasus.main_agent import item_of_key
from pegasus.messages import Address, Json
from pegasus.observe import (
    BUCKETS,
    FinishedWork,
    MessageDone,
    ModelCallEnded,
    ReplyPosted,
    ToolCallEnded,
    get_logger,
)
from pegasus.settings import TelemetrySettings

QUEUE: Final = 2048
"""Spans that wait for the collector at most; about 4 MB."""
BATCH: Final = 512
"""Spans of one request."""
EXPORT_PERIOD: Final = 5.0
"""Seconds between two requests with spans."""
METRICS_PERIOD: Final = 30.0
"""Seconds between two requests with metrics."""
REQUEST_TIMEOUT: Final = 5.0
"""Seconds that the collector has for a request, retries included."""
LAST_EXPORT: Final = 1.0
"""Seconds that a stop waits for the last request."""
MOST_TASKS: Final = 2_000
"""Tasks whose message and beginning are remembered."""
PROVIDERS: Final[Mapping[str, str]] = {
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""Names of providers in the conventions, where they are not ours."""
_ENDS: Final = {"TASK_COMPLETED": "", "TASK_FAILED": "failed"}
_TOKEN_BUCKETS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304)
"""Buckets of the conventions for numbers of tokens."""

_T = TypeVar("_T")
_log = get_logger("telemetry")


class _ComputedIds(IdGenerator):
    """The ids of the span that is made next. Spans are made by the loop alone, one after the other."""

    def __init__(self) -> None:
        self._random = Random()  # noqa: S311 ids only
        self.trace_id = 0
        self.span_id = 0

    def generate_trace_id(self) -> int:
        """Return the id of the next span's trace."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """Return the id of the next span; a random one for a span that has no name of its own."""
        return self.span_id or self._random.getrandbits(64) or 1


class _WatchedExporter(SpanExporter):
    """Exporter that says in the log when the collector does not answer any more, and when it does again. Runs in the SDK's thread."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans. They are dropped if the collector does not take them."""
        result, why = SpanExportResult.FAILURE, ""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # of its HTTP client; the thread must go on
            why = repr(error)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._fails:
            _log.warning("the collector of traces does not take them; they are dropped until it does", error=why)
        elif self._fails and not failed:
            _log.info("the collector of traces takes them again")
        self._fails = failed
        return result

    def shutdown(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()


class Telemetry:
    """Exporter of finished work. exporter, reader: those of OTLP unless given. secret: makes the ids of traces hard to guess.

    redact: removes secrets from each text before it is exported.

    Example::

        telemetry = Telemetry(settings.telemetry, secret=token, agent="Pegasus", redact=secrets.redact)
        environment.activity.observer = telemetry.take
        nursery.start_soon(telemetry.follow_tasks, environment.recent)
        …
        await telemetry.aclose()
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        *,
        secret: str,
        agent: str,
        redact: Callable[[str], str],
        exporter: SpanExporter | None = None,
        reader: MetricReader | None = None,
    ) -> None:
        # Failures are told by `_WatchedExporter`, once; the SDK would tell each.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        base, headers = settings.otlp_endpoint.rstrip("/"), dict(settings.headers)
        if exporter is None:
            exporter = OTLPSpanExporter(f"{base}/v1/traces", headers=headers, timeout=REQUEST_TIMEOUT)
        if reader is None:
            metrics = OTLPMetricExporter(f"{base}/v1/metrics", headers=headers, timeout=REQUEST_TIMEOUT)
            reader = PeriodicExportingMetricReader(metrics, METRICS_PERIOD * 1000, REQUEST_TIMEOUT * 1000)
        self._secret, self._agent, self._has_content = secret, agent, settings.content
        self._redact = redact
        self._ids = _ComputedIds()
        resource = Resource(
            {
                "service.name": "pegasus",
                "service.version": __version__,
                "service.instance.id": f"{self._digest('instance', 8):016x}",
            }
        )
        self._traces = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, id_generator=self._ids)
        self._traces.add_span_processor(
            BatchSpanProcessor(_WatchedExporter(exporter), QUEUE, EXPORT_PERIOD * 1000, BATCH, REQUEST_TIMEOUT * 1000)
        )
        self._tracer = self._traces.get_tracer("pegasus", __version__)
        self._metrics = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._metrics.get_meter("pegasus", __version__)
        histogram = partial(meter.create_histogram, explicit_bucket_boundaries_advisory=BUCKETS)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of calls of models",
            explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
        )
        self._calls = histogram("gen_ai.client.operation.duration", "s", "Duration of calls of models")
        self._tools = histogram("pegasus.tool.duration", "s", "Duration of calls of tools")
        self._messages = histogram("pegasus.message.duration", "s", "From accepting a message until it is done")
        self._replies = meter.create_counter("pegasus.replies", "{reply}", "Replies that were posted")
        self._items: dict[str, int] = {}
        """Message of each task, as its calls of models name it."""
        self._begun: dict[str, tuple[int, str]] = {}
        """Time of creation (ms) and type of each task that has not ended."""

    # ------------------------------------------------------------ work

    def take(self, work: FinishedWork) -> None:
        """Make a span and measurements of finished work. Never waits."""
        match work:
            case MessageDone():
                self._take_message(work)
            case ReplyPosted(key=key, address=address, at=at):
                self._replies.add(1, {"pegasus.channel": address.type})
                if item := item_of_key(key):
                    self._span("reply", SpanKind.PRODUCER, at, at, item, facts={"pegasus.channel": address.type})
            case ModelCallEnded():
                self._take_model_call(work)
            case ToolCallEnded():
                facts: dict[str, Json] = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": work.tool,
                    "gen_ai.tool.call.id": work.key,
                }
                self._tools.record(work.seconds, {"gen_ai.tool.name": work.tool, "pegasus.outcome": work.outcome})
                self._call_span(
                    f"execute_tool {work.tool}",
                    SpanKind.INTERNAL,
                    work,
                    item_of_key(work.key),
                    facts,
                    "failed" if work.outcome == "failed" else "",
                )

    def _take_message(self, work: MessageDone) -> None:
        """Make the span that all others of a message belong to."""
        if not work.began:
            return
        facts: dict[str, Json] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": self._agent,
            "gen_ai.conversation.id": self._conversation(work.address),
            "pegasus.channel": work.address.type,
            "pegasus.message.number": work.n,
            "pegasus.message.source": "agent" if work.is_internal else "person",
        }
        self._messages.record(max(0, work.ended - work.began) / 1000, {"pegasus.channel": work.address.type})
        name = f"message {work.n}"
        self._span(
            f"invoke_agent {self._agent}", SpanKind.INTERNAL, work.began, work.ended, work.n, own=name, facts=facts
        )

    def _take_model_call(self, work: ModelCallEnded) -> None:
        """Make the span and the measurements of a call of a model."""
        provider, _, model = work.model.partition("/")
        named: dict[str, Json] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDERS.get(provider, provider),
            "gen_ai.request.model": model,
        }
        labels = {key: str(value) for key, value in named.items()}
        if work.failed:
            labels["error.type"] = work.failed
        self._calls.record(work.seconds, labels)
        for kind, tokens in (("input", work.prompt_tokens), ("output", work.completion_tokens)):
            if tokens:
                self._tokens.record(tokens, {**labels, "gen_ai.token.type": kind})
        facts: dict[str, Json] = {
            **named,
            "gen_ai.agent.name": self._agent,
            "gen_ai.usage.input_tokens": work.prompt_tokens,
            "gen_ai.usage.output_tokens": work.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": work.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": work.cache_write_tokens,
            "pegasus.role": work.role,
        }
        if work.cost is not None:
            facts["pegasus.cost"] = work.cost
        if work.stop_reason:
            facts["gen_ai.response.finish_reasons"] = [work.stop_reason]
        if work.address is not None:
            facts["gen_ai.conversation.id"] = self._conversation(work.address)
        if work.task_id and work.item is not None:
            _remember(self._items, work.task_id, work.item)
        self._call_span(f"chat {model}", SpanKind.CLIENT, work, work.item or 0, facts, work.failed)

    def _call_span(
        self,
        name: str,
        kind: SpanKind,
        work: ModelCallEnded | ToolCallEnded,
        item: int,
        facts: dict[str, Json],
        failed: str,
    ) -> None:
        """Make the span of a call, below its task or message. The texts are added if the settings want them."""
        if self._has_content:
            facts |= {key: self._cleaned(value) for key, value in work.content().items()}
        ended = work.began + round(work.seconds * 1000)
        self._span(name, kind, work.began, ended, item, work.task_id, facts=facts, failed=failed)

    def _cleaned(self, value: Json) -> str:
        """Return a value as one text without secrets.

        Texts within it are searched before they are escaped, which hides a secret when it is done several times, and the whole
        once more: `"password"` and its value are two texts.
        """
        value = self._redacted(value)
        return value if isinstance(value, str) else self._redact(json.dumps(value, ensure_ascii=False))

    def _redacted(self, value: Json) -> Json:
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, Mapping):
            return {self._redact(key): self._redacted(inner) for key, inner in value.items()}
        if isinstance(value, Sequence):
            return [self._redacted(inner) for inner in value]
        return value

    # ------------------------------------------------------------ tasks

    async def follow_tasks(self, window: EventWindow) -> None:
        """Make a span of each task that ends, until cancelled."""
        async for events, _ in EventReader(window):
            for numbered in events:
                self.take_event(numbered.event)

    def take_event(self, event: Mapping[str, Json]) -> None:
        """Take an event of a task. One that began before this start has a span from its first event that was seen."""
        task, kind, at, data = event.get("taskId"), str(event.get("type")), event.get("ts"), event.get("data")
        if not isinstance(task, str) or not isinstance(at, int):
            return
        if task not in self._begun:
            task_type = data.get("taskType") if isinstance(data, Mapping) else None
            _remember(self._begun, task, (at, str(task_type or "task")))
        if kind in _ENDS:
            began, task_type = self._begun.pop(task)
            facts: dict[str, Json] = {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": task_type,
                "gen_ai.agent.id": task,
            }
            own = f"task {task}"
            item = self._items.get(task, 0)
            name = f"invoke_agent {task_type}"
            self._span(name, SpanKind.INTERNAL, began, at, item, task, own=own, facts=facts, failed=_ENDS[kind])

    # ------------------------------------------------------------ spans

    def _span(
        self,
        name: str,
        kind: SpanKind,
        began: int,
        ended: int,
        item: int,
        task: str = "",
        *,
        own: str = "",
        facts: Mapping[str, Json],
        failed: str = "",
    ) -> None:
        """Make a span that has ended. own: name that its id is computed from, of a span that has children."""
        item = item or self._items.get(task, 0)
        message, its_task = f"message {item}" if item else "", f"task {task}" if task else ""
        root = message or its_task
        self._ids.trace_id = self._digest(f"trace {root}", 16) if root else Random().getrandbits(128) or 1  # noqa: S311
        self._ids.span_id = self._digest(own, 8) if own else 0
        # The parent of a call is its task, that of a task its message; the span that the trace is named after has none.
        parent = next((above for above in (its_task, message) if above and above != own), "")
        if own == root:
            parent = ""
        context = None
        if parent:
            above = SpanContext(self._ids.trace_id, self._digest(parent, 8), False, TraceFlags(TraceFlags.SAMPLED))
            context = set_span_in_context(NonRecordingSpan(above))
        attributes = {key: value for key, value in facts.items() if value not in (None, "")}
        span = self._tracer.start_span(name, context, kind, attributes, start_time=began * 1_000_000)
        if failed:
            span.set_attribute("error.type", failed)
            span.set_status(Status(StatusCode.ERROR))
        span.end(max(began, ended) * 1_000_000)

    def _conversation(self, address: Address) -> str:
        return str(address) if self._has_content else f"{self._digest(f'conversation {address}', 8):016x}"

    def _digest(self, name: str, size: int) -> int:
        """Return a number above 0 that stands for a name in this home."""
        key = hashlib.sha256(f"telemetry {self._secret}".encode()).digest()
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=size, key=key).digest(), "big") or 1

    # ------------------------------------------------------------ the end

    async def aclose(self) -> None:
        """Send what waits, for at most LAST_EXPORT seconds. The SDK's threads are daemons, so that none holds up the exit."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + LAST_EXPORT):
            await trio.to_thread.run_sync(self._close, abandon_on_cancel=True)

    def _close(self) -> None:
        """Shut the SDK down. Blocks while the collector does not answer."""
        for provider in (self._traces, self._metrics):
            try:
                provider.shutdown()
            except Exception as error:  # what could not be sent is lost, and nothing else
                _log.warning("the last traces were not sent", error=repr(error))


def _remember(known: dict[str, _T], key: str, value: _T) -> None:
    """Add to a dict, whose oldest entry goes when there are too many."""
    known.pop(key, None)
    known[key] = value
    if len(known) > MOST_TASKS:
        del known[next(iter(known))]
