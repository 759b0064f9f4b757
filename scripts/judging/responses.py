"""The cases of the Open Responses compliance suite, with the types of its specification (PyPI `openresponses-types`).

The suite itself is a program of its website's repository, which no registry has. So the cases are asked here, and what comes back is
checked by the types that are generated from the specification: each response, and each event of a stream.
"""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
from benchmarks.provider import provider
from benchmarks.workplace import TOKEN, Workplace

from judging.programs import install_python
from judging.verdict import Judge, Verdict

VERSION: Final = "2.4.0"
CHECK: Final = """
import json, sys
import openresponses_types as types
events = {}
for name, each in vars(types).items():
    if name.endswith("StreamingEvent"):
        kind = each.model_fields["type"]
        events[getattr(kind.annotation, "__members__", None) and next(iter(kind.annotation)).value or kind.default] = each
for line in sys.stdin:
    found = json.loads(line)
    try:
        if "event" in found:
            events[found["event"]["type"]].model_validate(found["event"])
        else:
            types.ResponseResource.model_validate(found["response"])
        print("fits", flush=True)
    except Exception as error:
        print(repr(error)[:300], flush=True)
"""
"""Reads responses and events in lines, and writes a line for each: what is wrong with it, or "fits"."""
WEATHER: Final = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}


def said(text: Any, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE: Final = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
LETTER: Final = {
    "type": "input_file",
    "filename": "letter.txt",
    "file_data": f"data:text/plain;base64,{b64encode(b'Dear friend').decode()}",
}
CASES: Final[dict[str, dict[str, Any]]] = {
    "basic-response": {"input": [said("Say hello in exactly 3 words.")]},
    "streaming-response": {"input": [said("Count from 1 to 5.")], "stream": True},
    "system-prompt": {"input": [said("You are a pirate.", "system"), said("Say hello.")]},
    "image-input": {"input": [said([{"type": "input_text", "text": "What do you see?"}, PICTURE])]},
    "file-input": {"input": [said([{"type": "input_text", "text": "Its title only."}, LETTER])]},
    "multi-turn": {
        "input": [said("My name is Alice."), said("Hello Alice!", "assistant"), said("What is my name?")],
    },
    "previous-response-id": {"input": "What code word did I ask you to remember?"},
}
"""Cases that are answered. The last one follows a response of its own."""
TOOL_CASES: Final[dict[str, dict[str, Any]]] = {
    "tool-calling": {"input": [said("What's the weather like?")], "tools": [WEATHER]},
    "tool-calling-streaming": {"input": [said("What's the weather like?")], "tools": [WEATHER], "stream": True},
    "function-call-roundtrip": {
        "input": "Use the weather tool.",
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "name": "get_weather"},
    },
}
"""Cases of a client's tools, which are refused with a sentence: counted as skipped if they are, else as failed."""


class Types:
    """The types of the specification, in a process of their own."""

    def __init__(self, programs: Path) -> None:
        self._process = subprocess.Popen(
            [programs / "python", "-c", CHECK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def problem(self, found: dict[str, Any]) -> str:
        """Return what is wrong with {"response": …} or {"event": …}, "" for nothing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(found) + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline().strip()
        return "" if said == "fits" else said or "the types did not come to an end"

    def close(self) -> None:
        self._process.communicate(timeout=20)


def run(place: Workplace) -> Iterator[Verdict]:
    types = Types(install_python(place.folder / "types", f"openresponses-types=={VERSION}"))
    problems: list[str] = []
    try:
        with provider(place.log) as model:
            home = place.home(provider="openai", base_url=f"{model.root}/v1")
            with place.daemon(home) as daemon, httpx.Client(base_url=daemon.http, timeout=60) as client:
                client.headers["authorization"] = f"Bearer {TOKEN}"
                for name, fields in CASES.items():
                    if name == "previous-response-id":
                        first = client.post("/v1/responses", json={"model": "any", "input": "Remember papaya."}).json()
                        fields = {**fields, "previous_response_id": first["id"]}
                    if problem := _judge(client, fields, types):
                        problems.append(f"{name}: {problem}")
                refused = [client.post("/v1/responses", json={"model": "any", **each}) for each in TOOL_CASES.values()]
    finally:
        types.close()
    for name, answer in zip(TOOL_CASES, refused, strict=True):
        if answer.status_code != 400 or "tools" not in answer.text:
            problems.append(f"{name}: {answer.status_code} {answer.text[:200]}")
    skipped = len(TOOL_CASES)
    why = f"skipped: {', '.join(TOOL_CASES)}: tools of a client are refused with a sentence"
    failed = len(problems)
    yield Verdict("responses", len(CASES) - failed, failed, skipped, "\n".join([*problems, why]))


def _judge(client: httpx.Client, fields: dict[str, Any], types: Types) -> str:
    """Return what is wrong with the answer to a request, "" for nothing."""
    answer = client.post("/v1/responses", json={"model": "any", **fields})
    if answer.status_code != 200:
        return f"{answer.status_code} {answer.text[:200]}"
    response: Any
    if fields.get("stream"):
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        events = [json.loads(line) for line in lines if line != "[DONE]"]
        for event in events:
            if problem := types.problem({"event": event}):
                return f"{event['type']}: {problem}"
        response = events[-1].get("response") if events else None
    else:
        response = answer.json()
    problem = types.problem({"response": response})
    if not problem and (response["status"] != "completed" or not response["output"]):
        problem = f"status {response['status']} with {len(response['output'])} items"
    return problem


JUDGE: Final = Judge("responses", "Open Responses", f"compliance cases with openresponses-types {VERSION}", run)
