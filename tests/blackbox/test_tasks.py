"""Background tasks, seen by the people who asked for them."""

from __future__ import annotations

import json
import re
import time

import trio

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import HANG, Thought, refuse, running, say, serving, until
from tests.blackbox.support.work import (
    Effects,
    Office,
    TaskView,
    act,
    answer,
    events,
    heard,
    log_of,
    rest,
    shell,
    task_id,
    unfinished,
)

STUBBORN = "trap '' TERM; setsid sh -c \"trap '' TERM; sleep 600\" & sleep 600 & sh -c \"trap '' TERM; sleep 600\""
"""Children that ignore TERM, one of them in a session of its own."""


def ask(question):
    return Call("ask_user", {"question": question})


def notify(message):
    return Call("notify", {"message": message})


# ------------------------------------------------------------------ what comes back


async def test_what_a_task_comes_of_stands_in_its_log_and_is_shown_also_after_a_restart(workplace, name):
    book = Office({"count": [answer("there are two")]})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        id = await client.say("do count")
        assert await heard(client) == ["completed: there are two"]
        number = task_id(daemon.home, "count")
        cause = f"message {client.channel['type']}:{client.channel['channelId']} {id}"
        first = log_of(daemon.home, "count")[0]
        assert (first["event"], first["data"]["cause"]) == ("TASK_CREATED", cause)
        assert cause in (await daemon.command("tasks", "show", number)).out
        assert json.loads((await daemon.command("tasks", "show", number, "--json")).out)["cause"] == cause
        assert f"Cause: {cause}" in await client.ask(f"/tasks show {number}")
        await daemon.stop()
        assert cause in (await daemon.command("tasks", "show", number)).out
        await daemon.start()
        assert cause in (await daemon.command("tasks", "show", number)).out


async def test_a_result_is_told_where_it_was_asked_for(workplace, name):
    book = Office({"count": [act(shell("echo one two")), answer("there are two")]})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        await client.say("do count")
        assert await heard(client) == ["completed: there are two"]
        assert events(daemon.home, "count")[:6] == [
            "TASK_CREATED",
            "REASON_DONE",
            "TOOL_CALL_COMPLETED",
            "REASON_DONE",
            "STEP_COMPLETED",
            "TASK_COMPLETED",
        ]
        assert "one two" in book.of("count")[1].last
        assert "reply" not in book.thinking[0].tools
        assert "shell_exec" not in book.asked[0].tools
        assert len(book.asked) == 2, "no more thoughts than one about the message and one about the result"
        await until(lambda: unfinished(daemon.home) == [], "an empty pending.json")


async def test_what_a_task_does_is_not_in_the_session(workplace, name):
    book = Office({"secret": [act(shell("echo deep inside")), answer("done")]})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        await client.say("do secret")
        await heard(client)
        assert "deep inside" not in json.dumps(workplace.session())


async def test_news_before_the_end(workplace, name):
    """notify() twice in one thought, then once more: all of it reaches the Main Agent in order, while the task goes on.

    Notifications that wait together are answered together, so not each has a reply of its own.
    """
    news = ["update: one", "update: two", "update: three", "completed: all found"]
    book = Office({"dig": [act(notify("one"), notify("two")), act(notify("three")), answer("all found")]})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        await client.say("do dig")
        said = await heard(client)
        while said[-1] != news[-1]:
            said += await heard(client)
        assert said == [text for text in news if text in said]
        notices = [
            line["content"] for line in workplace.session() if line.get("metadata", {}).get("type") == "task_notify"
        ]
        mine = [text for text in notices if task_id(daemon.home, "dig") in text]
        assert len(mine) == 4
        assert all(word in text for word, text in zip(("one", "two", "three", "all found"), mine, strict=True))


async def test_a_question_its_answer_and_the_result(workplace, name):
    book = Office({"paint": [act(ask("Which colour?")), lambda view: answer(f"painted {view.last}")]})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        await client.say("do paint")
        what, _, question = (await heard(client))[0].partition(": ")
        asking, _, question = question.partition(" ")
        assert (what, question) == ("needs information", "Which colour?")
        assert (await client.call("tasks.show", taskId=asking))["state"] == "suspended"
        await client.say(f"tell {asking} blue")
        assert await heard(client) == ["completed: painted blue"]


async def test_a_finished_task_goes_on_with_what_it_knows(workplace, name):
    book = Office({"begin": [answer("begun"), lambda view: answer(f"{view.said('assistant')[0]}, then {view.last}")]})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        await client.say("do begin")
        assert await heard(client) == ["completed: begun"]
        await client.say(f"tell {task_id(daemon.home, 'begin')} more")
        assert await heard(client) == ["completed: begun, then more"]


async def test_a_task_whose_model_refuses_fails_and_that_is_told(workplace, name):
    book = Office({"hopeless": refuse(400, "no such model")})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        await client.say("do hopeless")
        (told,) = await heard(client)
        assert told.startswith("failed: ")
        assert "no such model" in told
        assert events(daemon.home, "hopeless") == ["TASK_CREATED", "TASK_FAILED"]


async def test_several_at_once(workplace, name):
    """Two think at the same time; of the three model calls that there may be, one is kept for people."""
    book = Office({f"job {n}": answer(f"result {n}") for n in range(2)})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        book.hold_tasks()
        await client.say("\n".join(f"do job {n}" for n in range(2)))
        for n in range(2):
            await book.thought(f"job {n}")
        assert await client.ask("are you there?") == "echo: are you there?"
        book.release()
        assert sorted(await heard(client, 2)) == [f"completed: result {n}" for n in range(2)]


async def test_each_channel_gets_its_own_result(workplace, name):
    """Also when another channel was the last to speak, and the results come the other way round."""
    book = Office({"mine": [act(shell("true")), answer("yours, anna")], "his": answer("yours, bo")})
    async with (
        workplace.play(book, name) as daemon,
        daemon.client("web", f"{name}-anna", replyTo="thread:7") as anna,
        daemon.client("web", f"{name}-bo") as bo,
    ):
        book.hold(only=lambda view: getattr(view, "job", "") == "mine")
        await anna.say("do mine", channel={"type": "web", "channelId": f"{name}-anna", "replyTo": "thread:7"})
        await book.thought("mine")
        await bo.say("do his")
        assert await heard(bo) == ["completed: yours, bo"]
        book.release()
        frame = await anna.reply()
        assert frame["text"] == "completed: yours, anna"
        assert frame["channel"]["replyTo"] == "thread:7"
        assert [frame["text"] for frame in bo.seen if frame["type"] == "reply"] == ["completed: yours, bo"]


async def test_the_main_agent_looks_at_its_tasks(workplace, name):
    """task_list, task_status and task_replay give information, which leads to another thought."""

    def look(view):
        calls = [("task_list", {}), ("task_status", {"taskId": known["id"]}), ("task_replay", {"taskId": known["id"]})]
        return Thought("let me see", tuple(Call(tool, arguments) for tool, arguments in calls))

    known = {}
    book = Office({"walk": answer("walked")}, {"what was that?": [look, lambda view: say("\n".join(view.results))]})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        await client.say("do walk")
        await heard(client)
        known["id"] = task_id(daemon.home, "walk")
        listed, status, replayed = (await client.ask("what was that?")).splitlines()
        assert {"taskId": known["id"], "status": "completed"}.items() <= json.loads(listed)[-1].items()
        assert json.loads(status)["result"] == "walked"
        assert [message["role"] for message in json.loads(replayed)] == ["user", "assistant"]


async def test_a_spawn_that_is_refused_is_thought_about_again(workplace, name):
    """An unknown type and an empty input are errors that the Main Agent sees, and tells the truth about."""

    def wrong(view):
        calls = [{"description": "d", "input": "x", "type": "wizard"}, {"description": "d", "input": " "}, {"input": 7}]
        return Thought("", tuple(Call("spawn_subagent", each) for each in calls))

    book = Office({}, {"go": [wrong, lambda view: say("\n".join(view.results))]})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        unknown, empty, shape = (await client.ask("go")).splitlines()
        assert "wizard" in unknown
        assert "general" in unknown
        assert "empty" in empty
        assert "description" in shape
        assert book.thinking == []


async def test_the_kind_of_a_task_says_what_it_may_use(workplace, name):
    """explore only reads: it is not shown what changes things, and is refused if it calls that anyway."""

    explore = Call("spawn_subagent", {"description": "d", "input": "look", "type": "explore"})
    book = Office(
        {"look": [act(shell("touch /dev/null")), lambda view: answer(view.last)]}, {"go": [Thought("", (explore,))]}
    )
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        await client.say("go")
        (told,) = await heard(client)
        assert "shell_exec: it is not available to tasks of type explore" in told
        assert "shell_exec" not in book.thinking[0].tools
        assert "read_file" in book.thinking[0].tools


async def test_the_same_with_claude(tmp_path):
    """Anthropic's wire format: thinking, several calls at once, news, a question, a result; every request is valid."""
    thinking = ({"type": "thinking", "thinking": "I need tools.", "signature": "c2lnbmF0dXJl"},)
    book = Office(
        {
            "trip": [
                Thought("", (shell("echo a"), Call("current_time"), notify("packing")), thinking=thinking),
                Thought("", (ask("Where to?"),), thinking=thinking),
                lambda view: answer(f"gone to {view.last}"),
            ]
        }
    )
    book.hold(only=lambda view: isinstance(view, TaskView) and view.thoughts == 1)  # the question waits for the news
    async with serving(tmp_path, book, wire="anthropic") as daemon, daemon.client() as client:
        await client.say("do trip")
        assert await heard(client) == ["update: packing"]
        book.release()
        (question,) = await heard(client)
        await client.say(f"tell {question.split()[2]} Rome")
        assert await heard(client) == ["completed: gone to Rome"]
        assert thinking[0] in book.of("trip")[1].messages[1]["content"], "thinking must come back unchanged"
        await rest(daemon)


# ------------------------------------------------------------------ ending work


async def test_stop_ends_the_thought_and_the_tasks_of_this_channel(workplace, name, tmp_path):
    """With all that they have started, however stubborn; and says so. Another channel's task goes on."""
    work = Effects(tmp_path)
    jobs = {"dig": act(work.shell("dug", STUBBORN)), "other": [act(shell("true")), answer("fine")]}
    async with (
        workplace.play(book := Office(jobs, {"think for ever": HANG}), name) as daemon,
        daemon.client() as client,
        daemon.client("web", f"{name}-bo") as bo,
    ):
        book.hold(only=lambda view: isinstance(view, TaskView) and view.job == "other")
        await bo.say("do other")
        await book.thought("other")
        await client.say("do dig")
        await work.happened("dug")
        await until(lambda: len(work.processes()) >= 5, "all of the stubborn family")
        await client.say("think for ever")
        await book.reached(3)
        await client.say("/stop")
        stopped = await client.reply()
        assert work.processes() == [], "the answer says that they have ended"
        assert re.search(r"- task \d+: dig \(ran ", stopped["text"])
        assert "other" not in stopped["text"]
        book.release()
        told = await client.reply()
        assert told["text"] == "stopped: stopped by the user (web)"
        assert await heard(bo) == ["completed: fine"]
        assert events(daemon.home, "dig") == ["TASK_CREATED", "REASON_DONE", "TASK_FAILED"]


async def test_a_known_secret_is_not_shown_to_the_model_by_a_command(workplace, name):
    """The gateway's token lies in the home, out of its reach; here it has found a copy of it."""
    book = Office({"look": [act(shell("cat copy-of-token")), lambda view: answer(view.last)]})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        (daemon.home / "workspace/copy-of-token").write_text(daemon.token)
        await client.say("do look")
        (text,) = await heard(client)
        assert daemon.token not in text
        assert '"exitCode":0,"stdout":"***' in text


PRINTED = """Cookie: session=Zx81kQ
password = 'swordfish'
mysql --password=swordfish
account SK0123456789abcdef0123456789abcdef
PGPASS=swordfish
DATABASE_URL=postgres://app:swordfish@db/main
Authorization: Digest username="u", response="0123456789abcdef0123456789abcdef"
"""


async def test_what_looks_like_a_secret_is_not_shown_to_the_model_by_a_command(workplace, name):
    """Nobody has told the agent these. A token that it has made is one, too: it keeps only a hash."""
    book = Office({"look": [act(shell("cat printed")), lambda view: answer(view.last)]})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        token = (await daemon.command("token", "add", "printed")).out.strip()
        (daemon.home / "workspace/printed").write_text(f"{PRINTED}{token}\n")
        await client.say("do look")
        (text,) = await heard(client)
        assert text.count("***") == 8, text
        for secret in ("Zx81kQ", "swordfish", "0123456789abcdef", token.removeprefix("pgs_")):
            assert secret not in text
        assert (await daemon.command("token", "revoke", "printed")).code == 0


async def test_a_cancelled_task_ends_with_all_it_has_started(workplace, name, tmp_path):
    work = Effects(tmp_path)
    async with (
        workplace.play(Office({"dig": act(work.shell("dug", STUBBORN))}), name) as daemon,
        daemon.client() as client,
    ):
        await client.say("do dig")
        await work.happened("dug")
        result = await daemon.command("tasks", "cancel", task_id(daemon.home, "dig"))
        assert work.processes() == []
        assert result.code == 0, result.err
        assert "at shell_exec" in result.out
        (told,) = await heard(client)
        assert told.startswith("stopped: stopped by")
        again = await daemon.command("tasks", "cancel", task_id(daemon.home, "dig"))
        assert again.code == 1
        assert "not running" in again.err


async def test_a_graceful_stop_lets_a_step_finish(tmp_path):
    """What was done is in the log when the process has ended, and is not done again."""
    work = Effects(tmp_path)
    book = Office({"slow": [act(work.shell("once", "sleep 0.5; echo slept")), answer("done")]})
    async with serving(tmp_path, book, {"tasks.recovery": "resume"}) as daemon:
        async with daemon.client() as client:
            await client.say("do slow")
            await work.happened("once")
        assert await daemon.stop() == 0
        assert events(daemon.home, "slow") == ["TASK_CREATED", "REASON_DONE", "TOOL_CALL_COMPLETED"]
        await daemon.start()
        async with daemon.client() as client:
            assert await heard(client) == ["completed: done"]
        assert work.count("once") == 1
        await rest(daemon)


# ------------------------------------------------------------------ the command line


async def test_tasks_on_the_command_line(tmp_path):
    """list, show, replay, resume: of the running daemon, and from the logs where none runs; for people and as JSON."""
    book = Office({"paint the shed": [act(ask("Which colour?")), lambda view: answer(f"painted {view.last}")]})
    async with serving(tmp_path, book) as daemon:
        assert (await daemon.command("tasks", "list")).out == "No tasks.\n"
        async with daemon.client() as client:
            await client.say("do paint the shed")
            await heard(client)
            found = task_id(daemon.home, "paint the shed")
            shown = await daemon.command("tasks", "show", found)
            assert "suspended" in shown.out
            assert "Which colour?" in shown.out
            resumed = await daemon.command("tasks", "resume", found, "blue")
            assert resumed.code == 0, resumed.err
            assert await heard(client) == ["completed: painted blue"]
        await rest(daemon)
        up = await _look(daemon, found)
        daemon.kill()
        down = await _look(daemon, found, for_people=("list",))
        assert _without_doing(up) == _without_doing(down)
        assert "painted blue" in down["show"]["result"]
        assert [message["role"] for message in down["replay"]["messages"]][:3] == ["user", "assistant", "user"]
        refused = await daemon.command("tasks", "cancel", found)
        assert (refused.code, refused.out) == (1, ""), "that needs a daemon"


async def _look(daemon, found, for_people=("list", "show", "replay")):
    """What the commands say, by command."""
    results = {}

    async def run(*arguments):
        results[" ".join(arguments)] = await daemon.command("tasks", *arguments)

    today = time.strftime("%Y-%m-%d", time.gmtime())
    async with trio.open_nursery() as nursery:
        for what in (["list", "--date", today], ["show", found], ["replay", found]):
            nursery.start_soon(run, *what, "--json")
        for what in for_people:
            nursery.start_soon(run, what, *([] if what == "list" else [found]))
        nursery.start_soon(run, "show", "0123456789abcdef")
    missing = results.pop("show 0123456789abcdef")
    assert missing.code == 1
    assert "0123456789abcdef" in missing.err
    for what, result in results.items():
        assert result.code == 0, result.err
        assert "paint the shed" in result.out, what
    return {what.split()[0]: json.loads(result.out) for what, result in results.items() if what.endswith("--json")}


def _without_doing(seen):
    return json.loads(json.dumps(seen).replace('"doing": "reflecting"', '"doing": ""'))


# ------------------------------------------------------------------ without a key


async def test_the_stand_in_delegates_too(tmp_path):
    """A newcomer without a key sees it all: a task, its tools, its result, a failure."""
    async with running(tmp_path / "home") as daemon, daemon.client() as client:
        (daemon.home / "workspace").mkdir(exist_ok=True)
        (daemon.home / "workspace" / "notes.txt").write_text("buy milk\n")
        for asked, expected in {
            "run `echo hello from a task`": "hello from a task",
            "run cat notes.txt": "buy milk",
            "run cat missing.txt": "No such file",
        }.items():
            await client.say(asked)
            note, result = await heard(client, 2)
            assert "background task" in note
            assert expected in result
        assert "run: echo hello" in (await daemon.command("tasks", "list")).out
        sent = await daemon.command("send", "run `echo by send`")
        assert sent.code == 0
        await rest(daemon)
