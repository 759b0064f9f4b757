"""Routes of the control plane: path, query and body become the params of a method."""

import pytest
import trio

from pegasus.channels import WebhookAnswer
from pegasus.gateway import BadParams, Conflict, NotAllowed, NotFound
from tests.pegasus.web.world import Recorder, world

ROUTES = [
    ("GET", "/api/tasks", None, "tasks.list", {}),
    ("GET", "/api/tasks?date=2026-02-25", None, "tasks.list", {"date": "2026-02-25"}),
    ("GET", "/api/tasks/t-1", None, "tasks.show", {"taskId": "t-1"}),
    ("GET", "/api/tasks/7/log", None, "tasks.log", {"taskId": "7"}),
    ("POST", "/api/tasks/7/cancel", None, "tasks.cancel", {"taskId": "7"}),
    ("POST", "/api/tasks/7/resume", {"input": "go on ☃"}, "tasks.resume", {"taskId": "7", "input": "go on ☃"}),
    ("GET", "/api/usage", None, "usage", {}),
    ("GET", "/api/usage?days=true", None, "usage", {"days": True}),
    ("GET", "/api/memory", None, "memory.list", {}),
    ("GET", "/api/memory/facts/user.md", None, "memory.show", {"path": "facts/user.md"}),
    ("GET", "/api/memory/%2e%2e/%2e%2e/token", None, "memory.show", {"path": "../../token"}),
    (
        "PUT",
        "/api/memory/facts/x.md",
        {"content": "ü", "more": 1},
        "memory.write",
        {"path": "facts/x.md", "content": "ü"},
    ),
    ("GET", "/api/memory/log?limit=3&path=facts/x.md", None, "memory.log", {"limit": 3, "path": "facts/x.md"}),
    ("POST", "/api/memory/undo", {"n": 4}, "memory.undo", {"n": 4}),
    ("GET", "/api/skills", None, "skills.list", {}),
    ("GET", "/api/sessions", None, "sessions.list", {}),
    ("GET", "/api/sessions/current.jsonl?offset=2", None, "sessions.show", {"file": "current.jsonl", "offset": 2}),
    ("GET", "/api/approvals", None, "approvals.list", {}),
    (
        "POST",
        "/api/approvals/a-1",
        {"decision": "allow", "scope": "once", "values": {"x": 1}},
        "approvals.answer",
        {"id": "a-1", "decision": "allow", "scope": "once", "values": {"x": 1}},
    ),
    ("GET", "/api/cron", None, "cron.list", {}),
    ("DELETE", "/api/cron/j1", None, "cron.remove", {"id": "j1"}),
    ("POST", "/api/cron/j1/run", None, "cron.run", {"id": "j1"}),
    ("POST", "/api/cron/j1/pause", None, "cron.pause", {"id": "j1"}),
]


async def test_each_route_calls_its_method():
    recorders = {method: Recorder() for *_, method, _ in ROUTES}
    async with world(methods=recorders) as there, there.owner() as client:
        for verb, path, body, method, params in ROUTES:
            response = await client.request(verb, path, json=body)
            assert (response.status_code, response.json()) == (200, {"params": params}), (path, response.text)
            assert recorders[method].calls.pop() == params


async def test_a_new_job_is_201():
    async with world(methods={"cron.add": Recorder()}) as there, there.owner() as client:
        job = {"schedule": {"every": 900}, "prompt": "look", "channel": "web:main"}
        response = await client.post("/api/cron", json={**job, "id": "chosen"})
        assert (response.status_code, response.json()["params"]) == (201, job)


async def test_what_this_version_cannot_do_is_501():
    async with world() as there, there.owner() as client:
        response = await client.get("/api/cron")
        assert (response.status_code, response.json()["error"]["code"]) == (501, "not_implemented")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BadParams("task is completed"), 409, "conflict"),
        (NotFound("there is no task"), 404, "not_found"),
        (NotAllowed("only an owner"), 403, "forbidden"),
    ],
)
async def test_a_task_that_cannot_be_cancelled(error, status, code):
    async with world(methods={"tasks.cancel": Recorder(error)}) as there, there.owner() as client:
        response = await client.post("/api/tasks/7/cancel")
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)


async def test_what_somebody_else_has_changed_meanwhile_is_409():
    changed = Recorder(Conflict("was: changed since it was read; read it again"))
    async with world(methods={"memory.write": changed}) as there, there.owner() as client:
        response = await client.put("/api/memory/facts/a.md", json={"content": "new", "was": "old"})
        assert (response.status_code, response.json()["error"]["code"]) == (409, "conflict")


@pytest.mark.parametrize("path", ["/api/memory/log?limit=-1", "/api/memory/log?limit=x", "/api/sessions/x?offset=1e3"])
async def test_a_number_that_is_none(path):
    async with world(methods={"memory.log": Recorder(), "sessions.show": Recorder()}) as there, there.owner() as client:
        assert (await client.get(path)).status_code == 400


async def test_changes_need_the_scope_control():
    async with world(methods={method: Recorder() for *_, method, _ in ROUTES}) as there:
        reader = await there.tokens.add("reader", scopes=("read",))
        async with there.client(reader) as client:
            for verb, path, body, *_ in ROUTES:
                if verb != "GET":
                    assert (await client.request(verb, path, json=body)).status_code == 403, path


# ------------------------------------------------------------------ webhooks of channels


class Receiver:
    def __init__(self, answer):
        self.answer = answer
        self.requests = []

    async def receive(self, request):
        self.requests.append(request)
        return self.answer


async def test_a_webhook_reaches_the_receiver_of_its_channel_as_it_came():
    receiver = Receiver(WebhookAnswer(200, b"<Response/>", "text/xml", {"x-more": "1"}))
    async with world(receivers={"sms": receiver}) as there, there.client() as client:
        body = b"From=%2B1&Body=%E2%98%83"
        response = await client.post("/channels/sms/twilio?a=%20b", content=body, headers={"X-Twilio-Signature": "s"})
        assert (response.status_code, response.text, response.headers["x-more"]) == (200, "<Response/>", "1")
        [request] = receiver.requests
        assert (request.method, request.path, request.body) == ("POST", "/channels/sms/twilio", body)
        assert request.url == f"{there.url}/channels/sms/twilio?a=%20b"
        assert request.headers["x-twilio-signature"] == "s"
        assert (await client.get("/channels/sms/media/x")).status_code == 200


async def test_a_channel_that_is_not_configured_is_404_and_a_refusal_has_an_error_object():
    async with world(receivers={"slack": Receiver(WebhookAnswer(401))}) as there, there.client() as client:
        assert (await client.post("/channels/sms/twilio")).json()["error"]["code"] == "not_found"
        response = await client.post("/channels/slack/events", content=b"x")
        assert (response.status_code, response.json()["error"]["code"]) == (401, "unauthorized")
    with_reason = {"slack": Receiver(WebhookAnswer(503, b"come again"))}
    async with world(receivers=with_reason) as there, there.client() as client:
        error = (await client.post("/channels/slack/events", content=b"x")).json()["error"]
        assert error == {"code": "unavailable", "message": "come again"}


async def test_a_secret_path_is_not_logged_when_a_receiver_fails(capfd):
    class Broken:
        async def receive(self, request):
            raise ZeroDivisionError

    async with world(receivers={"telegram": Broken()}) as there, there.client() as client:
        assert (await client.post("/channels/telegram/s3cret-path")).status_code == 500
    await trio.lowlevel.checkpoint()
    assert "s3cret-path" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("path", "method", "body"),
    [
        ("/api/interrupt", "interrupt", {"channel": None}),
        ("/api/tasks/7/resume", "tasks.resume", {"input": None}),
    ],
)
async def test_a_field_that_is_null_counts_as_missing(path, method, body):
    recorder = Recorder()
    async with world(methods={method: recorder}) as there, there.owner() as client:
        assert (await client.post(path, json=body)).status_code == 200
        [params] = recorder.calls
        assert body.keys() & params.keys() == set()


@pytest.mark.parametrize(
    ("verb", "path", "body", "field"),
    [
        ("POST", "/api/messages", {"text": "hi", "id": {}}, "id"),
        ("POST", "/api/messages", {"text": "hi", "id": False}, "id"),
        ("GET", "/api/usage?days=null", None, "days"),
        ("POST", "/v1/responses", {"input": "hi", "metadata": [1]}, "metadata"),
    ],
)
async def test_a_value_of_another_type_is_refused(verb, path, body, field):
    async with world(methods={"usage": Recorder()}) as there, there.owner() as client:
        response = await client.request(verb, path, json=body)
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith(f"{field}: ")
        assert there.journal.accepted == []
