"""Event streams, webhooks, metrics, and the description of the API."""

import hmac
import json
from contextlib import asynccontextmanager
from hashlib import sha256

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from actors import Child
from pegasus.events import Event, EventType
from pegasus.messages import Address, ApprovalNotice
from pegasus.observe import Activity, MessageDone, ModelCallEnded, ReplyPosted, ToolCallEnded
from pegasus.observe.activity import MAX_SERIES
from pegasus.settings import HookSettings
from pegasus.web.routes.events import EventFeed
from pegasus.web.routes.prometheus import format_metrics
from pegasus.web.routes.webhooks import fill_template
from tests.pegasus.web.world import TOKEN, Recorder, world

# ------------------------------------------------------------------ the sequence, pure


def test_events_after_a_number():
    feed = EventFeed(100)
    for n in range(3):
        feed.add("tree", {"n": n})
    assert [event.n for event in feed.after(100)[0]] == [101, 102]
    assert feed.after(99) == (feed.after(98)[0], False)
    assert feed.after(102) == ([], False)
    for unknown in (-1, 50, 500):
        events, is_gap = feed.after(unknown)
        assert (len(events), is_gap) == (3, True)


def test_the_last_thousand_events_are_kept():
    feed = EventFeed(1)
    for n in range(1500):
        feed.add("tree", {"n": n})
    assert len(feed.after(500)[0]) == 1000
    assert not feed.after(500)[1]
    assert feed.after(499)[1]


# ------------------------------------------------------------------ streams


class Stream:
    """An open stream of events."""

    def __init__(self, response):
        self._lines = response.aiter_lines()

    async def next(self):
        """The next event: id, name and data."""
        event = {}
        with trio.fail_after(20):
            async for line in self._lines:
                if not line and event.get("event"):
                    return event.get("id"), event["event"], json.loads(event["data"])
                name, _, value = line.partition(": ")
                if name:
                    event[name] = value
        return None


@asynccontextmanager
async def streaming(client, **headers):
    async with client.stream("GET", "/api/events", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = Stream(response)
        with trio.fail_after(20):
            async for line in stream._lines:
                if line == "retry: 2000":
                    break
        yield stream


def happen(there, n=1):
    there.services.recent.add(Event(EventType.TASK_COMPLETED, 1, "task", "t-1", {"n": n, "text": "☃\n"}))


NOTICE = ApprovalNotice("a-1", "shell_exec", {}, "why", "owner", 1, "open")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # httpx leaves its generators open
class TestStreams:
    async def test_a_stream_has_events_of_tasks_the_tree_and_approvals(self):
        async with world() as there, there.owner() as client, streaming(client) as stream:
            await trio.testing.wait_all_tasks_blocked(0.01)
            happen(there)
            first, name, data = await stream.next()
            assert (name, data["taskId"], data["data"]["text"]) == ("TASK_COMPLETED", "t-1", "☃\n")
            await there.supervisor.ref("gateway").tell(NOTICE)
            second, name, data = await stream.next()
            assert (name, data["id"], int(second)) == ("approval", "a-1", int(first) + 1)
            await there.supervisor.stop_child("gateway")
            assert (await stream.next())[1] == "tree"

    async def test_a_client_that_comes_back_misses_nothing(self):
        async with world() as there, there.owner() as client:
            async with streaming(client) as stream:
                await trio.testing.wait_all_tasks_blocked(0.01)
                happen(there, 1)
                last, *_ = await stream.next()
            for n in (2, 3):
                happen(there, n)
            async with streaming(client, **{"Last-Event-ID": last}) as stream:
                assert [(await stream.next())[2]["data"]["n"] for _ in range(2)] == [2, 3]

    @pytest.mark.parametrize("unknown", ["1", "x", "-5", "9" * 30])
    async def test_an_unknown_number_is_a_gap(self, unknown):
        async with world() as there, there.owner() as client, streaming(client, **{"Last-Event-ID": unknown}) as stream:
            assert (await stream.next())[1:] == ("gap", {})

    async def test_approvals_are_for_those_who_may_answer_them(self):
        async with world() as there:
            reader = await there.tokens.add("reader", scopes=("read",))
            async with there.client(reader) as client, streaming(client) as stream:
                await trio.testing.wait_all_tasks_blocked(0.01)
                await there.supervisor.ref("gateway").tell(NOTICE)
                await trio.testing.wait_all_tasks_blocked(0.01)
                happen(there)
                assert (await stream.next())[1] == "TASK_COMPLETED"

    async def test_a_revoked_token_ends_the_stream(self):
        async with world() as there:
            reader = await there.tokens.add("reader", scopes=("read",))
            async with there.client(reader) as client, streaming(client) as stream:
                await there.tokens.revoke("reader")
                assert await stream.next() is None  # at once, although nothing happens

    async def test_a_stop_ends_all_streams(self):
        async with (
            world() as there,
            there.owner() as client,
            streaming(client) as stream,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(there.supervisor.stop_child, "http")
            while await stream.next() is not None:
                pass

    async def test_five_hundred_streams_get_each_event(self):
        heard = 0

        async def follow(there, head):
            nonlocal heard
            async with there.raw() as stream:
                await stream.send_all(head)
                data = b""
                while data.count(b"event: TASK_COMPLETED") < 3:
                    data += await stream.receive_some(65536)
                    if b"retry" in data and stream not in ready:
                        ready.add(stream)
                heard += 1

        ready = set()
        async with world() as there, trio.open_nursery() as nursery:
            head = f"GET /api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
            for _ in range(500):
                nursery.start_soon(follow, there, head)
            with trio.fail_after(60):
                while len(ready) < 500:  # noqa: ASYNC110  the streams do not tell
                    await trio.sleep(0.05)
            for n in range(3):
                happen(there, n)
        assert heard == 500


# ------------------------------------------------------------------ webhooks

SECRET = "whsec-0123456789"


def signed(body, secret=SECRET):
    return "sha256=" + hmac.new(secret.encode(), body, sha256).hexdigest()


HOOKS = {"ci": HookSettings(secret=SECRET, template="{{repo.name}} is {{state}}", channel="telegram:123")}


@pytest.mark.parametrize(
    ("template", "body", "text"),
    [
        ("{{a}}", '{"a": "☃"}', "☃"),
        ("{{ a.b.c }}!", '{"a": {"b": {"c": 1}}}', "1!"),
        ("{{a.1}}{{a.9}}{{b}}", '{"a": ["x", "y"]}', "y"),
        ("{{a}}", '{"a": {"b": true}}', '{"b":true}'),
        ("{{a}}", '{"a": "{{b}}", "b": "no"}', "{{b}}"),
        ("look:", '{"a": 1}', 'look:\n\n{"a": 1}'),
        ("", "plain text", "plain text"),
    ],
)
def test_the_text_of_a_delivery(template, body, text):
    assert fill_template(template, body) == text


async def test_a_delivery_becomes_a_message_with_the_rights_of_a_guest():
    body = json.dumps({"repo": {"name": "pegasus"}, "state": "red"}).encode()
    async with world(hooks=HOOKS) as there, there.client() as client:
        headers = {"X-Hub-Signature-256": signed(body), "X-GitHub-Delivery": "d-1"}
        first = await client.post("/hooks/ci", content=body, headers=headers)
        assert first.status_code == 202
        again = await client.post("/hooks/ci", content=body, headers=headers)
        assert (again.status_code, again.json()) == (202, first.json())
        [(message, _)] = there.journal.accepted
        assert (message.text, message.channel.type, message.channel.channel_id) == ("pegasus is red", "telegram", "123")
        assert message.metadata["role"] == "guest"


async def test_a_delivery_is_published_on_the_bus():
    body = b'{"state": "red"}'
    async with world(hooks={"ci": HookSettings(secret=SECRET, template="it is {{state}}", channel="web:1")}) as there:
        published = []

        async def bus(inbox):
            published.extend([event async for message in inbox for event in message.events])

        await there.supervisor.start_child(Child("bus", bus))
        async with there.client() as client:
            headers = {"X-Pegasus-Signature": signed(body)}
            answer = (await client.post("/hooks/ci", content=body, headers=headers)).json()
        await there.supervisor.stop_child("bus")
    [event] = published
    assert (event.type, event.source) == (EventType.WEBHOOK_TRIGGERED, "hooks/ci")
    assert event.payload == {"hook": "ci", "text": "it is red", "handledBy": "http", **answer}


@pytest.mark.parametrize(
    "headers", [{}, {"X-Pegasus-Signature": "sha256=00"}, {"X-Pegasus-Signature": signed(b"{}", "x")}]
)
async def test_a_wrong_signature_is_401(headers):
    async with world(hooks=HOOKS) as there, there.owner() as client:
        response = await client.post("/hooks/ci", content=b"{}", headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (401, "unauthorized")
        assert there.journal.accepted == []


async def test_an_unknown_hook_is_404_and_a_body_without_sense_400():
    async with world(hooks=HOOKS) as there, there.client() as client:
        assert (await client.post("/hooks/none", content=b"{}")).status_code == 404
        bad = await client.post("/hooks/ci", content=b"{", headers={"X-Pegasus-Signature": signed(b"{")})
        assert bad.status_code == 400


# ------------------------------------------------------------------ metrics and the description


STATUS = {"uptime": 12.5, "waiting": 3, "approvals": 1, "tasks": {"working": 2}}


async def metrics_answer(caller, params):
    return STATUS


async def test_metrics_are_open_on_loopback_and_need_a_token_under_another_name():
    methods = {"status": metrics_answer, "usage": Recorder()}
    async with world(methods=methods, allowed_hosts=["pegasus.example"]) as there, there.client() as client:
        response = await client.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "pegasus_uptime_seconds 12.5" in response.text
        assert 'pegasus_tasks{state="working"} 2.0' in response.text
        outside = {"host": "pegasus.example"}
        assert (await client.get("/metrics", headers=outside)).status_code == 401
        assert (
            await client.get("/metrics", headers={**outside, "authorization": f"Bearer {TOKEN}"})
        ).status_code == 200


def test_counters_begin_at_the_start_and_a_rate_can_be_made_of_them():
    activity = Activity(lambda: 60_000)
    activity.message_accepted("web", is_internal=False)
    activity.message_done(MessageDone(n=1, address=Address("web", "c1"), began=58_000, ended=60_000))
    activity.reply_posted(ReplyPosted(key="main/1/a", address=Address("web", "c1"), seq=1, at=59_000))
    activity.model_called(ModelCallEnded(model="p/m", seconds=1.5, prompt_tokens=7, failed=""))
    activity.model_called(ModelCallEnded(model="p/m", seconds=400, failed="overloaded"))
    activity.tool_called(ToolCallEnded(tool="read_file", seconds=0.2, outcome="failed"))
    text = format_metrics({}, {}, {}, 0, {}, activity).decode()
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["pegasus_messages_total", ("channel", "web"), ("source", "person")] == 1
    assert samples["pegasus_replies_total", ("channel", "web")] == 1
    assert samples["pegasus_message_duration_seconds_sum", ("channel", "web")] == 2
    assert samples["pegasus_message_duration_seconds_bucket", ("channel", "web"), ("le", "2.5")] == 1
    assert samples["pegasus_message_duration_seconds_bucket", ("channel", "web"), ("le", "1.0")] == 0
    assert samples["pegasus_model_calls_total", ("model", "p/m"), ("outcome", "ok"), ("role", "default")] == 1
    assert samples["pegasus_model_tokens_total", ("kind", "prompt"), ("model", "p/m")] == 7
    assert samples["pegasus_model_call_duration_seconds_count", ("model", "p/m")] == 2
    assert samples["pegasus_errors_total", ("kind", "overloaded"), ("source", "model")] == 1
    assert samples["pegasus_tool_calls_total", ("outcome", "failed"), ("tool", "read_file")] == 1


def test_names_that_others_choose_make_a_bounded_number_of_series():
    activity = Activity(lambda: 0)
    for n in range(5_000):
        activity.tool_called(ToolCallEnded(tool=f"server__{n}", seconds=0.1))
    calls = activity.counts["pegasus_tool_calls_total"]
    assert len(calls) <= MAX_SERIES + 1
    assert sum(calls.values()) == 5_000
    assert len(activity.durations["pegasus_tool_call_duration_seconds"]) <= MAX_SERIES + 1


def test_an_observer_that_fails_fails_no_work():
    activity = Activity(lambda: 0)

    def fail(work: object) -> None:
        raise OSError("no collector")

    activity.observer = fail
    activity.tool_called(ToolCallEnded(tool="read_file", seconds=0.1))
    assert activity.counts["pegasus_tool_calls_total"] == {("read_file", "ok"): 1}


async def test_the_description_names_every_route():
    async with world() as there, there.client() as client:
        document = (await client.get("/openapi.json")).json()
        assert document["openapi"].startswith("3.1")
        assert {"/api/messages", "/api/events", "/api/tasks/{id}", "/v1/chat/completions", "/hooks/{name}"} <= set(
            document["paths"]
        )
        task = document["paths"]["/api/tasks/{id}"]["get"]
        assert task["parameters"] == [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
        assert task["security"] == [{"token": []}]
        ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
        assert len(ids) == len(set(ids))
