"""Traces over OTLP from the real process."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.blackbox.support import running

STAND_IN = {"models.default": "offline/stand-in"}


def collect(bodies):
    """Start a collector on loopback that adds what it gets to `bodies`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


async def test_a_message_arrives_at_the_collector_as_one_trace_also_at_a_stop(tmp_path):
    bodies = []
    server = collect(bodies)
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        async with running(tmp_path / "home", {**STAND_IN, "telemetry.otlp_endpoint": url}) as daemon:
            async with daemon.client() as client:
                await client.ask("hello")
                await client.ask("and again")
            assert await daemon.stop() == 0
    finally:
        server.shutdown()
        server.server_close()
    spans = [
        span
        for path, body in bodies
        if path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    [first] = [span for span in spans if span.name == "invoke_agent Pegasus"][:1]
    of_first = {span.name for span in spans if span.trace_id == first.trace_id}
    assert {"chat stand-in", "reply"} <= of_first
    assert len({span.trace_id for span in spans if span.name == "reply"}) == 2


async def test_texts_are_exported_without_secrets(tmp_path):
    bodies = []
    server = collect(bodies)
    key = "ghp_" + "a1B2" * 9
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        settings = {**STAND_IN, "telemetry.otlp_endpoint": url, "telemetry.content": True}
        async with running(tmp_path / "home", settings) as daemon:
            async with daemon.client() as client:
                await client.ask(f"my key is {key}, and the token of this home {daemon.token}")
            assert await daemon.stop() == 0
    finally:
        server.shutdown()
        server.server_close()
    sent = b"".join(body for _, body in bodies)
    assert b"my key is ghp_***" in sent
    assert key.encode() not in sent
    assert daemon.token.encode() not in sent


async def test_a_collector_that_is_gone_delays_neither_answers_nor_the_stop(tmp_path):
    async with running(tmp_path / "home", {**STAND_IN, "telemetry.otlp_endpoint": "http://127.0.0.1:9"}) as daemon:
        async with daemon.client() as client:
            assert await client.ask("hello")
        assert await daemon.stop(timeout=6) == 0
