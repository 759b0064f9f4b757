"""An MCP server with a service for tokens, by hand: `python mcp_oauth.py PORT`.

It knows the code grant with PKCE, the device grant, client credentials and refreshing. Each grant is noted on stdout.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

PORT = int(sys.argv[1])
HERE = f"http://127.0.0.1:{PORT}"
CODES: dict[str, str] = {}
TOKENS: set[str] = set()
REFRESH: set[str] = set()
POLLS: list[str] = []


def note(what: str) -> None:
    print(what, flush=True)


def issue(kind: str) -> dict[str, Any]:
    number = len(TOKENS) + 1
    token = f"access-{number}"
    TOKENS.add(token)
    note(f"{kind} {token}")
    found: dict[str, Any] = {"access_token": token, "token_type": "Bearer", "expires_in": 3600}
    if kind != "client_credentials":
        REFRESH.add(f"refresh-{number}")
        found["refresh_token"] = f"refresh-{number}"
    return found


def grant(form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
    kind = form.get("grant_type", "")
    if kind == "authorization_code":
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if CODES.pop(form["code"], None) != challenge:
            return 400, {"error": "invalid_grant"}
        return 200, issue("code")
    if kind == "refresh_token":
        if form["refresh_token"] not in REFRESH:
            return 400, {"error": "invalid_grant"}
        return 200, issue("refresh")
    if kind == "client_credentials":
        wanted = "Basic " + base64.b64encode(b"program:its-secret-0815").decode()
        return (200, issue(kind)) if authorization == wanted else (401, {"error": "invalid_client"})
    if kind.endswith("device_code"):
        POLLS.append(kind)
        return (400, {"error": "authorization_pending"}) if len(POLLS) < 2 else (200, issue("device"))
    return 400, {"error": "unsupported_grant_type"}


def answer(message: dict[str, Any], authorization: str) -> dict[str, Any]:
    match message.get("method"):
        case "initialize":
            result: dict[str, Any] = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "tokens", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": f"hello, you sent {authorization}"}]}
        case _:
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass

    def reply(self, status: int, body: object = None, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if parts.path.startswith("/.well-known/oauth-protected-resource"):
            self.reply(200, {"resource": f"{HERE}/mcp", "authorization_servers": [HERE]})
        elif parts.path.startswith("/.well-known/oauth-authorization-server"):
            places = {
                "authorization": "authorize",
                "token": "token",
                "registration": "register",
                "device_authorization": "device",
            }
            self.reply(
                200,
                {
                    "issuer": HERE,
                    **{f"{name}_endpoint": f"{HERE}/{path}" for name, path in places.items()},
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                },
            )
        elif parts.path == "/authorize":
            code = f"code-{len(CODES) + len(TOKENS)}"
            CODES[code] = query["code_challenge"]
            self.reply(302, location=f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}")
        else:
            self.reply(405)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = urlsplit(self.path).path
        if path == "/register":
            if "refuses" in sys.argv:
                self.reply(403, {"error": "access_denied", "error_description": "known programs only"})
            else:
                self.reply(201, {**json.loads(body), "client_id": "registered-1"})
        elif path == "/device":
            self.reply(
                200,
                {
                    "device_code": "d-1",
                    "user_code": "ABCD-EFGH",
                    "verification_uri": f"{HERE}/code",
                    "interval": 1,
                    "expires_in": 60,
                },
            )
        elif path == "/token":
            form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
            self.reply(*grant(form, self.headers.get("authorization", "")))
        elif self.headers.get("authorization", "").removeprefix("Bearer ") not in TOKENS:
            self.reply(
                401, www_authenticate=f'Bearer resource_metadata="{HERE}/.well-known/oauth-protected-resource/mcp"'
            )
        else:
            message = json.loads(body)
            if "id" in message:
                self.reply(200, answer(message, self.headers.get("authorization", "")))
            else:
                self.reply(202)


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
