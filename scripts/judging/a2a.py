"""The Technology Compatibility Kit of A2A (github a2aproject/a2a-tck, branch 1.0-dev), over both bindings that are spoken here.

It is on no registry: PEGASUS_A2A_TCK names the folder of a clone. It sends no token, and tells the agent by the id of a message what
to do with it, the same id again and again. So a relay stands between: it adds the token, writes the id into the text, where the model
reads it, gives each message an id of its own, and takes that out of what comes back. The model is a server of this file.

One case is left out: it wants a Message in place of a task, which the protocol leaves to the agent. Here a message becomes a task.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit
from xml.etree import ElementTree

from benchmarks.workplace import TOKEN, Workplace

from judging.programs import install_python, run_program
from judging.verdict import Judge, NotHereError, Verdict

FOLDER: Final = "PEGASUS_A2A_TCK"
PACKAGES: Final = (
    *("pytest==9.2.0", "pytest-asyncio==1.4.0", "pytest-html==4.2.0", "httpx==0.28.1", "jsonschema==4.26.0"),
    *("grpcio==1.85.3", "protobuf==7.36.2", "googleapis-common-protos==1.76.0"),
)
LEFT_OUT: Final = "TestMessageResponse"
SECONDS: Final = 600
LONG: Final = 4.0
"""Seconds of the task that the kit subscribes to."""
MARK: Final = re.compile(r" \(TCK ([\w.-]+)\)")
ANSWERS: Final[Mapping[str, str]] = {
    "tck-artifact-text": "Generated text content",
    "tck-artifact-file-url": "[output.txt](https://example.com/output.txt)",
    "tck-artifact-file": "[output.txt](data:text/plain;base64,dGNr)",
    "tck-artifact-data": '{"key": "value", "count": 42}',
    "tck-stream-artifact-text": "Streamed text content",
    "tck-stream-artifact-file": "[output.txt](data:text/plain;base64,dGNr)",
    "tck-stream-artifact-chunked": "chunk-1 chunk-2",
    "tck-stream-ordering-001": "Ordered output",
    "tck-stream-001": "Stream hello from TCK",
    "tck-stream-003": "Stream task lifecycle",
}
"""What the model answers, by the beginning of the id; the first that fits counts."""
NUMBERS: Final = itertools.count(1)


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that logs nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))


# ------------------------------------------------------------------ the model


class Model(QuietHandler):
    """An OpenAI-shaped server that does with a task what its mark says."""

    def do_POST(self) -> None:
        request = json.loads(self.body())
        said = [str(message["content"]) for message in request["messages"] if message["role"] == "user"]
        marks = MARK.findall(said[-1]) if said else []
        name = marks[-1] if marks else ""
        if name.startswith("test-resubscribe"):
            time.sleep(LONG)
        delta: dict[str, Any] = {
            "content": next((ANSWERS[key] for key in ANSWERS if name.startswith(key)), "Hello from TCK")
        }
        finish = "stop"
        if name.startswith("tck-input-required"):
            call = {"name": "ask_user", "arguments": '{"question": "What next?"}'}
            delta = {"tool_calls": [{"index": 0, "id": f"call-{next(NUMBERS)}", "type": "function", "function": call}]}
            finish = "tool_calls"
        if request.get("stream"):
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            pieces = [
                {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
                {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
            ]
            content = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"
            self._answer("text/event-stream", content)
        else:
            message = {"role": "assistant", "content": None, **delta}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
            self._answer("application/json", json.dumps(whole))

    def do_GET(self) -> None:
        self._answer("application/json", '{"object": "list", "data": []}')

    def _answer(self, kind: str, content: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content.encode())))
        self.end_headers()
        self.wfile.write(content.encode())


# ------------------------------------------------------------------ the relay


class Relay(QuietHandler):
    """Passes requests on to the daemon, and answers back."""

    target = ""

    def relay(self) -> None:
        body = self.body()
        headers = {
            key: value for key, value in self.headers.items() if key.lower() not in ("content-length", "connection")
        }
        if self.command == "POST" and body:
            body = marked(body)
        headers.setdefault("Authorization", f"Bearer {TOKEN}")
        connection = HTTPConnection(urlsplit(self.target).netloc, timeout=60)
        try:
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            self.close_connection = True
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(key, value)
            self.send_header("connection", "close")
            self.end_headers()
            if answer.status != 304:
                for line in answer:
                    self.wfile.write(MARK.sub("", line.decode()).encode())
                    self.wfile.flush()
        except OSError:  # the kit has hung up
            self.close_connection = True
        finally:
            connection.close()

    do_GET = do_POST = do_DELETE = relay


def marked(body: bytes) -> bytes:
    """Return a request whose message has its id in its text, and another id."""
    try:
        request = json.loads(body)
        message = (request.get("params") or request)["message"]
        id, parts = message["messageId"], message["parts"]
        if id and parts:
            mark, text = f" (TCK {id})", next((part for part in parts if "text" in part), None)
            message["messageId"] = f"{id}-{next(NUMBERS)}"
            if text is None:
                parts.append({"text": mark})
            else:
                text["text"] += mark
    except (ValueError, KeyError, TypeError, AttributeError):
        return body
    return json.dumps(request).encode()


@contextmanager
def serving(handler: type[QuietHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


# ------------------------------------------------------------------ the judge


def judge(place: Workplace) -> Iterator[Verdict]:
    kit = Path(os.environ.get(FOLDER, ""))
    if not os.environ.get(FOLDER) or not (kit / "tck" / "requirements").is_dir():
        raise NotHereError(f"it is on no registry; {FOLDER} names the folder of a clone (branch 1.0-dev)")
    copy = place.folder / "tck"
    shutil.copytree(kit, copy, ignore=shutil.ignore_patterns(".git", ".venv", "reports"))
    programs = install_python(place.folder / "venv", *PACKAGES)
    with serving(Model) as model, serving(Relay) as relay:
        home = place.home(provider="openai", base_url=f"{model}/v1")
        settings = home / "pegasus.toml"
        text = settings.read_text().replace("[http]\n", f'[http]\npublic_url = "{relay}"\n')
        settings.write_text(text + '[tools]\nallowed_hosts = ["localhost", "127.0.0.1", "::1"]\n')
        with place.daemon(home) as daemon:
            Relay.target = daemon.http
            for level in ("must", "should"):
                yield one_level(level, copy, programs, relay)


def one_level(level: str, kit: Path, programs: Path, relay: str) -> Verdict:
    report = kit / f"{level}.xml"
    command = [
        str(programs / "python"),
        "-m",
        "pytest",
        "tests/compatibility",
        "-q",
        "-m",
        level,
        f"--junitxml={report}",
    ]
    more = [
        "--sut-host",
        relay,
        "--transport",
        "jsonrpc,http_json",
        "-k",
        f"not grpc and not {LEFT_OUT}",
        "-p",
        "no:cacheprovider",
    ]
    ran = run_program([*command, *more], seconds=SECONDS, folder=kit)
    if not report.exists():
        raise RuntimeError(ran.stdout[-4000:] + ran.stderr[-4000:])
    counts, details = {"passed": 0, "failed": 0, "skipped": 0}, []
    for case in ElementTree.parse(report).iter("testcase"):
        problem = next((child for kind in ("failure", "error") for child in case.iter(kind)), None)
        skip = case.find("skipped")
        found = "failed" if problem is not None else "skipped" if skip is not None else "passed"
        counts[found] += 1
        reason = problem if problem is not None else skip
        if reason is not None and "not configured" not in str(reason.get("message")):
            details.append(f"{found}: {case.get('name')}: {str(reason.get('message'))[:300]}")
    return Verdict(f"{level.upper()}, JSON-RPC and HTTP+JSON", **counts, details="\n".join(details))


JUDGE: Final = Judge("a2a", "A2A 1.0", "a2a-tck 1.0-dev", judge)
