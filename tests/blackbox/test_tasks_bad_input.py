"""What models, tools and disks should not do to tasks: a clear error, nobody else is hurt, nothing is left behind."""

from __future__ import annotations

import json

import pytest
import trio

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import Thought, until
from tests.blackbox.support.serving import standing
from tests.blackbox.support.work import (
    Effects,
    Office,
    Workplace,
    act,
    answer,
    events,
    heard,
    idle,
    later,
    log_of,
    log_path,
    open_source,
    rest,
    shell,
    task_id,
    tasks_folder,
    under_way,
)

pytestmark = pytest.mark.usefixtures("own_programs")  # its memory is measured

ROUNDS = 4


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """With little patience for tools and for models that come to no end, and places for many."""
    patience = {"tools.timeout": 2, "tasks.max_iterations": ROUNDS}
    places = {"tasks.max_active": 10, "models.max_concurrent_calls": 10}
    settings = {**patience, **places, "tools.allowed_hosts": ["127.0.0.1"], "tasks.recovery": "resume"}
    place = Workplace(tmp_path_factory.mktemp("impatient"), settings)
    yield from standing(place.daemon, place, finish=place.finish)


async def outcome(place, name, thoughts):
    """What is told of a task with these thoughts, and its results by the time it ends; a task beside it is not hurt."""
    seen = []

    def watched(page):
        def look(view):
            seen[:] = view.results
            return page(view) if callable(page) else page

        return look

    bad = list(map(watched, thoughts)) if isinstance(thoughts, list) else watched(thoughts)
    good = [act(Call("current_time")), answer("not hurt")]
    async with place.play(Office({"bad": bad, "good": good}), name) as daemon, daemon.client() as client:
        await client.say("do bad\ndo good")
        told = set(await heard(client, 2))
        assert "completed: not hurt" in told
        (other,) = told - {"completed: not hurt"}
        return other, seen


def then(text):
    return [answer(text)]


# ------------------------------------------------------------------ tools


async def test_a_command_that_floods(place, name, tmp_path):
    """A gigabyte of output: it is ended, a little of it is kept, and the daemon does not grow by it."""
    work = Effects(tmp_path)
    flood = act(work.shell("flood", "yes 'a line of a flood that nobody can read' | head -c 1000000000"))
    told, (result,) = await outcome(place, name, [flood, *then("done")])
    assert told == "completed: done"
    assert '"truncated":true' in result
    assert len(result) < 30_000
    assert work.processes() == []
    assert place.daemon.peak_memory() < 130 << 20
    assert sum(len(json.dumps(line)) for line in log_of(place.daemon.home, "bad")) < 100_000


async def test_a_command_that_hangs_with_children_that_ignore_term(place, name, tmp_path):
    work = Effects(tmp_path)
    hang = act(work.shell("hung", "trap '' TERM; setsid sh -c \"trap '' TERM; sleep 600\" & sleep 600"))
    told, (result,) = await outcome(place, name, [hang, *then("done")])
    assert told == "completed: done"
    assert '"exitCode":124' in result or "it took longer than 2 s" in result
    assert work.processes() == []


async def test_a_page_that_never_comes(place, name):
    async with open_source() as source:
        told, (result,) = await outcome(
            place, name, [act(Call("http_get", {"url": source.url})), *then("went on without it")]
        )
        assert source.requests == 1
    assert told == "completed: went on without it"
    assert result.startswith("Error: http_get")


async def test_writing_outside(place, name, tmp_path):
    """By an absolute path, by dots, and through a link that a command made."""
    out = tmp_path / "outside"
    out.mkdir()
    paths = [str(out / "a"), "../../b", "link/c"]
    thoughts = [
        act(shell(f"ln -s {out} link")),
        act(*(Call("write_file", {"path": path, "content": "x"}) for path in paths)),
        *then("done"),
    ]
    told, results = await outcome(place, name, thoughts)
    assert told == "completed: done"
    assert len(results) == 4
    assert all(result.startswith("Error: ") and "allowed" in result.lower() for result in results[1:]), results
    assert list(out.iterdir()) == []
    assert not (place.daemon.home / "b").exists()


async def test_secrets_of_the_daemon_are_not_for_commands(place, name):
    """Neither its environment nor the provider's key, which stands in its settings, is handed on."""
    told, (result,) = await outcome(place, name, [act(shell("env")), *then("done")])
    assert told == "completed: done"
    assert "sk-test" not in result
    assert place.daemon.token not in result


# ------------------------------------------------------------------ models


async def test_a_model_that_never_comes_to_an_end(place, name, tmp_path):
    """The same call for ever: after the rounds there may be it fails, and says so; it was carried out three times."""
    work = Effects(tmp_path)
    told, _ = await outcome(place, name, act(work.shell("again")))
    assert told == f"failed: the task did not come to an end within {ROUNDS} rounds of thinking"
    assert work.count("again") == 3


async def test_fifty_calls_at_once(place, name, tmp_path):
    """All are carried out, and their results are in the order of the calls."""
    work = Effects(tmp_path)
    calls = [Call("encode", {"data": f"{n}", "encoding": "hex"}) for n in range(25)]
    calls += [Call("current_time", {"timezone": f"No/Zone{n}"}) for n in range(24)]
    told, results = await outcome(place, name, [act(*calls, work.shell("last")), *then("done")])
    assert told == "completed: done"
    assert len(results) == 50
    assert [f"No/Zone{n}" in results[25 + n] for n in range(24)] == [True] * 24
    assert work.count("last") == 1


async def test_calls_that_cannot_be_made(place, name):
    """Each gets an error that says what would be right, in order; those beside them are carried out."""
    calls = (
        Call("teleport", {"to": "Mars"}),
        Call("reply", {"text": "hello", "channelId": "c1"}),
        Call("spawn_subagent", {"description": "d", "input": "more of me"}),
        Call("read_file", {"file": "notes.txt"}),
        Call("shell_exec", {"command": ["ls"]}),
        Call("shell_exec", '{"command": "ls'),
        Call("ask_user", {}),
        Call("notify", {"message": " "}),
        Call("shell_exec", {"command": "echo fine"}),
    )
    told, results = await outcome(place, name, [act(*calls), *then("done")])
    assert told == "completed: done"
    assert len(results) == len(calls)
    for result, word in zip(
        results,
        ["teleport", "reply", "spawn_subagent", "path", "command", "JSON", "question", "message", "fine"],
        strict=True,
    ):
        assert word in result
        assert result.startswith("Error: ") == (word != "fine"), result


async def test_an_answer_without_words(place, name):
    told, _ = await outcome(place, name, Thought(""))
    assert told.startswith(("completed: ", "failed: "))


# ------------------------------------------------------------------ files


@pytest.mark.files("files that were damaged by hand")
@pytest.mark.parametrize("wrong", ["half a list", "an empty file", "no list"])
async def test_damaged_lists(place, name, wrong):
    """pending.json can be had from the index and the logs: every unfinished task goes on, and none is told twice."""
    killed = trio.Event()
    book = Office({"old": answer("done before"), **{f"job {n}": later(killed, answer(f"done {n}")) for n in range(3)}})
    async with place.play(book, name) as daemon:
        async with daemon.client() as client:
            await client.say("do old")
            await client.reply()
            await client.say("\n".join(f"do job {n}" for n in range(3)))
            for n in range(3):
                await book.thought(f"job {n}")
            await under_way(daemon.home, *(f"job {n}" for n in range(3)))
            daemon.kill()
        known = task_id(daemon.home, "job 0")
        pending = tasks_folder(daemon.home) / "pending.json"
        if wrong == "half a list":
            pending.write_bytes(pending.read_bytes()[:30])
        elif wrong == "an empty file":
            pending.write_bytes(b"")
        else:
            pending.unlink()
        assert "job 0" in (await daemon.command("tasks", "show", known)).out
        killed.set()
        await daemon.start()
        await rest(daemon)
        async with daemon.client(lastSeq=0) as client:
            texts = [frame["text"] for frame in await client.replies(client.welcome["seq"])]
            assert sorted(texts) == [
                "completed: done 0",
                "completed: done 1",
                "completed: done 2",
                "completed: done before",
            ]
            assert (await client.call("tasks.show", taskId=known))["result"] == "done 0"
        assert [events(daemon.home, f"job {n}")[-1] for n in range(3)] == ["TASK_COMPLETED"] * 3
        await idle(daemon)


def _garble(line):
    return b"\x00\xff" + line[2:9] + b"\n"


DAMAGE = {
    "a newer event": lambda lines: [*lines, b'{"ts":1,"event":"TASK_DREAMED","taskId":"x","data":{}}\n'],
    "a torn end": lambda lines: [*lines[:-1], lines[-1][:40]],
    "no end": lambda lines: lines[:-1],
    "a bad line in between": lambda lines: [lines[0], _garble(lines[1]), *lines[2:]],
    "no beginning": lambda lines: [_garble(lines[0]), *lines[1:]],
    "nothing": lambda lines: [],
    "noise": lambda lines: [bytes(range(256)) * 20],
    "nothing wrong": lambda lines: lines,
}
LOST = ("no beginning", "nothing", "noise")
"""Where nobody can know any more whom to tell."""


@pytest.mark.files("files that were damaged by hand")
async def test_damaged_logs(place, name, tmp_path):
    """And no index: each task goes on as far as its log can be understood; what is lost is only what was damaged."""
    work = Effects(tmp_path)
    killed = trio.Event()
    jobs = {
        damage: [act(work.shell(f"effect{n}")), later(killed, answer("went on"))] for n, damage in enumerate(DAMAGE)
    }
    async with place.play(book := Office(jobs), name) as daemon:
        for damage in DAMAGE:
            async with daemon.client("web", f"{name}-{damage}") as client:
                await client.say(f"do {damage}")
            await book.thought(damage, 2)
            await until(lambda done=damage: "TOOL_CALL_COMPLETED" in events(daemon.home, done), "the result")
        ids = {damage: task_id(daemon.home, damage) for damage in DAMAGE}
        daemon.kill()
        for damage, harm in DAMAGE.items():
            path = log_path(daemon.home, ids[damage])
            path.write_bytes(b"".join(harm(path.read_bytes().splitlines(keepends=True))))
        (tasks_folder(daemon.home) / "index.jsonl").unlink()
        killed.set()
        await daemon.start()
        await rest(daemon)
        for n, damage in enumerate(DAMAGE):
            async with daemon.client("web", f"{name}-{damage}", lastSeq=0) as client:
                texts = [frame["text"] for frame in await client.replies(client.welcome["seq"])]
            if damage not in LOST:
                assert texts == ["completed: went on"], damage
            assert work.count(f"effect{n}") == 1 + (damage == "a bad line in between"), damage
        for damage, known in ids.items():
            shown = await daemon.command("tasks", "show", known)
            assert shown.code in (0, 1), (damage, shown)
            assert "Traceback" not in shown.err
