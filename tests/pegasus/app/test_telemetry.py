"""Traces and metrics by the conventions for generative AI, against the SDK's own exporters and a collector on loopback."""

import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pegasus.app.telemetry import QUEUE, Telemetry
from pegasus.messages import Address
from pegasus.observe import Activity, MessageDone, ModelCallEnded, ReplyPosted, ToolCallEnded
from pegasus.redaction import KnownSecrets
from pegasus.settings import TelemetrySettings
from pegasus.wire import encode_json

SECRETS = KnownSecrets(['blue "horse\nöf'])
CHAT = Address("telegram", "+4912345")


class Recording:
    """Telemetry whose spans and metrics are kept in memory."""

    def __init__(self, **settings):
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.telemetry = Telemetry(
            TelemetrySettings(**settings),
            secret="s",
            agent="Pegasus",
            redact=SECRETS.redact,
            exporter=self.exporter,
            reader=self.reader,
        )
        self.activity = Activity(lambda: 9_000)
        self.activity.observer = self.telemetry.take

    def spans(self):
        self.telemetry._traces.force_flush()
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def metrics(self):
        data = self.reader.get_metrics_data()
        return {
            metric.name: metric.data.data_points
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def recording():
    made = []

    def make(**settings):
        made.append(Recording(**settings))
        return made[-1]

    yield make
    for each in made:
        each.telemetry._close()


def say(activity):
    """Report the work about message 12, which has begun a task."""
    activity.model_called(
        ModelCallEnded(
            model="gemini/gemini-4",
            address=CHAT,
            item=12,
            began=1_000,
            seconds=2,
            prompt_tokens=70,
            completion_tokens=5,
            content=lambda: {"gen_ai.output.messages": [{"role": "assistant", "parts": ["the secret of the person"]}]},
        )
    )
    activity.tool_called(ToolCallEnded(tool="create_task", key="main/12/c1", began=3_000, seconds=0.1))
    activity.reply_posted(ReplyPosted(key="main/12/c2", address=CHAT, seq=1, at=4_000))
    activity.message_done(MessageDone(n=12, address=CHAT, began=900, ended=4_100))


def work(recording):
    """Let a task of message 12 think, call and end."""
    take = recording.telemetry.take_event
    take({"type": "TASK_CREATED", "taskId": "t-1", "ts": 3_050, "data": {"taskType": "general"}})
    recording.activity.model_called(
        ModelCallEnded(
            model="openai/gpt-6", role="subagent", item=12, task_id="t-1", began=3_100, seconds=1, failed="overloaded"
        )
    )
    recording.activity.tool_called(
        ToolCallEnded(tool="shell_exec", key="t-1/c1", task_id="t-1", began=4_200, seconds=1)
    )
    take({"type": "TASK_COMPLETED", "taskId": "t-1", "ts": 6_000, "data": {}})


def test_a_message_is_one_trace_through_its_tasks(recording):
    there = recording()
    say(there.activity)
    work(there)
    spans = there.spans()
    assert set(spans) == {
        "chat gemini-4",
        "execute_tool create_task",
        "reply",
        "invoke_agent Pegasus",
        "chat gpt-6",
        "execute_tool shell_exec",
        "invoke_agent general",
    }
    assert len({span.context.trace_id for span in spans.values()}) == 1
    root, task = spans["invoke_agent Pegasus"], spans["invoke_agent general"]
    assert root.parent is None
    assert task.parent.span_id == root.context.span_id
    for name in ("chat gemini-4", "execute_tool create_task", "reply"):
        assert spans[name].parent.span_id == root.context.span_id
    for name in ("chat gpt-6", "execute_tool shell_exec"):
        assert spans[name].parent.span_id == task.context.span_id
    assert (root.start_time, root.end_time) == (900 * 10**6, 4_100 * 10**6)
    assert (task.start_time, task.end_time) == (3_050 * 10**6, 6_000 * 10**6)


def test_attributes_are_those_of_the_conventions(recording):
    there = recording()
    say(there.activity)
    work(there)
    chat, failed = there.spans()["chat gemini-4"], there.spans()["chat gpt-6"]
    assert chat.kind.name == "CLIENT"
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    assert chat.attributes["gen_ai.provider.name"] == "gcp.gemini"
    assert chat.attributes["gen_ai.request.model"] == "gemini-4"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 70
    assert chat.attributes["gen_ai.usage.output_tokens"] == 5
    assert failed.attributes["error.type"] == "overloaded"
    assert failed.status.status_code.name == "ERROR"
    metrics = there.metrics()
    kinds = {point.attributes["gen_ai.token.type"]: point.sum for point in metrics["gen_ai.client.token.usage"]}
    assert kinds == {"input": 70, "output": 5}
    durations = metrics["gen_ai.client.operation.duration"]
    assert {point.attributes.get("error.type"): point.sum for point in durations} == {None: 2, "overloaded": 1}


def test_nobodys_words_and_no_number_of_a_person_are_exported_unless_wanted(recording):
    there = recording()
    say(there.activity)
    shown = str([dict(span.attributes) for span in there.spans().values()])
    assert "secret of the person" not in shown
    assert "+4912345" not in shown
    wanted = recording(content=True)
    say(wanted.activity)
    shown = str([dict(span.attributes) for span in wanted.spans().values()])
    assert "secret of the person" in shown


PLACES = {
    "a text": lambda text: text,
    "an answer": lambda text: [{"role": "assistant", "parts": [{"type": "text", "content": text}]}],
    "an argument": lambda text: {"command": text, "n": 3, "all": None},
    "a name": lambda text: {"env": {text: "1"}},
    "a turn that was encoded": lambda text: [{"content": encode_json({"text": text})}],
    "JSON that a person sent in JSON": lambda text: [{"content": encode_json({"text": encode_json({"said": text})})}],
}
"""Values of an attribute that hold a text."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("secret", [*SECRETS.all(), "ghp_" + "a1B2" * 9, "sk-ant-api03-" + "x9Y8" * 12])
def test_content_is_exported_without_secrets(recording, place, secret):
    there = recording(content=True)
    shown = PLACES[place](f"before {secret} behind")
    there.activity.model_called(
        ModelCallEnded(model="p/asked", content=lambda: {"gen_ai.input.messages": shown, "gen_ai.output.messages": []})
    )
    there.activity.tool_called(ToolCallEnded(tool="t", content=lambda: {"gen_ai.tool.call.arguments": shown}))
    for name, key in (("chat asked", "gen_ai.input.messages"), ("execute_tool t", "gen_ai.tool.call.arguments")):
        text = there.spans()[name].attributes[key]
        assert "***" in text
        assert "behind" in text
        assert not [part for part in ("horse", "a1B2", "x9Y8") if part in text]


def test_a_password_is_known_by_the_name_before_it(recording):
    there = recording(content=True)
    arguments = {"login": {"user": "ada", "password": "tr0ub4dor-and-3"}}
    there.activity.tool_called(ToolCallEnded(tool="t", content=lambda: {"gen_ai.tool.call.arguments": arguments}))
    text = there.spans()["execute_tool t"].attributes["gen_ai.tool.call.arguments"]
    assert "ada" in text
    assert "tr0ub4dor" not in text


def test_a_restart_continues_the_trace(recording):
    before, after = recording(), recording()
    say(before.activity)
    say(after.activity)
    ids = [there.spans()["invoke_agent Pegasus"].context for there in (before, after)]
    assert (ids[0].trace_id, ids[0].span_id) == (ids[1].trace_id, ids[1].span_id)


def test_nothing_of_it_is_imported_unless_it_is_wanted():
    code = "import sys, pegasus.app.daemon; print(*[name for name in sys.modules if 'telemetry' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# ------------------------------------------------------------------ over the wire


class Collector:
    """A collector on loopback that keeps what it is sent."""

    def __init__(self):
        self.bodies = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler):
                body = handler.rfile.read(int(handler.headers["content-length"]))
                self.bodies.append((handler.path, handler.headers.get("x-key"), body))
                handler.send_response(200)
                handler.send_header("content-length", "0")
                handler.end_headers()

            def log_message(handler, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.mark.real_time
async def test_a_collector_gets_protobuf_at_its_paths_with_the_headers():
    collector = Collector()
    try:
        settings = TelemetrySettings(otlp_endpoint=collector.url + "/", headers={"x-key": "k"})
        telemetry = Telemetry(settings, secret="s", agent="Pegasus", redact=str)
        activity = Activity()
        activity.observer = telemetry.take
        say(activity)
        await telemetry.aclose()
    finally:
        collector.close()
    by_path = {path: body for path, _, body in collector.bodies}
    assert {key for _, key, _ in collector.bodies} == {"k"}
    traces = ExportTraceServiceRequest.FromString(by_path["/v1/traces"])
    [resource] = traces.resource_spans
    assert {span.name for scope in resource.scope_spans for span in scope.spans} >= {"chat gemini-4", "reply"}
    metrics = ExportMetricsServiceRequest.FromString(by_path["/v1/metrics"])
    assert "gen_ai.client.token.usage" in str(metrics)


@pytest.mark.real_time
async def test_a_dead_collector_holds_nothing_up_and_takes_bounded_memory():
    telemetry = Telemetry(
        TelemetrySettings(otlp_endpoint="http://127.0.0.1:9"), secret="s", agent="Pegasus", redact=str
    )
    activity = Activity()
    activity.observer = telemetry.take
    start = time.perf_counter()
    for _ in range(2 * QUEUE):
        activity.tool_called(ToolCallEnded(tool="read_file", key="main/1/c", began=1_000, seconds=0.1))
    assert time.perf_counter() - start < 5
    processor = telemetry._traces._active_span_processor._span_processors[0]
    assert len(processor._batch_processor._queue) <= QUEUE
    start = time.perf_counter()
    await telemetry.aclose()
    assert time.perf_counter() - start < 3
