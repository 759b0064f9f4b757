"""Yeses of the real process: for several calls at once, for part of them, beforehand, and beyond single calls; over SIGKILL too."""

from __future__ import annotations

import json
from itertools import product

import httpx
import pytest

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import serving
from tests.blackbox.support.files import lines
from tests.blackbox.support.mcp_settings import reached, server
from tests.blackbox.support.work import Effects, Office, act, answer, events, heard, shell

ASK = {"policy.rules": [{"tool": "shell_exec", "decision": "ask"}], "agent.owners": ["web:*", "cli:*", "slack:ann"]}
EVE = {"type": "slack", "channelId": "#general", "userId": "eve"}


def office(*thoughts, **jobs):
    """A task that makes the calls of each thought, and says what the last of them gave."""
    book = Office({"work": [*(act(*calls) for calls in thoughts), lambda view: answer(view.last)]})
    book.jobs |= {name: [*(act(*calls) for calls in job), lambda view: answer(view.last)] for name, job in jobs.items()}
    return book


def plan(*commands, why="to tidy up"):
    calls = [{"tool": call.name, "arguments": dict(call.arguments)} for call in commands]
    return Call("ask_permission", {"calls": calls, "why": why})


HTTP = {"http.enabled": True, "http.port": 0}


async def request(daemon, method, path, body=None):
    """A request with the owner's token."""
    headers = {"authorization": f"Bearer {daemon.token}"}
    async with httpx.AsyncClient(base_url=daemon.at.http, headers=headers, timeout=20) as client:
        return await client.request(method, path, json=body)


def results(view):
    return [result.content for turn in view.request.turns for result in getattr(turn, "results", ())]


async def test_the_calls_of_one_answer_are_one_question_over_a_kill(tmp_path):
    work = Effects(tmp_path)
    async with serving(tmp_path, office([work.shell("one"), work.shell("two"), work.shell("three")]), ASK) as daemon:
        async with daemon.client() as client:
            await client.say("do work")
            shown = await client.get("approval", state="open")
            assert [call["tool"] for call in shown["calls"]] == ["shell_exec"] * 3
            assert shown["arguments"] == shown["calls"][0]["arguments"]
            assert {call["why"] for call in shown["calls"]} == {"rule 1 of policy.rules"}
            daemon.kill()
        await daemon.start()
        async with daemon.client(lastSeq=0) as client:
            again = await client.get("approval", state="open")
            assert (again["id"], again["calls"]) == (shown["id"], shown["calls"])
            done = await daemon.command("approvals", "allow", shown["id"], "--calls", "1,3")
            assert done.code == 0, done.err
            assert (await client.get("approval", id=shown["id"], state="allowed"))["allowed"] == [0, 2]
            await work.happened("one")
            await heard(client)
        assert events(daemon.home, "work").count("TOOL_CALL_FAILED") == 1
    assert (work.count("one"), work.count("two"), work.count("three")) == (1, 0, 1)


@pytest.mark.parametrize(
    ("door", "words"),
    [
        ("chat", "hour 1,3"),
        ("chat", "--calls 1,3 --scope hour"),
        ("allow", "1,3 hour"),
        ("allow", "1-1,3-3 hour"),
        ("allow", "--scope hour --calls=1,3"),
        ("approve", "hour 1,3"),
        ("approve", "--scope=hour 1 3"),
    ],
)
async def test_forms_of_an_answer_are_understood_at_every_door(tmp_path, door, words):
    calls = [shell(f"echo {name}") for name in "abc"]
    async with serving(tmp_path, office(calls), ASK) as daemon, daemon.client() as client:
        await client.say("do work")
        shown = await client.get("approval", state="open")
        if door == "chat":
            await client.say(f"/approve {shown['id']} {words}")
        else:
            done = await daemon.command("approvals", door, shown["id"], *words.split())
            assert done.code == 0, done.err
        assert (await client.get("approval", id=shown["id"], state="allowed"))["allowed"] == [0, 2]
        [grant] = (await client.call("approvals.granted"))["granted"]
        assert (grant["tool"], grant["scope"]) == ("shell_exec", "hour")
        await heard(client)


async def test_a_form_that_is_none_leaves_the_question_open(tmp_path):
    async with serving(tmp_path, office([shell("true"), shell("true #")]), ASK) as daemon, daemon.client() as client:
        await client.say("do work")
        shown = await client.get("approval", state="open")
        for words in ("week", "1,x", "--calls all", "--scope week", "hour --scope tool"):
            done = await daemon.command("approvals", "allow", shown["id"], *words.split())
            assert done.code == 2, words
            assert "allowed" in done.err or "is not one of" in done.err
            assert [each["id"] for each in (await client.call("approvals.list"))["approvals"]] == [shown["id"]]
        await client.call("approvals.answer", id=shown["id"], decision="deny")
        await heard(client)


async def test_a_chat_lists_what_waits_and_what_was_granted_and_revokes(tmp_path):
    settings = ASK | {"channels.slack.access": "open"}
    async with (
        serving(
            tmp_path, office([shell("true")], other=[[plan(shell("date"), shell("id"), why="to look")]]), settings
        ) as daemon,
        daemon.client() as client,
        daemon.bridge("slack") as slack,
    ):
        assert await client.ask("/approvals") == (
            "Nothing waits for your answer.\n/approve ID, /approve ID always, or /deny ID and a reason.\n\n"
            "Nothing was allowed beyond single calls."
        )
        await client.say("do work")
        shown = await client.get("approval", state="open")
        await client.say(f"/approve {shown['id']} forever")
        while not (await heard(client))[-1].startswith("completed"):
            pass
        await client.say("do other")
        asked = await client.get("approval", state="open", isPlan=True)
        [grant] = (await client.call("approvals.granted"))["granted"]
        text = await client.ask("/approvals")
        assert f"{asked['id']}  plan of 2 calls (shell_exec): command: date · command: id" in text
        assert f"{grant['id']}  shell_exec, until it is revoked" in text
        for text in ("/approvals", f"/approvals revoke {grant['id']}"):
            assert await slack.ask(text, channel=EVE) == "Only my owner may decide about that."
        assert "is revoked" in await client.ask(f"/approvals revoke {grant['id']}")
        assert (await client.call("approvals.granted"))["granted"] == []
        assert "There is no grant" in await client.ask("/approvals revoke g-none")
        listed = (await daemon.command("approvals", "list")).out
        assert f"{asked['id']}  a plan of 2 calls, each of which may be made once, later, for owner" in listed
        assert "in the agent's own words, which are no facts:\n      to look" in listed
        assert f"for a part of them: approvals allow {asked['id']} 1" in listed
        assert "    read from outside so far: " in listed
        await client.call("approvals.answer", id=asked["id"], decision="deny")
        await heard(client)


async def test_places_that_make_no_sense_leave_the_question_open(tmp_path):
    async with serving(tmp_path, office([shell("true"), shell("true #")]), ASK) as daemon, daemon.client() as client:
        await client.say("do work")
        shown = await client.get("approval", state="open")
        for calls, decision in product(([], [3], [-1], [True], "0", [0.0]), ("allow", "deny")):
            with pytest.raises(AssertionError, match="calls: "):
                await client.call("approvals.answer", id=shown["id"], decision=decision, calls=calls)
            assert [each["id"] for each in (await client.call("approvals.list"))["approvals"]] == [shown["id"]]
        await client.call("approvals.answer", id=shown["id"], decision="deny")
        await heard(client)


async def test_three_doors_answer_and_the_first_counts(tmp_path):
    work = Effects(tmp_path)
    settings = {**ASK, **HTTP}
    async with serving(tmp_path, office([work.shell("done")]), settings) as daemon, daemon.client() as client:
        await client.say("do work")
        shown = await client.get("approval", state="open")
        path = f"/api/approvals/{shown['id']}"
        first = await request(daemon, "POST", path, {"decision": "allow", "scope": "once"})
        assert (first.status_code, first.json()["approval"]["state"]) == (200, "allowed")
        late = await request(daemon, "POST", path, {"decision": "deny"})
        assert late.status_code == 400
        assert "The first answer counts" in late.json()["error"]["message"]
        command = await daemon.command("approvals", "deny", shown["id"])
        assert (command.code, "The first answer counts" in command.err) == (1, True)
        texts = await heard(client)
        await client.say(f"/approve {shown['id']} forever")
        texts += await heard(client)
        assert any("is allowed already" in text for text in texts)
        assert (await client.call("approvals.granted"))["granted"] == []
    assert work.count("done") == 1


async def test_a_yes_for_good_is_listed_survives_a_kill_and_is_revoked(tmp_path):
    work = Effects(tmp_path)
    book = office([work.shell("one")], [work.shell("two")], other=[[work.shell("three")]])
    async with serving(tmp_path, book, {**ASK, **HTTP}) as daemon:
        async with daemon.client() as client:
            await client.say("do work")
            shown = await client.get("approval", state="open")
            assert shown["scopes"] == ["once", "arguments", "tool", "hour", "forever"]
            await client.call("approvals.answer", id=shown["id"], decision="allow", scope="forever")
            await heard(client)
            daemon.kill()
        await daemon.start()
        async with daemon.client(lastSeq=0) as client:
            await heard(client)
            await client.say("do other")
            await heard(client)
            [grant] = json.loads((await daemon.command("approvals", "granted", "--json")).out)["granted"]
            assert (grant["scope"], grant["tool"], grant["server"]) == ("forever", "shell_exec", "")
            assert grant["by"] == f"web:{client.channel['channelId']}"
            listed = await request(daemon, "GET", "/api/approvals/granted")
            assert listed.json()["granted"] == [grant]
            revoked = await daemon.command("approvals", "revoke", grant["id"])
            assert (revoked.code, "is revoked. Unless another grant is for shell_exec" in revoked.out) == (0, True)
            gone = await request(daemon, "DELETE", f"/api/approvals/granted/{grant['id']}")
            assert gone.status_code == 404
            daemon.kill()
        await daemon.start()
        async with daemon.client(lastSeq=0) as client:
            await client.say("do work")
            await client.get("approval", state="open")
            await client.say("/stop")
    assert [work.count(name) for name in ("one", "two", "three")] == [1, 1, 1]


async def test_a_yes_for_this_task_is_for_no_other_one(tmp_path):
    work = Effects(tmp_path)
    book = office([work.shell("one")], [work.shell("two")], other=[[work.shell("three")]])
    async with serving(tmp_path, book, ASK) as daemon, daemon.client() as client:
        await client.say("do work")
        shown = await client.get("approval", state="open")
        await client.say(f"/approve {shown['id']} tool")
        assert any("in this task whenever the tool is called" in text for text in await heard(client, 2))
        assert (work.count("one"), work.count("two")) == (1, 1)
        assert (await client.call("approvals.granted"))["granted"] == [], "it has ended with its task"
        await client.say("do other")
        await client.get("approval", state="open")
        assert work.count("three") == 0
        await client.say("/stop")
        await client.reply()


async def test_work_for_a_guest_and_answers_through_a_bridge_count_once(tmp_path):
    work = Effects(tmp_path)
    settings = {**ASK, "policy.rules": [{"tool": "shell_exec", "decision": "ask"}]}
    async with (
        serving(tmp_path, office([work.shell("done")]), settings) as daemon,
        daemon.client() as owner,
        daemon.bridge("slack") as slack,
    ):
        await slack.say("do work", channel=EVE)
        shown = await owner.get("approval", state="open")
        assert "scopes" not in shown, "once is the least, and stands nowhere"
        for scope in ("always", "tool", "hour", "forever"):
            with pytest.raises(AssertionError, match="it is work for a guest"):
                await owner.call("approvals.answer", id=shown["id"], decision="allow", scope=scope)
            await slack.say(f"/approve {shown['id']} {scope}", channel=EVE)
            assert (await slack.reply())["text"] == "Only my owner may decide about that."
            await slack.say(f"/approve {shown['id']} {scope}", channel={**EVE, "userId": "ann"}, metadata={"door": ""})
            assert "through a bridge counts once" in (await slack.reply())["text"]
        await owner.call("approvals.answer", id=shown["id"], decision="deny")
        await slack.reply()
        assert not [line for line in lines(daemon.home / "data/approvals.jsonl") if "hash" in line]
    assert work.count("done") == 0


async def test_a_plan_is_one_question_and_each_of_its_calls_runs_once(tmp_path):
    """Killed between the yes and the calls, and between the calls. A second call of the same is asked about."""
    work = Effects(tmp_path)
    one, two, three = (work.shell(name) for name in ("one", "two", "three"))
    book = Office({"work": [act(plan(one, two, three)), act(one), act(two), act(one), lambda view: answer(view.last)]})
    async with serving(tmp_path, book, ASK) as daemon:
        async with daemon.client() as client:
            await client.say("do work")
            shown = await client.get("approval", state="open")
            assert (shown["isPlan"], shown["words"], shown.get("scopes")) == (True, "to tidy up", None)
            assert [call["arguments"]["command"] for call in shown["calls"]] == [
                each.arguments["command"] for each in (one, two, three)
            ]
            book.hold_tasks()
            await client.call("approvals.answer", id=shown["id"], decision="allow", calls=[0, 1])
            await book.thought("work", 2)
            daemon.kill()
            book.release()
        await daemon.start()
        async with daemon.client(lastSeq=0) as client:
            again = await client.get("approval", state="open")
            assert again["arguments"] == {**dict(one.arguments)}
            assert (work.count("one"), work.count("two"), work.count("three")) == (1, 1, 0)
            daemon.kill()
        await daemon.start()
        async with daemon.client(lastSeq=0) as client:
            again = await client.get("approval", state="open")
            await client.call("approvals.answer", id=again["id"], decision="deny")
            await heard(client)
        [told] = [text for text in results(book.of("work")[-1]) if "allowed" in text][:1]
        assert json.loads(told) == {"allowed": [1, 2], "refused": [3]}
    assert (work.count("one"), work.count("two"), work.count("three")) == (1, 1, 0)


async def test_a_call_that_was_denied_in_a_plan_is_refused_without_a_question(tmp_path):
    """Over a kill, too; and in an answer with others, of which the rest is asked about."""
    work = Effects(tmp_path)
    one, two, three = (work.shell(name) for name in ("one", "two", "three"))
    book = Office({"work": [act(plan(one, two)), act(one, two), act(two, three), lambda view: answer(view.last)]})
    async with serving(tmp_path, book, ASK) as daemon:
        async with daemon.client() as client:
            await client.say("do work")
            shown = await client.get("approval", state="open")
            book.hold_tasks()
            await client.say(f"/approve {shown['id']} 1")
            texts = await heard(client)
            assert f"{shown['id']} is allowed: of 2 calls 1 (shell_exec) may be made; denied: 2 (shell_exec)." in texts
            await book.thought("work", 2)
            daemon.kill()
            book.release()
        await daemon.start()
        async with daemon.client(lastSeq=0) as client:
            asked = await client.get("approval", state="open")
            assert (asked["arguments"]["command"], asked.get("calls")) == (three.arguments["command"], None)
            await client.call("approvals.answer", id=asked["id"], decision="allow")
            await work.happened("three")
            await book.thought("work", 5)  # of replies one more or less comes, as the kill left an acknowledgement
        refused = [text for text in results(book.of("work")[-1]) if "the owner denied this" in text]
        assert len(refused) == 2
    assert (work.count("one"), work.count("two"), work.count("three")) == (1, 0, 1)


async def test_a_plan_that_cannot_be_asked_about_is_refused_without_a_question(tmp_path):
    refused = [
        ([{"tool": "shell_exec", "arguments": {"command": "true"}}] * 10_000, "found 10,000 calls, allowed: 20"),
        ([{"tool": "shell_*", "arguments": {"command": "*"}}], "call 1: there is no tool"),
        ([{"tool": "shell_exec", "arguments": {}}], "command is required"),
        ([{"tool": "shell_exec"}], "call 1: arguments is required"),
        ([{"tool": "ask_permission", "arguments": {}}, 3, None], "call 2: there is no tool"),
        ([{"tool": "run_python", "arguments": {"code": "1"}}], "call 1 (run_python) is not allowed here: rule 2"),
        ([{"tool": "shell_exec", "arguments": {"command": "x" * 1_100_000}}], "found arguments of 1,100,"),
        ([], "calls is required"),
        ("all", "calls is required"),
    ]
    plans = {
        f"plan{n}": [[Call("ask_permission", {"calls": calls, "why": "please"})]]
        for n, (calls, _) in enumerate(refused)
    }
    rules = [*ASK["policy.rules"], {"tool": "run_python", "decision": "deny"}]
    async with (
        serving(tmp_path, office(**plans), {**ASK, "policy.rules": rules}) as daemon,
        daemon.client() as client,
    ):
        for name, (_, problem) in zip(plans, refused, strict=True):
            await client.say(f"do {name}")
            [text] = await heard(client)
            assert problem in text
            assert not [frame for frame in client.seen if frame["type"] == "approval"]


async def test_what_needs_no_yes_is_not_asked_about(tmp_path):
    book = office([plan(Call("read_file", {"path": "a"}), Call("memory_list", {}))])
    async with serving(tmp_path, book, ASK) as daemon, daemon.client() as client:
        await client.say("do work")
        assert json.loads((await heard(client))[0].removeprefix("completed: ")) == {"needNoYes": [1, 2]}


async def test_a_yes_for_good_stands_above_no_denial(tmp_path):
    work = Effects(tmp_path)
    book = office([work.shell("one")], other=[[work.shell("two")]])
    async with serving(tmp_path, book, ASK) as daemon, daemon.client() as client:
        await client.say("do work")
        shown = await client.get("approval", state="open")
        await client.call("approvals.answer", id=shown["id"], decision="allow", scope="forever")
        await heard(client)
        assert "Granted" in (await daemon.command("status")).out
        daemon.configure(policy__rules=[{"tool": "shell_exec", "decision": "deny"}])
        await client.call("config.reload")
        await client.say("do other")
        assert "is not allowed here: rule 1 of policy.rules" in (await heard(client))[0]
    assert (work.count("one"), work.count("two")) == (1, 0)


async def test_a_yes_for_a_server_is_for_its_tools_as_they_were(tmp_path):
    """One that was changed, one that came later, and one that destroys are asked about; the others are not, over a kill too."""
    listed = tmp_path / "tools.json"
    log = tmp_path / "calls"

    def offer(**descriptions):
        schema = {"type": "object", "properties": {}}
        tools = [{"name": name, "description": text, "inputSchema": schema} for name, text in descriptions.items()]
        listed.write_text(json.dumps(tools))

    offer(same="Same.", changing="Before.", delete_it="Deletes.")
    made = ("same", "changing", "delete_it", "changing", "came_later", "same")
    book = office(*([Call(f"lab__{name}", {})] for name in made))
    settings = {**ASK, **server("lab", tools=listed, log=log), "policy.rules": [{"tool": "lab__*", "decision": "ask"}]}
    async with serving(tmp_path, book, settings) as daemon:
        await reached(daemon, "lab")
        async with daemon.client() as client:
            await client.say("do work")
            shown = await client.get("approval", state="open")
            assert (shown["tool"], "server" in shown["scopes"], shown["server"]) == ("lab__same", True, "lab")
            await client.call("approvals.answer", id=shown["id"], decision="allow", scope="server")
            destroys = await client.get("approval", state="open")
            assert (destroys["tool"], destroys["scopes"]) == ("lab__delete_it", ["once", "arguments"])
            with pytest.raises(AssertionError, match="it cannot be taken back"):
                await client.call("approvals.answer", id=destroys["id"], decision="allow", scope="server")
            [grant] = (await client.call("approvals.granted"))["granted"]
            assert (grant["scope"], grant["tool"], grant["server"]) == ("server", "", "lab")
            assert grant["tools"].keys() == {"lab__same", "lab__changing"}
            daemon.kill()
        offer(same="Same.", changing="After.", delete_it="Deletes.", came_later="New.")
        await daemon.start()
        await reached(daemon, "lab")
        async with daemon.client(lastSeq=0) as client:
            asked = []
            for _ in range(3):
                shown = await client.get("approval", state="open")
                asked.append(shown["tool"])
                await client.call("approvals.answer", id=shown["id"], decision="deny")
            await heard(client)
            assert asked == ["lab__delete_it", "lab__changing", "lab__came_later"]
    calls = [
        line["params"]["name"]
        for line in map(json.loads, log.read_text().splitlines())
        if line.get("method") == "tools/call"
    ]
    assert calls == ["same", "changing", "same"]


async def test_a_token_that_may_only_send_messages_gives_no_wider_yes(tmp_path):
    """Its client is nobody's owner, whatever it calls itself; an owner's client with the scope "control" is one."""
    async with serving(tmp_path, office([shell("true")]), {**ASK, **HTTP}) as daemon, daemon.client() as client:
        await client.say("do work")
        shown = await client.get("approval", state="open")
        for scopes, status in (("message", 403), ("message,read", 403), ("message,control", 200)):
            token = (
                await daemon.command("token", "add", f"t{status}{len(scopes)}", "--type", "web", "--scope", scopes)
            ).out.strip()
            headers = {"authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(base_url=daemon.at.http, headers=headers, timeout=20) as http:
                path = f"/api/approvals/{shown['id']}"
                answer = await http.post(path, json={"decision": "allow", "scope": "forever"})
                assert answer.status_code == status, (scopes, answer.text)
        await heard(client)
        assert len((await client.call("approvals.granted"))["granted"]) == 1
