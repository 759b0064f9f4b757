"""A server of embeddings in OpenAI's format, whose vectors say which of a few things a text is about, in several languages."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

THINGS = (
    ("tea", "thé", "茶", "tee", "beverage", "oolong"),
    ("cat", "chat", "猫", "katze", "kitten", "pet"),
    ("boat", "bateau", "船", "boot", "sail", "harbour"),
    ("money", "argent", "钱", "geld", "salary", "invoice"),
    ("secret", "vault", "safe", "tresor", "password", "key"),
)
"""Words for the same thing, each of which no other word of its row resembles."""
SIZE = 16


def vector_of(text, size=SIZE):
    """Return a vector of length 1: a number for each thing that the text is about, and a little of everything."""
    words = text.lower()
    found = [1.0 + 5.0 * sum(word in words for word in thing) for thing in THINGS]
    numbers = [*found, *(0.1 * math.cos(len(words) + n) for n in range(size - len(found)))]
    length = math.sqrt(sum(number * number for number in numbers))
    return [number / length for number in numbers]


class EmbeddingServer:
    """What a server was asked, and how it answers: `answer(texts)` returns the list of vectors, or (status, body)."""

    def __init__(self):
        self.asked = []
        """Texts of each request."""
        self.models = []
        self.refused = []
        """Requests that no server would take."""
        self.answer = lambda texts: [vector_of(text) for text in texts]
        self.may_answer = Event()
        """Cleared, requests hang."""
        self.may_answer.set()
        self.url = ""

    @property
    def texts(self):
        """All texts that it was sent."""
        return [text for texts in self.asked for text in texts]

    def respond(self, path, headers, body):
        """Return status and body for a request, as strictly as the service."""
        try:
            fields = json.loads(body)
            texts = fields["input"]
            assert path == "/v1/embeddings", path
            assert headers["content-type"].partition(";")[0] == "application/json", headers["content-type"]
            assert headers.get("authorization", "").startswith("Bearer "), "no key"
            assert set(fields) <= {"model", "input", "encoding_format", "dimensions", "user"}, fields
            assert fields["model"], "no model"
            assert texts, "no input"
            assert all(isinstance(text, str) and text for text in texts), "input"
        except (ValueError, KeyError, AssertionError) as error:
            self.refused.append(repr(error))
            return 400, json.dumps({"error": {"message": repr(error)}}).encode()
        self.asked.append(texts)
        self.models.append(fields["model"])
        self.may_answer.wait(30)
        made = self.answer(texts)
        if isinstance(made, tuple):
            return made
        data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(made)]
        usage = {"prompt_tokens": 3 * len(texts), "total_tokens": 3 * len(texts)}
        # The last first: the order is that of `index`, and nothing else says it.
        answer = {"object": "list", "data": data[::-1], "model": fields["model"], "usage": usage}
        return 200, json.dumps(answer).encode()


@contextmanager
def embedding_server():
    """Run the server on loopback, in threads of its own."""
    server = EmbeddingServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            status, answer = server.respond(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        http.block_on_close = False
        server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
        Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server
        finally:
            http.shutdown()
