"""A2A of the real process, over both bindings."""

from __future__ import annotations

from contextlib import asynccontextmanager

import httpx

from tests.blackbox.support import Call, serving
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
