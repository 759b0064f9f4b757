"""Kinds of tools in an agent that runs: over the gateway and HTTP, and what its owner changes about them."""

from __future__ import annotations

import json
import tomllib

import httpx
import pytest

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import Book, serving
from tests.blackbox.support.mcp_settings import got, reached, server
from tests.blackbox.support.waiting import until_async
from tests.blackbox.support.work import Office, act, answer, heard
from tests.blackbox.test_mcp_add import TOOLS, tool

READ, FETCH, ACT, DESTROY = "private_reader", "open_reader", "act", "destructive"
TRUSTED = [READ, FETCH, ACT, DESTROY, DESTROY, DESTROY]


def mail(tmp_path, tools=TOOLS, *habits, **options):
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    return server("mail", *habits, tools=tmp_path / "tools.json", **options)


async def kinds(client):
    return [tool["kind"] for tool in (await client.call("mcp.tools", name="mail"))["tools"]]


async def test_an_owner_says_what_the_tools_of_a_server_do(tmp_path):
    """It is written into the settings and counts at once, without a new connection."""
    log = tmp_path / "log"
    async with serving(tmp_path, Book(), mail(tmp_path, log=log)) as daemon, daemon.client() as client:
        await reached(daemon, "mail")
        file = daemon.home / "pegasus.toml"
        file.write_text("# mine\n" + file.read_text())
        answer = await client.call("mcp.tools", name="mail")
        assert (answer["isSorted"], answer["trust"], answer["total"]) == (False, "none", 6)
        assert [tool["ifTrusted"] for tool in answer["tools"]] == TRUSTED
        assert await kinds(client) == [ACT, ACT, ACT, ACT, DESTROY, ACT]

        assert (await client.call("mcp.trust", name="mail", trust="hints"))["trust"] == "hints"
        assert await kinds(client) == TRUSTED
        assert (await client.call("mcp.tools", name="mail"))["isSorted"]
        await client.call("mcp.trust", name="mail", trust="none", reads=["get_*", "delete_all"], asks=["send_mail"])
        assert await kinds(client) == [READ, ACT, DESTROY, ACT, READ, ACT]
        assert len(await got(log, "initialize")) == 1, "the server was not touched"

        found = tomllib.loads(file.read_text())["mcp"]["servers"]["mail"]
        assert (found["trust"], found["reads"], found["asks"]) == ("none", ["get_*", "delete_all"], ["send_mail"])
        assert file.read_text().startswith("# mine\n")
        await daemon.restart()
        await reached(daemon, "mail")
        async with daemon.client() as again:
            assert await kinds(again) == [READ, ACT, DESTROY, ACT, READ, ACT]


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({}, "found nothing to change"),
        ({"trust": "all"}, "trust: found"),
        ({"trust": 1}, "trust: found"),
        ({"reads": "get_*"}, "reads: found"),
        ({"reads": ["*_mail"]}, "reads: found"),
        ({"reads": [1]}, "reads: found"),
        ({"reads": [None]}, "reads: found"),
        ({"reads": {"a": None}}, "reads: found"),
        ({"asks": [["x"]]}, "asks: found"),
        ({"acts": ["a\nb"]}, "acts: found"),
        ({"name": "nobody", "trust": "hints"}, "there is no MCP server .*nobody"),
        ({"name": 3, "trust": "hints"}, "name"),
    ],
)
async def test_nonsense_about_tools_changes_nothing(tmp_path, params, why):
    settings = mail(tmp_path) | {"mcp.servers.mail.enabled": False}
    async with serving(tmp_path, Book(), settings) as daemon, daemon.client() as client:
        before = (daemon.home / "pegasus.toml").read_bytes()
        with pytest.raises(AssertionError, match=why):
            await client.call("mcp.trust", **{"name": "mail", **params})
        assert (daemon.home / "pegasus.toml").read_bytes() == before
        assert await client.call("mcp.list")


async def test_only_the_owner_sorts_tools(tmp_path):
    settings = mail(tmp_path) | {"mcp.servers.mail.enabled": False, "http.enabled": True, "http.port": 0}
    async with serving(tmp_path, Book(), settings) as daemon:
        before = (daemon.home / "pegasus.toml").read_bytes()
        for scope in ("message", "read", "control,read"):
            made = await daemon.command("token", "add", scope[:4], "--scope", scope, "--json")
            token = json.loads(made.out)["token"]
            async with httpx.AsyncClient(
                base_url=daemon.at.http, headers={"authorization": f"Bearer {token}"}, timeout=20
            ) as http:
                assert (await http.post("/api/mcp/mail", json={"trust": "hints"})).status_code == 403
                assert (await http.get("/api/mcp/mail")).status_code == (403 if scope == "message" else 200)
        assert (daemon.home / "pegasus.toml").read_bytes() == before
        headers = {"authorization": f"Bearer {daemon.token}"}
        async with httpx.AsyncClient(base_url=daemon.at.http, headers=headers, timeout=20) as http:
            assert (await http.get("/api/mcp")).json()["servers"][0]["name"] == "mail"
            assert (await http.get("/api/mcp/nobody")).status_code == 404
            assert (await http.post("/api/mcp/mail", json={"trust": "hints"})).json()["trust"] == "hints"


async def test_a_mistake_in_the_file_is_told_and_nothing_is_written(tmp_path):
    settings = mail(tmp_path) | {"mcp.servers.mail.enabled": False}
    async with serving(tmp_path, Book(), settings) as daemon, daemon.client() as client:
        file = daemon.home / "pegasus.toml"
        file.write_text(file.read_text() + 'nonsense.key = "x"\n')
        before = file.read_bytes()
        with pytest.raises(AssertionError, match="nonsense"):
            await client.call("mcp.trust", name="mail", trust="hints")
        assert file.read_bytes() == before


async def test_tools_that_change_while_it_runs_are_sorted_as_they_are_now(tmp_path):
    """A server that was trusted as a reader, and then says something else."""
    renamed = tmp_path / "renamed"
    settings = mail(tmp_path, [tool("look", readOnlyHint=True)], "renaming", renamed=renamed)
    settings["mcp.servers.mail.trust"] = "hints"
    async with serving(tmp_path, Book(), settings) as daemon, daemon.client() as client:
        await reached(daemon, "mail")
        assert await kinds(client) == [FETCH]
        (tmp_path / "tools.json").write_text(
            json.dumps([tool("look", readOnlyHint=False), tool("new", readOnlyHint=7)])
        )
        renamed.touch()

        async def are_new() -> bool:
            return await kinds(client) == [DESTROY, DESTROY]

        await until_async(are_new, "the new kinds", 15, lambda: "")


async def test_ten_thousand_tools_are_told_in_one_bounded_answer(tmp_path):
    async with serving(tmp_path, Book(), server("lab", "many")) as daemon, daemon.client() as client:
        await reached(daemon, "lab")
        answer = await client.call("mcp.tools", name="lab")
        assert (answer["total"], answer["counts"][ACT], len(answer["tools"])) == (10_000, 10_000, 500)


async def test_what_the_owner_says_counts_from_the_next_call_of_a_task_on(tmp_path):
    """The first question says how; trust is given while it waits, and no reader is asked about any more."""
    calls = [Call("mail__get_mail", {}), Call("mail__get_mail", {"n": 1}), Call("mail__get_mail", {"n": 2})]
    pages = [*(act(call) for call in calls), act(Call("mail__delete_all", {})), lambda view: answer("done")]
    settings = mail(tmp_path, [{**each, "inputSchema": {"type": "object"}} for each in TOOLS])
    async with serving(tmp_path, Office({"tidy": pages}), {**settings, "policy.rules": []}) as daemon:
        await reached(daemon, "mail")
        async with daemon.client("cli", "main") as client:
            await client.say("do tidy")
            first = await client.get("approval", state="open")
            assert (first["tool"], first["arguments"]) == ("mail__get_mail", {"n": 1})
            assert "mcp add mail`" in first["why"]
            await client.call("mcp.trust", name="mail", trust="hints")
            await client.call("approvals.answer", id=first["id"], decision="allow")
            while (asked := await client.get("approval", state="open"))["id"] == first["id"]:
                pass
            assert asked["tool"] == "mail__delete_all", "and no question about the third reading"
            assert "Nobody has said" not in asked["why"]
            await client.call("approvals.answer", id=asked["id"], decision="deny")
            assert await heard(client) == ["completed: done"]
