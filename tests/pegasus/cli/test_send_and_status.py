"""`send`, `status` and `tree` against a gateway on loopback; the agent's part is played by the test."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from base64 import b64decode
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import click
import pytest
import trio
import trio.testing

from actors import Child, Reply, open_supervisor, supervisor
from actors.text import TreeView
from pegasus.app.control_plane import actor_json
from pegasus.cli import main
from pegasus.cli.control import describe_refusal, show
from pegasus.cli.send import run_send
from pegasus.cli.status import _write, actor_info, run_status, run_tree, status_text, tree_text
from pegasus.cli.work import run_show
from pegasus.client import Refused
from pegasus.gateway import BadParams
from pegasus.host import Home
from pegasus.messages import ChannelInfo
from pegasus.settings import Settings
from tests.pegasus.gateway.world import TOKEN, world

SEND = ChannelInfo("cli", "send")
STATUS = {
    "agent": "Pegasus",
    "version": "0.1.0",
    "uptime": 75.0,
    "model": "offline/stand-in",
    "thinking": {"about": "the weather", "seconds": 2.5},
    "waiting": 2,
    "tasks": {"working": 2, "waiting": 0, "suspended": 1},
    "handled": 17,
    "sessionEntries": 1234,
}
LEAF = {"state": "up", "restarts": 0, "depth": 1, "capacity": 64, "highWater": 3, "handled": 1200}
TREE = {
    "name": "pegasus",
    "state": "up",
    "children": [
        {"name": "journal", **LEAF, "message": "Accept", "messageAge": 0.25},
        {
            "name": "channels",
            "state": "up",
            "children": [
                {"name": "sms", **LEAF, "state": "waiting", "restarts": 2, "dead": 1, "waitingAt": "sms.py:3 in f"}
            ],
        },
    ],
}


async def status(caller, params):
    return STATUS


async def tree(caller, params):
    return TREE


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    home.daemon.parent.mkdir()
    home.token.write_text(TOKEN)
    return home


@asynccontextmanager
async def daemon(home):
    async with world(methods={"status": status, "tree": tree}) as gate:
        write_daemon(home, gate.url)
        yield gate


def write_daemon(home, url, pid=None):
    info = {"pid": pid or os.getpid(), "ws": url, "http": None, "version": "0.1.0", "startedAt": 0}
    home.daemon.write_text(json.dumps(info))


async def run(command, home, **options):
    with trio.fail_after(20):
        return await trio.to_thread.run_sync(partial(command, home, Settings(), **options))


async def turn(gate, *texts, after=1):
    """The agent's part: think, say something, be done."""
    await gate.journal.until(lambda: len(gate.journal.accepted) >= after)
    await gate.typing(SEND, True)
    said = [await gate.say(SEND, text) for text in texts]
    await gate.typing(SEND, False, after=said[-1].seq if said else 0)


async def test_send_prints_all_replies_of_the_turn(home, nursery, capsys):
    async with daemon(home) as gate:
        nursery.start_soon(turn, gate, "one", "two\nlines")
        assert await run(run_send, home, text="hi", channel="send", wait=15) == 0
        assert capsys.readouterr() == ("one\ntwo\nlines\n", "")
        ((message, _),) = gate.journal.accepted
        assert (message.text, message.channel) == ("hi", SEND)
        await gate.journal.until(lambda: gate.journal.acks and gate.journal.acks[-1] == (SEND.address, 2))


async def test_files_and_what_is_piped_in_go_along(home, nursery, tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("otters")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Zeilen ä\n".encode())))
    files = (str(tmp_path / "notes.txt"), "-", "-")
    async with daemon(home) as gate:
        nursery.start_soon(turn, gate, "one")
        assert await run(run_send, home, text="sum up", channel="send", wait=15, files=files) == 0
        ((message, _),) = gate.journal.accepted
    assert message.text == "sum up"
    assert [(file.name, b64decode(file.data).decode()) for file in message.media] == [
        ("notes.txt", "otters"),
        ("stdin", "Zeilen ä\n"),
    ]


@pytest.mark.parametrize("files", [(), ("-",)])
async def test_what_was_piped_in_and_not_sent_is_told(home, nursery, capsys, monkeypatch, files):
    read, write = os.pipe()
    os.write(write, b"a report")
    os.close(write)
    async with daemon(home) as gate:
        nursery.start_soon(turn, gate, "one")
        with os.fdopen(read) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            assert await run(run_send, home, text="sum up", channel="send", wait=15, files=files) == 0
            assert os.read(read, 10) == (b"" if files else b"a report")
    assert capsys.readouterr().err == (
        "" if files else "pegasus: what was piped in was not sent; --file - sends it along\n"
    )


@pytest.mark.parametrize(
    ("files", "text", "words"),
    [
        (("missing.txt",), "x", "missing.txt cannot be read"),
        (("-",), "-", "stdin is TEXT or a file, not both"),
        (("-",), "x", "stdin has nothing"),
        (("/",), "x", "/ is a folder"),
    ],
)
async def test_a_file_that_cannot_be_sent_is_told_and_nothing_is_sent(home, monkeypatch, files, text, words):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    async with daemon(home) as gate:
        with pytest.raises(click.BadParameter, match=re.escape(words)):
            await run(run_send, home, text=text, channel="send", wait=15, files=files)
        assert gate.journal.accepted == []


async def test_bytes_that_are_no_utf_8_are_sent_as_replacement_characters(home, nursery, capsys):
    """The interpreter reads such bytes of the command line and of stdin as half surrogate pairs."""
    async with daemon(home) as gate:
        nursery.start_soon(turn, gate, "one")
        assert await run(run_send, home, text="gr\udcff\udcdfe", channel="send", wait=15) == 0
        ((message, _),) = gate.journal.accepted
        assert message.text == "gr\ufffd\ufffde"


async def test_a_text_that_is_too_large_is_refused_with_its_size_and_the_limit(home, capsys):
    async with world(max_frame_bytes=2048) as gate:
        write_daemon(home, gate.url)
        assert await run(run_send, home, text="x" * 5000, channel="send", wait=15) == 1
    reason = "found a frame of more than 2048 bytes, allowed: gateway.max_frame_bytes = 2048"
    assert capsys.readouterr() == ("", f"pegasus: the message is too large, 5,258 bytes: {reason}\n")


async def test_send_ends_with_a_silent_turn(home, nursery, capsys):
    async with daemon(home) as gate:
        nursery.start_soon(turn, gate)
        with trio.fail_after(10):
            assert await run(run_send, home, text="hi", channel="send", wait=3600) == 1
        out, err = capsys.readouterr()
        assert (out, err) == ("", "pegasus: the agent has finished with the message and said nothing\n")


@pytest.mark.parametrize("until_done", [False, True])
async def test_send_promises_no_reply_to_a_message_that_was_not_accepted(home, capsys, until_done):
    async with daemon(home) as gate:
        gate.journal.hold = True
        assert await run(run_send, home, text="hi", channel="send", wait=0.3, until_done=until_done) == 1
        assert capsys.readouterr().err == "pegasus: the agent has not accepted the message within 0.3 s\n"
        gate.journal.release()


async def test_send_waits_for_a_reply_and_gives_up_in_time(home, capsys):
    async with daemon(home):
        assert await run(run_send, home, text="hi", channel="send", wait=0.3) == 1
        out, err = capsys.readouterr()
        assert (out, err) == ("", "pegasus: no reply within 0.3 s; it will wait in the conversation cli:send\n")


async def test_escape_sequences_in_replies_are_not_obeyed(home, nursery, capsys):
    async with daemon(home) as gate:
        gate.journal.post(SEND, "late \x1b[2J")
        nursery.start_soon(turn, gate, "red \x1b[31m and \u202e")
        assert await run(run_send, home, text="hi", channel="send", wait=15) == 0
        assert capsys.readouterr() == ("red ␛[31m and \n", "late ␛[2J\n")


async def test_escape_sequences_in_the_status_are_not_obeyed(home, capsys, monkeypatch):
    monkeypatch.setitem(STATUS, "thinking", {"about": "\x1b]0;pwned\x07", "seconds": 1})
    async with daemon(home):
        assert await run(run_status, home, as_json=False) == 0
    assert "“␛]0;pwned␇”" in capsys.readouterr().out


@pytest.mark.parametrize(("command", "options"), [(run_status, {}), (run_show, {"task_id": "t1"})])
async def test_a_command_that_only_asks_is_no_channel_for_the_agent(home, command, options):
    async with daemon(home) as gate:
        await run(command, home, as_json=False, **options)
        assert gate.journal.presence == []


async def test_send_of_a_command_ends_with_its_answer(home, nursery, capsys):
    async with daemon(home) as gate:

        @nursery.start_soon
        async def answer():
            await gate.journal.until(lambda: gate.journal.accepted)
            await gate.say(SEND, "I am idle.")

        assert await run(run_send, home, text="/status", channel="send", wait=15) == 0
        assert capsys.readouterr().out == "I am idle.\n"


async def test_what_an_earlier_send_did_not_wait_for_goes_to_stderr(home, nursery, capsys):
    async with daemon(home) as gate:
        gate.journal.post(SEND, "late")
        nursery.start_soon(turn, gate, "mine")
        assert await run(run_send, home, text="hi", channel="send", wait=15) == 0
        assert capsys.readouterr() == ("mine\n", "late\n")
        await gate.journal.until(lambda: gate.journal.acks and gate.journal.acks[-1] == (SEND.address, 2))


async def test_send_survives_a_gateway_that_comes_back(home, nursery, capsys):
    async with daemon(home) as gate:

        @nursery.start_soon
        async def crash_then_answer():
            await gate.journal.until(lambda: gate.journal.accepted)
            await gate.crash()
            await gate.journal.until(lambda: len(gate.journal.presence) >= 3)
            await turn(gate, "after all")

        assert await run(run_send, home, text="hi", channel="send", wait=15) == 0
        assert capsys.readouterr().out == "after all\n"


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (run_send, {"text": "hi", "channel": "send", "wait": 1}),
        (run_status, {"as_json": False}),
        (run_tree, {"as_json": False, "watch": False}),
    ],
)
async def test_without_a_daemon_there_is_one_clear_line(command, options, home, capsys):
    assert await run(command, home, **options) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"pegasus: no agent is running in {home}; start one with: pegasus run\n")


@pytest.mark.parametrize(
    ("command", "options"),
    [(run_send, {"text": "hi", "channel": "send", "wait": 5}), (run_status, {"as_json": False})],
)
async def test_a_wrong_token_is_one_clear_line(command, options, home, capsys):
    async with daemon(home):
        home.token.write_text("another")
        assert await run(command, home, **options) == 1
        out, err = capsys.readouterr()
        assert (out, err.count("\n"), "wrong token" in err) == ("", 1, True)


async def test_a_daemon_that_does_not_answer_is_one_clear_line(home, capsys):
    async with daemon(home):
        pass
    assert await run(run_send, home, text="hi", channel="send", wait=5) == 1
    assert "no agent answers at ws://127.0.0.1" in capsys.readouterr().err


async def refuse(caller, params):
    raise BadParams(f"taskId: there is no task {params['taskId']!r}")


async def test_a_refusal_speaks_of_the_task_and_not_of_frames(home, capsys):
    async with world(methods={"tasks.show": refuse}) as gate:
        write_daemon(home, gate.url)
        assert await run(run_show, home, task_id="x", as_json=False) == 1
    assert capsys.readouterr() == ("", "pegasus: there is no task 'x'\n")


async def test_an_older_daemon_is_named_as_the_reason(home, capsys):
    async with world(methods={}) as gate:
        write_daemon(home, gate.url)
        assert await run(run_show, home, task_id="x", as_json=False) == 1
    assert "the running daemon is of another version" in capsys.readouterr().err


# ------------------------------------------------------------------ status and tree


async def test_status_for_people(home, capsys):
    async with daemon(home):
        assert await run(run_status, home, as_json=False) == 0
    assert capsys.readouterr().out == (
        "Agent    Pegasus 0.1.0, up for 1.2 min\n"
        "Model    offline/stand-in\n"
        "Doing    thinking about “the weather” for 2.5 s\n"
        "Waiting  2 messages\n"
        "Tasks    2 at work, 1 waiting for an answer\n"
        "Handled  17 messages since the start\n"
        "Session  1,234 entries\n"
    )


async def test_status_and_tree_for_programs(home, capsys):
    async with daemon(home):
        assert await run(run_status, home, as_json=True) == 0
        assert await run(run_tree, home, as_json=True, watch=False) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert (json.loads(first), json.loads(second)) == (STATUS, TREE)


async def test_tree_for_people(home, capsys, monkeypatch):
    """Where it is not shown in a terminal there is one line for each actor, for grep."""
    monkeypatch.delenv("COLUMNS", raising=False)
    async with daemon(home):
        assert await run(run_tree, home, as_json=False, watch=False) == 0
    assert capsys.readouterr().out == (
        "ACTOR        STATE    MAILBOX  MOST  HANDLED  DEAD  RESTARTS\n"
        "pegasus      up\n"
        "├─ journal   up          1/64     3    1,200                  Accept for 0.2 s\n"
        "└─ channels  up\n"
        "   └─ sms    waiting     1/64     3    1,200     1         2  at sms.py:3 in f\n"
    )


def test_a_tree_on_a_terminal_has_its_own_colours_only_and_fits(capsys, monkeypatch):
    """What an actor says is neutralised before it is coloured. Colours take no room."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    said = {"name": "a\x1b[31m\u202eb" + "c" * 80, "state": "up", "children": [{"name": "x", **LEAF}]}
    monkeypatch.setattr("pegasus.cli.control.read_daemon", lambda home: None)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    text = tree_text(said)
    show(Home(Path()), Settings(), "tree", {}, tree_text, lambda: said, is_neutral=True)
    assert capsys.readouterr().out == f"{text}\n"
    assert "\x1b[90mACTOR\x1b[0m" in text
    assert "␛[31m" in text
    assert "\x1b[31m" not in text
    assert "\u202e" not in text
    assert max(len(re.sub("\x1b\\[[0-9;]*m", "", line)) for line in text.splitlines()) <= 60
    _write(text, screen=True)
    assert "\x1b[90mACTOR\x1b[0m" in capsys.readouterr().out


async def test_an_idle_agent_does_nothing():
    idle = {"working": 0, "waiting": 0, "suspended": 1}
    assert "Doing    nothing\n" in status_text(STATUS | {"thinking": None, "tasks": idle})


async def test_an_agent_with_running_tasks_is_not_idle():
    running = {
        "channel": {"type": "web", "channelId": "c"},
        "taskId": "t1",
        "number": 3,
        "description": "find papers",
        "state": "ACTING",
        "tool": "web_search",
        "step": 2,
        "elapsedMs": 12_000,
    }
    text = status_text(STATUS | {"thinking": None, "running": [running], "speech": "direct", "window": 8192})
    assert "Model    offline/stand-in (direct; window 8,192 tokens)\n" in text
    assert "Doing    waiting for 2 background tasks\n" in text
    assert "         3  web_search, step 2, 12 s: find papers\n" in text


@pytest.mark.parametrize(
    ("state", "description", "shown"),
    [
        ("full", "bubblewrap", "full: bubblewrap"),
        ("partial", "Landlock 7; partial: commands can still signal", "Landlock 7; partial: commands can still signal"),
    ],
)
def test_status_says_once_how_much_the_walls_stop(state, description, shown):
    assert f"\nWalls    {shown}" in status_text({**STATUS, "sandbox": {"state": state, "description": description}})


def test_status_tells_of_code_that_was_changed():
    assert "\nCode     was changed on disk" in status_text({**STATUS, "codeChanged": True})
    assert "Code" not in status_text({**STATUS, "codeChanged": False})


def test_status_tells_what_models_use_and_which_fail():
    used = {"calls": 2, "promptTokens": 1200, "completionTokens": 30, "cacheReadTokens": 1000, "cost": 0.25}
    budget = {"what": "today", "cost": 1.0, "costUsed": 0.25, "tokens": 0, "tokensUsed": 1230}
    failing = {"model": "lab/x", "breaker": "open", "failures": 3, "retryIn": 12.0, "why": "lab/x: no connection"}
    usage = {"today": {**used, "unpricedCalls": 0, "estimatedCalls": 0}, "budgets": [budget]}
    assert status_text({**STATUS, "usage": usage, "failingModels": [failing]}).splitlines()[-3:] == [
        "Today    2 calls, 1,200 tokens in (1,000 from the cache), 30 out, $0.25",
        "Budgets  today: $0.25 of $1.00 used",
        "Failing  lab/x (lab/x: no connection)",
    ]


def test_a_tree_of_one():
    assert tree_text({"name": "pegasus", "state": "up"}) == "ACTOR    STATE\npegasus  up"


async def test_what_a_daemon_says_of_its_tree_is_read_as_it_was_meant():
    async def idle(inbox):
        async for _ in inbox:
            pass

    children = [Child("a", idle, shutdown=3), Child("s", supervisor([Child("b", idle)]))]
    async with open_supervisor(children, name="root") as root:
        answer = await root.ref("a").request(Question)
        await trio.testing.wait_all_tasks_blocked()
        said = json.loads(json.dumps(actor_json(root.tree(), {})))
        assert attrs.asdict(actor_info(said)) == attrs.asdict(rounded(root.tree()))
        assert actor_info({**said, "unheardOf": 1, "depth": None}).depth == 0
        del answer


@attrs.frozen
class Question:
    reply: Reply[str]


def rounded(info):
    numbers = {key: round(value, 3) for key, value in attrs.asdict(info).items() if isinstance(value, float)}
    return attrs.evolve(info, **numbers, children=tuple(map(rounded, info.children)))


def test_the_picture_in_the_docs_is_what_one_sees():
    page = (Path(__file__).parents[3] / "docs" / "user" / "operations.md").read_text()
    box = {"state": "up", "capacity": 64}
    agent = {
        "message": "Next",
        "messageAge": 12.0,
        "waitingAt": "pegasus/models/providers/http_model.py:214 in HttpModel._attempt",
    }
    sms = {"state": "waiting", "due": 3.8, "depth": 1, "highWater": 3, "handled": 40, "dead": 1, "restarts": 2}
    said = {
        "name": "pegasus",
        "state": "up",
        "shutdownBudget": 28,
        "children": [
            {"name": "journal", **box, "highWater": 9, "handled": 1204},
            {
                "name": "main-agent",
                "state": "up",
                "children": [{"name": "global", **box, "depth": 3, "highWater": 4, "handled": 17, **agent}],
            },
            {
                "name": "channels",
                "state": "up",
                "children": [
                    {"name": "gateway", **box, "highWater": 2, "handled": 93},
                    {"name": "sms", **box, **sms},
                ],
            },
        ],
    }
    assert f"```text\n{TreeView(actor_info(said))}\n```" in page


def test_a_watched_screen_is_written_over_and_never_more_than_full(capsys, monkeypatch):
    monkeypatch.setenv("LINES", "4")
    _write("a\nb\nc", screen=True)
    assert capsys.readouterr().out == "\x1b[Ha\x1b[K\nb\x1b[K\nc\x1b[K\n\x1b[J"
    _write("a\nb\nc\nd\ne", screen=True, first=True)
    assert capsys.readouterr().out == "\x1b[H\x1b[Ja\x1b[K\nb\x1b[K\n… 3 more lines\x1b[K\n\x1b[J"


async def test_watching_the_tree_goes_on_until_ctrl_c(home):
    """The real command, because Ctrl-C is for processes."""
    async with daemon(home):
        command = [sys.executable, "-m", "pegasus", "--home", str(home), "tree", "--watch", "--json"]
        process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        seen = b""
        with trio.fail_after(20):
            while seen.count(b"\n") < 2:
                seen += await process.stdout.receive_some()
            process.send_signal(signal.SIGINT)
            err = b"".join([chunk async for chunk in process.stderr])
            assert (await process.wait(), err) == (0, b"")
    assert [json.loads(line) for line in seen.splitlines()[:2]] == [TREE, TREE]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("tasks.show: taskId: there is no task 'x'", "there is no task 'x'"),
        (
            "cron.add: prompt: found nothing, allowed: what is to be done",
            "prompt: found nothing, allowed: what is to be done",
        ),
        ("cron.add: at: found 'x', which is not in the future", "at: found 'x', which is not in the future"),
    ],
)
def test_a_refusal_names_the_value_that_it_is_about_unless_its_text_does(message, told):
    method = message.partition(": ")[0]
    assert describe_refusal(Refused("bad_frame", message), method, ("taskId", "prompt")) == told


# ------------------------------------------------------------------ a settings file with mistakes


async def command(home, *args):
    with trio.fail_after(20):
        return await trio.to_thread.run_sync(main, [*args, "--home", str(home.path)])


@pytest.mark.parametrize("content", ["[agent\n", "[agent]\nnonsense = 1\n"])
async def test_a_running_agent_is_reached_although_its_settings_file_has_mistakes(home, nursery, capsys, content):
    home.config.write_text(content)
    async with daemon(home) as gate:
        assert await command(home, "status") == 0
        out, err = capsys.readouterr()
        assert "Model    offline/stand-in" in out
        assert str(home.config) in err
        assert err.count("the running agent goes on with the settings it has") == 1
        nursery.start_soon(turn, gate, "one")
        assert await command(home, "send", "hi") == 0
        assert capsys.readouterr().out == "one\n"


async def test_without_an_agent_mistakes_in_the_settings_file_end_the_command(home, capsys):
    home.config.write_text("[agent\n")
    assert await command(home, "status") == 78
    assert "goes on" not in capsys.readouterr().err


async def test_a_mistake_on_the_command_line_ends_the_command_also_while_an_agent_runs(home, capsys):
    async with daemon(home):
        assert await command(home, "status", "--set", "agent.nonsense=1") == 78


async def test_doctor_names_the_running_agent_beside_mistakes_in_the_settings_file(home, capsys):
    home.config.write_text("[agent\n")
    async with daemon(home) as gate:
        assert await command(home, "doctor") == 1
        out = capsys.readouterr().out
        assert f"an agent runs (process {os.getpid()}) and answers at {gate.url}" in out
        assert "the running agent goes on with the settings it has" in out
