"""Webhooks of the real process: deliveries that come again, bursts of them, and restarts between."""

from __future__ import annotations

import hmac
import json
import time
from collections import Counter

import httpx
import pytest
import trio

from tests.blackbox.support import Book, running, serving
from tests.blackbox.support.waiting import until_async
from tests.blackbox.support.work import answer

SECRET = "whsec-0123456789"
HTTP = {"http.enabled": True, "http.port": 0}
TASK_HOOK = {**HTTP, "models.default": "offline/stand-in", "hooks.ci.secret": SECRET}
CHAT_HOOK = {**HTTP, "hooks.ci.secret": SECRET, "hooks.ci.channel": "web:main", "hooks.ci.template": "{{n}}"}


def client(daemon):
    return httpx.AsyncClient(base_url=daemon.at.http, timeout=60)


def delivery(body, id=None, at=None):
    """Arguments of a signed request; at: time in seconds that is signed, too."""
    content = body if at is None else f"{at}.".encode() + body
    headers = {"X-Pegasus-Signature": "sha256=" + hmac.new(SECRET.encode(), content, "sha256").hexdigest()}
    headers |= {} if id is None else {"X-Pegasus-Delivery": id}
    headers |= {} if at is None else {"X-Pegasus-Timestamp": str(at)}
    return {"content": body, "headers": headers}


class Workers(Book):
    """A model whose every thought ends its work."""

    def _look_up(self, view):
        return answer("done")


async def tasks_of(daemon, http):
    answer = await http.get("/api/tasks", headers={"authorization": f"Bearer {daemon.token}"})
    return [task["taskId"] for task in answer.json()["tasks"]]


@pytest.mark.parametrize("settings", [TASK_HOOK, {**CHAT_HOOK, "models.default": "offline/stand-in"}])
async def test_a_signed_body_that_comes_again_under_another_id_is_not_carried_out(tmp_path, settings):
    async with running(tmp_path / "home", settings) as daemon:
        async with client(daemon) as http:
            first = await http.post("/hooks/ci", **delivery(b'{"n": "red"}', "d-1"))
            assert first.status_code == 202
            for id in ("d-2", None, "d-1x"):
                again = await http.post("/hooks/ci", **delivery(b'{"n": "red"}', id))
                assert (again.status_code, again.json()) == (200, {"repeated": True})
            same = await http.post("/hooks/ci", **delivery(b'{"n": "red"}', "d-1"))  # its sender has seen no answer
            assert (same.status_code, same.json()) == (202, first.json())
            other = await http.post("/hooks/ci", **delivery(b'{"n": "green"}', "d-3"))
            assert other.status_code == 202
            assert other.json() != first.json()
            assert 'pegasus_hook_repeats_total{hook="ci"} 3.0' in (await http.get("/metrics")).text
            assert "came again" in daemon.stderr
            if "hooks.ci.channel" not in settings:
                shown = json.loads((await daemon.command("tasks", "show", first.json()["taskId"], "--json")).out)
                assert shown["cause"] == "hook ci"
        await daemon.restart()  # by kill -9
        async with client(daemon) as http:
            again = await http.post("/hooks/ci", **delivery(b'{"n": "red"}', "d-9"))
            assert (again.status_code, again.json()) == (200, {"repeated": True})
            same = await http.post("/hooks/ci", **delivery(b'{"n": "red"}', "d-1"))
            assert (same.status_code, same.json()) == (202, first.json())
            if "hooks.ci.channel" not in settings:
                assert len(await tasks_of(daemon, http)) == 2


async def test_repeats_may_be_allowed(tmp_path):
    async with running(tmp_path / "home", {**TASK_HOOK, "hooks.ci.repeats": True}) as daemon, client(daemon) as http:
        answers = [await http.post("/hooks/ci", **delivery(b"{}", id)) for id in ("d-1", "d-2", "d-2", None, None)]
        assert [answer.status_code for answer in answers] == [202] * 5
        assert len(set(await tasks_of(daemon, http))) == 4


@pytest.mark.parametrize("id", ["d-1", None])
async def test_a_delivery_with_a_signed_time_counts_once_and_only_while_it_is_fresh(tmp_path, id):
    now = int(time.time())
    async with running(tmp_path / "home", TASK_HOOK) as daemon, client(daemon) as http:
        assert (await http.post("/hooks/ci", **delivery(b'{"a": 1}', id, now))).status_code == 202
        for again in (id, "d-2"):
            told = await http.post("/hooks/ci", **delivery(b'{"a": 1}', again, now))
            assert (told.status_code, told.json()["error"]["code"]) == (409, "conflict")
        for at in (now - 400, now + 400, f"{now}.5", "-1", "", f"{now}000"):
            told = await http.post("/hooks/ci", **delivery(b'{"a": 2}', id, at))
            assert (told.status_code, told.json()["error"]["code"]) == (401, "unauthorized")
        wrong = delivery(b'{"a": 3}', id)  # the signature of the body alone, and a time
        wrong["headers"]["X-Pegasus-Timestamp"] = str(now)
        assert (await http.post("/hooks/ci", **wrong)).status_code == 401
        # What was signed with a time is no body of its own.
        moved = delivery(b'{"a": 1}', "d-3", now)
        del moved["headers"]["X-Pegasus-Timestamp"]
        moved["content"] = f"{now}.".encode() + moved["content"]
        assert (await http.post("/hooks/ci", **moved)).status_code == 401
        fresh = await http.post("/hooks/ci", **delivery(b'{"a": 1}', id, now + 1))
        assert fresh.status_code == 202
        assert len(await tasks_of(daemon, http)) == (1 if id else 2)  # the same id is one delivery, signed anew


@pytest.mark.parametrize("ids", [["d-1"] * 20, [f"d-{n}" for n in range(20)], [None] * 20])
async def test_the_same_delivery_twenty_times_at_once_runs_once(tmp_path, ids):
    async with running(tmp_path / "home", TASK_HOOK) as daemon, client(daemon) as http:
        found = Counter()

        async def deliver(id):
            found[(await http.post("/hooks/ci", **delivery(b'{"a": 1}', id))).status_code] += 1

        async with trio.open_nursery() as nursery:
            for id in ids:
                nursery.start_soon(deliver, id)
        assert found == ({202: 20} if ids[0] == ids[1] == "d-1" else {202: 1, 200: 19})
        assert len(await tasks_of(daemon, http)) == 1


async def test_a_burst_of_a_hundred_deliveries_loses_none(tmp_path):
    """As tasks: one is at work, and a hundred wait. The next one is told when to come again, and then is taken."""
    settings = {**TASK_HOOK, "hooks.other.secret": SECRET}
    del settings["models.default"]
    async with serving(tmp_path, book := Workers(), settings) as daemon, client(daemon) as http:
        book.hold()
        found = Counter()

        async def deliver(n):
            found[(await http.post("/hooks/ci", **delivery(f'{{"n": {n}}}'.encode(), f"d-{n}"))).status_code] += 1

        async with trio.open_nursery() as nursery:
            for n in range(100):
                nursery.start_soon(deliver, n)
        assert found == {202: 100}
        for n in range(100, 110):
            last = await http.post("/hooks/ci", **delivery(f'{{"n": {n}}}'.encode(), f"d-{n}"))
            if last.status_code == 429:
                break
        assert last.status_code == 429
        assert int(last.headers["retry-after"]) > 0
        assert (await http.post("/hooks/other", **delivery(b'{"n": 1}', "d-1"))).status_code == 202
        refused = delivery(f'{{"n": {n}}}'.encode(), f"d-{n}")
        book.release()

        async def is_taken():
            return (await http.post("/hooks/ci", **refused)).status_code == 202

        await until_async(is_taken, "room for the delivery that was refused", timeout=60)


async def test_a_burst_of_messages_loses_none(tmp_path):
    async with serving(tmp_path, book := Book(), {**CHAT_HOOK, "agent.when_busy": "followup"}) as daemon:
        book.hold()
        async with client(daemon) as http:
            answers = [await http.post("/hooks/ci", **delivery(f'{{"n": "d{n}"}}'.encode())) for n in range(100)]
            assert [answer.status_code for answer in answers] == [202] * 100
            others = [await http.post("/hooks/ci", **delivery(f'{{"n": "e{n}"}}'.encode())) for n in range(5)]
            assert others[-1].status_code == 429
            late = int(others[-1].headers["retry-after"])
            assert late > 0
        book.release()
        async with daemon.client("web", "main") as peer:
            replies = await peer.replies(100)
        assert {f"echo: d{n}" for n in range(100)} <= {frame["text"] for frame in replies} | {
            f"echo: {view.question.text}" for view in book.asked
        }
