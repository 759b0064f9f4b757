"""A client that `openapi-python-client` generates from `/openapi.json`, which then does what the web page can.

Each answer must be parsed into the class of a success. An operation that the generator cannot read is a failure, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import httpx
from benchmarks.provider import provider
from benchmarks.workplace import TOKEN, Workplace

from judging.programs import install_python, run_program
from judging.verdict import Judge, Verdict

VERSION: Final = "0.29.1"
SECONDS: Final = 120
DRIVE: Final = '''
import sys
from importlib import import_module

from pegasus_client import AuthenticatedClient, models

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], timeout=60)


def ask(operation, *args, **fields):
    """Do an operation, and return its parsed answer. One line for each."""
    try:
        answer = import_module(f"pegasus_client.api.default.{operation}").sync_detailed(*args, client=client, **fields)
        found = answer.parsed
        if answer.status_code >= 300 or found is None or isinstance(found, models.Error):
            raise ValueError(f"{answer.status_code} {answer.content[:200]!r}")
    except Exception as error:
        print(f"failed {operation}: {error!r}")
        raise SystemExit(1)
    print(f"passed {operation}")
    return found


channel = models.NamedChannel(channel_id="main", type_="cli")
message = models.MessageBody(text="hello", id="m-1", channel=channel)
assert ask("post_api_messages", body=message, wait=30).replies[0].text
ask("get_api_replies", channel_id="main", type_="cli")
ask("post_api_interrupt", body=models.InterruptBody(channel=channel))
for name in ("status", "tree", "usage", "channels", "mcp", "skills", "tasks", "approvals", "approvals_granted"):
    ask(f"get_api_{name}")
page = "facts/user.md"
ask("put_api_memory_path", page, body=models.FileBody(content="# User\\n\\n- likes tea\\n"))
assert "tea" in ask("get_api_memory_path", page).content
assert page in [file.path for file in ask("get_api_memory").files]
ask("post_api_memory_undo", body=models.UndoBody(n=ask("get_api_memory_log").changes[0].n))
file = ask("get_api_sessions").sessions[0].file
ask("get_api_sessions_file", file)
key = ask("get_api_conversations").conversations[0].key
said = ask("get_api_conversations_key_messages", key).messages
assert [each.text for each in said if each.from_ == "user"] == ["hello"]
ask("post_api_conversations_key_rename", key, body=models.NameJson(name="Plans"))
ask("post_api_conversations_key_edit", key, body=models.EditBody(id="m-1", text="hello again"))
ask("post_api_conversations_key_retry", key)
job = models.JobBody(schedule=models.JobSchedule(every=900), prompt="look", channel="cli:main")
id = ask("post_api_cron", body=job).id
assert id in [each.id for each in ask("get_api_cron").jobs]
for change in ("pause", "resume", "run"):
    ask(f"post_api_cron_id_{change}", id)
ask("delete_api_cron_id", id)
ask("get_v1_models")
completion = models.CompletionBody(messages=[models.ChatMessage(role="user", content="hi")])
assert ask("post_v1_chat_completions", body=completion).choices[0].message.content
assert ask("post_v1_responses", body=models.ResponseBody(input_="hi")).status == "completed"
ask("post_api_login", body=models.TokenBody(token=sys.argv[2]))
ask("post_api_logout")
'''
"""Run in the environment of the generator: does what the page can, and prints a line for each operation."""


def run(place: Workplace) -> Iterator[Verdict]:
    programs = install_python(place.folder / "generator", f"openapi-python-client=={VERSION}")
    with provider(place.log) as model:
        home = place.home(provider="openai", base_url=f"{model.root}/v1")
        with place.daemon(home) as daemon:
            description = place.folder / "openapi.json"
            description.write_bytes(httpx.get(f"{daemon.http}/openapi.json").content)
            made = run_program(
                [
                    str(programs / "openapi-python-client"),
                    *("generate", "--path", str(description), "--meta", "none"),
                    *("--output-path", str(place.folder / "pegasus_client")),
                ],
                seconds=SECONDS,
                folder=place.folder,
            )
            drive = [str(programs / "python"), "-c", DRIVE, daemon.http, TOKEN]
            ran = run_program(drive, seconds=SECONDS, folder=place.folder)
    # The one answer that it cannot read is a sound.
    unread = [each for each in re.findall(r"WARNING parsing (.+?) within", made.stdout) if "/audio/" not in each]
    lines = ran.stdout.splitlines()
    failed = [line for line in lines if line.startswith("failed")]
    if ran.returncode and not failed:
        failed.append(ran.stderr.strip() or f"exit code {ran.returncode}")
    problems = [*(f"not read by the generator: {each}" for each in unread), *failed]
    passed = sum(line.startswith("passed") for line in lines)
    yield Verdict("generated client", passed, len(problems), details="\n".join(problems))


JUDGE: Final = Judge("api-client", "OpenAPI", f"PyPI openapi-python-client {VERSION}", run)
