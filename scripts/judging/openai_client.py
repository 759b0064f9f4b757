"""The official client of OpenAI's interfaces, in the version of the tests: each thing that it can ask for, whole and streamed."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import openai
from benchmarks.provider import provider
from benchmarks.workplace import TOKEN, Workplace
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from judging.verdict import Judge, Verdict

TEXT: Final = "Hello there"
ASKED: Final[list[Any]] = [{"role": "user", "content": TEXT}]
RECORDING: Final = b"OggS\0\2" + bytes(20) + b"OpusHead" + bytes(1000)
EVENT: Final = TypeAdapter[Any](ResponseStreamEvent)


def checked(answer: Any) -> Any:
    """Return an answer, checked against its own type: the client takes over what it gets without a look."""
    for each in (answer, *getattr(answer, "data", ())):
        if isinstance(each, BaseModel):
            type(each).model_validate_json(each.model_dump_json())
    return answer


def list_models(client: openai.OpenAI) -> bool:
    [model] = checked(client.models.list()).data
    return bool(checked(client.models.retrieve(model.id)).id == model.id)


def complete(client: openai.OpenAI) -> bool:
    answer = checked(client.chat.completions.create(model="any", messages=ASKED))
    return TEXT in answer.choices[0].message.content and answer.choices[0].finish_reason == "stop"


def complete_in_pieces(client: openai.OpenAI) -> bool:
    stream = client.chat.completions.create(
        model="any", messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    chunks = [checked(chunk) for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return TEXT in text and chunks[-1].usage is not None


def complete_with_a_helper(client: openai.OpenAI) -> bool:
    with client.chat.completions.stream(model="any", messages=ASKED) as stream:
        return TEXT in (stream.get_final_completion().choices[0].message.content or "")


def respond(client: openai.OpenAI) -> bool:
    first = checked(client.responses.create(model="any", input=TEXT))
    second = checked(client.responses.create(model="any", input="and again", previous_response_id=first.id))
    return TEXT in first.output_text and second.previous_response_id == first.id


def respond_in_pieces(client: openai.OpenAI) -> bool:
    events = list(client.responses.create(model="any", input=ASKED, stream=True))
    for event in events:
        EVENT.validate_json(event.model_dump_json())
    final: Response = getattr(events[-1], "response")  # noqa: B009  the last event has one
    return TEXT in final.output_text and final.status == "completed"


def respond_with_a_helper(client: openai.OpenAI) -> bool:
    with client.responses.stream(model="any", input=TEXT) as stream:
        return TEXT in stream.get_final_response().output_text


def tools_are_refused(client: openai.OpenAI) -> bool:
    try:
        client.responses.create(
            model="any",
            input=TEXT,
            tools=[{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}],
        )
    except openai.BadRequestError as error:
        return "tools" in error.message
    return False


def wrong_key(client: openai.OpenAI) -> bool:
    try:
        client.with_options(api_key="wrong").models.list()
    except openai.AuthenticationError:
        return True
    return False


def embed(client: openai.OpenAI) -> bool:
    for form in ("float", openai.omit):
        made = checked(client.embeddings.create(model="any", input=["one", "two"], encoding_format=form))
        if len(made.data) != 2:
            return False
    return len(client.embeddings.create(model="any", input="one").data[0].embedding) == 2


def transcribe(client: openai.OpenAI) -> bool:
    file = ("a.ogg", RECORDING)
    whole = checked(client.audio.transcriptions.create(model="any", file=file))
    text = client.audio.transcriptions.create(model="any", file=file, response_format="text")
    return bool(whole.text == TEXT and TEXT in str(text))


def speak(client: openai.OpenAI) -> bool:
    return client.audio.speech.create(model="any", voice="alloy", input=TEXT).content == RECORDING


def speak_in_pieces(client: openai.OpenAI) -> bool:
    with client.audio.speech.with_streaming_response.create(model="any", voice="alloy", input=TEXT) as stream:
        return b"".join(stream.iter_bytes()) == RECORDING


class Endpoints(BaseHTTPRequestHandler):
    """The model behind embeddings and speech, as its service answers."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path.endswith("/speech"):
            answer = RECORDING
        elif self.path.endswith("/embeddings"):
            data = [
                {"object": "embedding", "index": n, "embedding": [1, 2]} for n in range(len(json.loads(body)["input"]))
            ]
            answer = json.dumps({"object": "list", "data": data}).encode()
        else:
            answer = json.dumps({"text": TEXT}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def endpoints() -> Iterator[str]:
    """Run that model on loopback, and yield its base URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoints) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()


def with_models(home: Path, base_url: str) -> Path:
    """Let the settings of a home name a model at this address for embeddings, transcriptions and speech; return the home."""
    file = home / "pegasus.toml"
    roles = "".join(f'{role} = "others/one"\n' for role in ("embed", "transcribe", "speech"))
    section = f'[providers.others]\ntype = "openai"\nbase_url = "{base_url}"\napi_key = "no-key"\n'
    file.write_text(file.read_text("utf-8").replace("[models]\n", f"[models]\n{roles}") + section, "utf-8")
    return home


CASES: Final[dict[str, Callable[[openai.OpenAI], bool]]] = {
    "models": list_models,
    "chat": complete,
    "chat, streamed": complete_in_pieces,
    "chat.stream": complete_with_a_helper,
    "responses": respond,
    "responses, streamed": respond_in_pieces,
    "responses.stream": respond_with_a_helper,
    "responses with tools": tools_are_refused,
    "a wrong key": wrong_key,
    "embeddings": embed,
    "transcriptions": transcribe,
    "speech": speak,
    "speech, streamed": speak_in_pieces,
}


def run(place: Workplace) -> Iterator[Verdict]:
    problems = []
    with provider(place.log) as model, endpoints() as others:
        home = with_models(place.home(provider="openai", base_url=f"{model.root}/v1"), others)
        with place.daemon(home) as daemon:
            client = openai.OpenAI(api_key=TOKEN, base_url=f"{daemon.http}/v1", max_retries=0, timeout=60)
            for name, case in CASES.items():
                try:
                    problem = "" if case(client) else "another answer than it should be"
                except Exception:
                    problem = traceback.format_exc(limit=-1)
                if problem:
                    problems.append(f"{name}: {problem}")
    yield Verdict("client", len(CASES) - len(problems), len(problems), details="\n".join(problems))


JUDGE: Final = Judge("openai-client", "OpenAI", f"PyPI openai {openai.__version__}", run)
