"""A client that is generated from `/openapi.json` by a generator of others, and then does everything that the web page can."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import trio

import pegasus.web
from tests.blackbox.support import serving
from tests.blackbox.support.mcp_settings import server
from tests.blackbox.support.waiting import until_async
from tests.blackbox.support.work import Office, act, answer, shell
from tests.blackbox.test_pairing import by, code_for

SETTINGS = {
    "http.enabled": True,
    "http.port": 0,
    "channels.matrix.access": "pairing",
    "policy.rules": [{"tool": "shell_exec", "decision": "ask"}],
    **server("lab"),
}
CHANNEL = {"type": "cli", "channelId": "main"}
CLIENT = "pegasus_client"
STATIC = Path(pegasus.web.__file__).parent / "static"
MANY = 30
"""Seconds that the agent may need for what the client looks at."""
OPERATIONS = {
    "approvals.answer": "post_api_approvals_id",
    "approvals.granted": "get_api_approvals_granted",
    "approvals.list": "get_api_approvals",
    "approvals.revoke": "delete_api_approvals_granted_id",
    "channels.list": "get_api_channels",
    "completions": "get_api_completions",
    "config.reload": "post_api_settings_reload",
    "config.set": "post_api_settings",
    "config.show": "get_api_settings",
    "cron.add": "post_api_cron",
    "cron.list": "get_api_cron",
    "cron.pause": "post_api_cron_id_pause",
    "cron.remove": "delete_api_cron_id",
    "cron.resume": "post_api_cron_id_resume",
    "cron.run": "post_api_cron_id_run",
    "history": "get_api_conversations_key_messages",
    "history.edit": "post_api_conversations_key_edit",
    "history.list": "get_api_conversations",
    "history.rename": "post_api_conversations_key_rename",
    "history.retry": "post_api_conversations_key_retry",
    "history.show": "get_api_conversations_key_messages",
    "interrupt": "post_api_interrupt",
    "log.tail": "get_api_log",
    "markdown": "post_api_markdown",
    "mcp.list": "get_api_mcp",
    "mcp.tools": "get_api_mcp_name",
    "mcp.trust": "post_api_mcp_name",
    "conversations.list": "get_api_addresses",
    "memory.list": "get_api_memory",
    "memory.log": "get_api_memory_log",
    "memory.search": "get_api_memory_search",
    "memory.show": "get_api_memory_path",
    "memory.undo": "post_api_memory_undo",
    "memory.write": "put_api_memory_path",
    "nodes.list": "get_api_nodes",
    "pair.approve": "post_api_people",
    "pair.list": "get_api_people",
    "pair.revoke": "delete_api_people_who",
    "sessions.list": "get_api_sessions",
    "sessions.show": "get_api_sessions_file",
    "skills.list": "get_api_skills",
    "status": "get_api_status",
    "tasks.cancel": "post_api_tasks_id_cancel",
    "tasks.continue": "post_api_tasks_id_continue",
    "tasks.list": "get_api_tasks",
    "tasks.log": "get_api_tasks_id_log",
    "tasks.resume": "post_api_tasks_id_resume",
    "tasks.show": "get_api_tasks_id",
    "tasks.suspend": "post_api_tasks_id_suspend",
    "tree": "get_api_tree",
    "usage": "get_api_usage",
}
"""Operation of the client that does what a method does, for each method that the page calls."""
DRIVE = '''
import sys
from importlib import import_module

from pegasus_client import AuthenticatedClient, models

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], timeout=60)


def ask(operation, *args, **fields):
    """Do an operation, and return its answer as the class of a success."""
    module = import_module(f"pegasus_client.api.default.{operation}")
    answer = module.sync_detailed(*args, client=client, **fields)
    found = answer.parsed
    if answer.status_code >= 300 or found is None or isinstance(found, models.Error):
        raise SystemExit(f"{operation}: {answer.status_code} {answer.content[:300]!r}")
    print(operation)
    return found


channel = models.NamedChannel(channel_id="main", type_="cli")
for name in ("status", "tree", "usage", "channels", "nodes", "mcp", "skills", "completions", "log", "addresses"):
    ask(f"get_api_{name}")
assert ask("get_api_replies", channel_id="main", type_="cli").replies
sorted_tools = ask("post_api_mcp_name", "lab", body=models.SortingBody(trust="hints"))
assert ask("get_api_mcp_name", "lab").trust == sorted_tools.trust == "hints"

[code] = ask("get_api_people").codes
ask("delete_api_people_who", ask("post_api_people", body=models.PairingBody(code=code.code)).who)

[approval] = ask("get_api_approvals").approvals
allow = models.DecisionBodyDecision.ALLOW
over = next(task for task in ask("get_api_tasks").tasks if task.task_id != approval.task_id)
assert ask("get_api_tasks_id", over.task_id).number == over.number
assert ask("get_api_tasks_id_log", str(over.number)).events
ask("post_api_tasks_id_resume", over.task_id, body=models.InputBody(input_="again"))
for change in ("suspend", "continue", "cancel"):
    ask(f"post_api_tasks_id_{change}", over.task_id)
ask("post_api_approvals_id", approval.id, body=models.DecisionBody(allow, models.DecisionBodyScopeType1.ARGUMENTS))
[grant] = ask("get_api_approvals_granted").granted
ask("delete_api_approvals_granted_id", grant.id)
job = models.JobBody(schedule=models.JobSchedule(every=900), prompt="look", channel="cli:main")
id = ask("post_api_cron", body=job).id
assert id in [each.id for each in ask("get_api_cron").jobs]
for change in ("pause", "resume", "run"):
    ask(f"post_api_cron_id_{change}", id)
ask("delete_api_cron_id", id)

page = "facts/user.md"
ask("put_api_memory_path", page, body=models.FileBody(content="# User\\n\\n- likes tea\\n"))
assert "tea" in ask("get_api_memory_path", page).content
assert page in [file.path for file in ask("get_api_memory").files]
assert ask("get_api_memory_search", query="tea").results
ask("post_api_memory_undo", body=models.UndoBody(n=ask("get_api_memory_log").changes[0].n))

tables = {table.name: table for table in ask("get_api_settings").sections}
[limit] = [key for key in tables["agent"].keys if key.key == "max_replies"]
change = models.SettingBody(path=["agent", limit.key], was=limit.value, value="7")
assert ask("post_api_settings", body=change).value == "7"
ask("post_api_settings_reload")
assert "<em>" in ask("post_api_markdown", body=models.MarkdownBody(texts=["*hi*"])).html[0]

ask("get_api_sessions_file", ask("get_api_sessions").sessions[0].file)
key = ask("get_api_conversations").conversations[0].key
said = [each for each in ask("get_api_conversations_key_messages", key).messages if each.from_ == "user"]
ask("post_api_conversations_key_rename", key, body=models.NameJson(name="Plans"))
ask("post_api_conversations_key_retry", key)
ask("post_api_conversations_key_edit", key, body=models.EditBody(id=said[-1].id, text="hello again"))
ask("post_api_interrupt", body=models.InterruptBody(channel=channel))
ask("post_api_messages", body=models.MessageBody(text="hello", channel=channel), wait=0)
ask("post_api_logout")
'''
"""Run with the client beside it: does what the page can, and prints the name of each operation."""


async def test_a_client_that_is_generated_from_the_description_does_everything_that_the_page_can(tmp_path):
    book = Office({"work": [act(shell("true")), answer("done")], "think": answer("thought")})
    async with serving(tmp_path, book, SETTINGS) as daemon, daemon.bridge("matrix") as bridge:
        await code_for(bridge, by("@ann:example.org", "!room", "matrix"))
        token = {"authorization": f"Bearer {daemon.token}"}
        async with httpx.AsyncClient(base_url=daemon.at.http, timeout=MANY, headers=token) as http:
            for text in ("hello", "do think\ndo work"):
                await http.post("/api/messages?wait=20", json={"text": text, "channel": CHANNEL})

            async def is_ready():
                tasks = (await http.get("/api/tasks")).json()["tasks"]
                return sorted(task["state"] for task in tasks) == ["completed", "suspended"]

            await until_async(is_ready, "a task that is over, and one that waits for an owner", MANY)
            (tmp_path / "openapi.json").write_bytes((await http.get("/openapi.json")).content)
        (tmp_path / "settings.yml").write_text("post_hooks: []\n")
        generate = "openapi_python_client generate --meta none --path openapi.json --config settings.yml --output-path"
        run = partial(trio.run_process, cwd=tmp_path, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
        made = await run([sys.executable, "-m", *generate.split(), CLIENT])
        unread = re.findall(r"WARNING parsing (.+?) within", made.stdout.decode())
        assert [each for each in unread if "/audio/" not in each] == [], "the one answer that it cannot read is a sound"
        book.hold()  # a task that the client resumes is at work as long as it likes
        ran = await run([sys.executable, "-c", DRIVE, daemon.at.http, daemon.token])
        book.release()
    assert ran.returncode == 0, ran.stdout.decode()
    asked = set(ran.stdout.decode().split())
    assert {OPERATIONS[method] for method in methods_of_the_page()} <= asked


def methods_of_the_page():
    """The methods that the scripts of the page name, and those of jobs, whose names they put together."""
    scripts = "".join(file.read_text() for file in (STATIC / "js").rglob("*.js"))
    groups = {method.partition(".")[0] for method in OPERATIONS}
    named = {
        text
        for text in re.findall(r"""["'`]([a-z]+(?:\.[a-z]+)?)["'`]""", scripts)
        if text in OPERATIONS or (text.partition(".")[0] in groups and "." in text)
    }
    assert {"status", "config.set", "tasks.suspend"} <= named
    return named | {method for method in OPERATIONS if method.startswith("cron.")}
