"""A2A of the real process, over both bindings."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import h11
import httpx
import trio

from tests.blackbox.support import Call, serving, until
from tests.blackbox.support.work import Office, act, answer

SETTINGS = {"http.enabled": True, "http.port": 0}


class Agent:
    """A client without a library."""

    def __init__(self, http):
        self.http = http

    async def call(self, method, **params):
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        answer = (await self.http.post("/a2a", json=body)).json()
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", 7)
        return answer["result"] if "result" in answer else answer["error"]

    async def send(self, text, id, *, configuration=None, **more):
        message = {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}], **more}
        return await self.call("SendMessage", message=message, configuration=configuration or {})


@asynccontextmanager
async def agent_of(daemon, token=None):
    headers = {"authorization": f"Bearer {token or daemon.token}", "a2a-version": "1.0"}
    async with httpx.AsyncClient(base_url=daemon.at.http, headers=headers, timeout=20, verify=False) as http:
        yield Agent(http)


def state_of(task):
    return task["status"]["state"].removeprefix("TASK_STATE_")


async def test_a_message_becomes_a_task_that_asks_and_is_answered(tmp_path):
    jobs = {
        "greet": answer("hello"),
        "paint": [act(Call("ask_user", {"question": "Which colour?"})), lambda view: answer(f"painted {view.last}")],
    }
    async with serving(tmp_path, Office(jobs), SETTINGS) as daemon, agent_of(daemon) as agent:
        done = (await agent.send("greet", "m-1"))["task"]
        assert state_of(done) == "COMPLETED"
        assert done["artifacts"][0]["parts"] == [{"text": "hello"}]
        asked = (await agent.send("paint", "m-2"))["task"]
        assert state_of(asked) == "INPUT_REQUIRED"
        assert asked["status"]["message"]["parts"] == [{"text": "Which colour?"}]
        painted = (await agent.send("blue", "m-3", taskId=asked["id"]))["task"]
        assert painted["artifacts"][0]["parts"] == [{"text": "painted blue"}]
        assert [entry["parts"][0]["text"] for entry in painted["history"]] == ["paint", "Which colour?", "blue"]
        again = (await agent.send("blue", "m-3", taskId=asked["id"]))["task"]
        assert again == painted
        assert (await agent.send("greet", "m-1"))["task"] == done
        listed = await agent.call("ListTasks")
        assert [task["id"] for task in listed["tasks"]] == [painted["id"], done["id"]]


@asynccontextmanager
async def push_target(answers=()):
    """A server that notes what is sent to it. answers: the first answers as (status, headers); afterwards 200."""
    heard, left = [], list(answers)

    async def serve(stream):
        async with stream:
            connection = h11.Connection(h11.SERVER)
            head, body = None, b""
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some(65536))
                elif isinstance(event, h11.Request):
                    head = event
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                else:
                    break
            status, headers = left.pop(0) if left else (200, ())
            heard.append((status, {name.decode(): value.decode() for name, value in head.headers}, body))
            answer = h11.Response(
                status_code=status, headers=[*headers, ("content-length", "0"), ("connection", "close")]
            )
            await stream.send_all(connection.send(answer) + connection.send(h11.EndOfMessage()))

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}/hook", heard
        nursery.cancel_scope.cancel()


def updates_of(heard):
    """What a target has taken, in words."""
    told = [json.loads(body) for status, _, body in heard if status == 200]
    return [state_of(each["statusUpdate"]) if "statusUpdate" in each else "artifact" for each in told]


async def test_push_notifications_go_out_once_each_over_kill_9(tmp_path):
    jobs = {"paint": [act(Call("ask_user", {"question": "Which colour?"})), answer("painted")]}
    settings = {**SETTINGS, "tools.allowed_hosts": ["127.0.0.1"]}
    refusals = [(503, ()), (307, [("location", "http://127.0.0.2:9/")])]
    async with push_target(refusals) as (url, heard), serving(tmp_path, Office(jobs), settings) as daemon:
        secret = {"url": url, "id": "p", "token": "t-1", "authentication": {"scheme": "Bearer", "credentials": "s3"}}
        async with agent_of(daemon) as agent:
            options = {"taskPushNotificationConfig": secret}
            asked = (await agent.send("paint", "m-1", configuration=options))["task"]
            await until(lambda: heard, "the first attempt", 20)
        await daemon.restart()  # by kill -9, with nothing delivered
        await until(lambda: "INPUT_REQUIRED" in updates_of(heard), "the deliveries of before", 20)
        async with agent_of(daemon) as agent:
            await agent.send("blue", "m-2", taskId=asked["id"])
            await until(lambda: updates_of(heard)[-1:] == ["COMPLETED"], "the last delivery", 20)
            assert updates_of(heard) == ["INPUT_REQUIRED", "WORKING", "artifact", "COMPLETED"]
            _, headers, _ = heard[-1]
            assert headers["authorization"] == "Bearer s3"
            assert headers["x-a2a-notification-token"] == "t-1"
            assert headers["content-type"] == "application/a2a+json"
