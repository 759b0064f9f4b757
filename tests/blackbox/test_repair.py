"""Sessions made by hand: whatever is in the file, it is well-formed again after the start, in place, on disk and for the provider."""

from __future__ import annotations

import json

import pytest

from tests.blackbox.support import Book, open_calls, running, serving, until
from tests.blackbox.support.files import session, session_path, write_session

CANCELLED = {"cancelled": True, "reason": "process restarted"}


def user(text, ts=1):
    return {"ts": ts, "role": "user", "content": f"[channel: web | id: c1]\n{text}"}


def thought(*calls, content="", ts=2):
    line = {
        "ts": ts,
        "role": "assistant",
        "toolCalls": [{"id": id, "name": name, "arguments": {}} for id, name in calls],
    }
    return {**line, "content": content} if content else line


def result(id, content="{}", ts=3):
    return {"ts": ts, "role": "tool", "toolCallId": id, "content": content}


STAND_IN = {"models.default": "offline/stand-in"}


async def mended(tmp_path, entries):
    """Start on a home with these entries; the session afterwards, as it is on disk."""
    write_session(tmp_path / "home", entries)
    async with running(tmp_path / "home", STAND_IN) as daemon:
        await until(lambda: open_calls(session(daemon.home)) == [], "a repaired session")
        return session(daemon.home)


async def repaired(tmp_path, entries):
    """The same, and the request that the next message leads to."""
    write_session(tmp_path / "home", entries)
    async with serving(tmp_path, book := Book()) as daemon, daemon.client() as client:
        # What became of delegated work is asked after the start, so the repair may come a moment later.
        await until(lambda: open_calls(session(daemon.home)) == [], "a repaired session")
        on_disk = session(daemon.home)
        assert await client.ask("next") == "echo: next"
    return on_disk, book.asked[-1]


async def test_a_good_session_is_left_alone(tmp_path):
    entries = [user("a"), thought(("c1", "current_time")), result("c1"), thought(content="ok")]
    write_session(tmp_path / "home", entries)
    before = session_path(tmp_path / "home").read_bytes()
    async with running(tmp_path / "home", STAND_IN) as daemon:
        assert session_path(daemon.home).read_bytes() == before


async def test_open_calls_are_marked_as_cancelled_and_written_back(tmp_path):
    """Seed 000: spawn and reply were called, then the process died."""
    on_disk, request = await repaired(tmp_path, [user("查天气"), thought(("a", "spawn_subagent"), ("b", "reply"))])
    assert [line["toolCallId"] for line in on_disk[2:4]] == ["a", "b"]
    assert [json.loads(line["content"]) for line in on_disk[2:4]] == [CANCELLED, CANCELLED]
    assert open_calls(on_disk) == []
    assert "process restarted" in json.dumps(request.body)


async def test_some_calls_are_open(tmp_path):
    entries = [user("a"), thought(("a", "current_time"), ("b", "current_time"), ("c", "reply")), result("b", '"b"')]
    on_disk = await mended(tmp_path, entries)
    assert [line.get("toolCallId") for line in on_disk[2:5]] == ["a", "b", "c"]
    assert on_disk[3]["content"] == '"b"'


async def test_open_calls_far_back_are_repaired_in_place(tmp_path):
    """Not only the last turn, and not at the end of the file."""
    entries = [
        user("a"),
        thought(("a", "current_time")),
        user("b"),
        thought(("b", "current_time")),
        result("b"),
        user("c"),
    ]
    on_disk = await mended(tmp_path, entries)
    assert [line["role"] for line in on_disk[:7]] == ["user", "assistant", "tool", "user", "assistant", "tool", "user"]
    assert json.loads(on_disk[2]["content"]) == CANCELLED


async def test_a_result_after_another_message_is_moved_behind_its_call(tmp_path):
    entries = [user("a"), thought(("a", "current_time")), user("b"), result("a", '"late"')]
    on_disk = await mended(tmp_path, entries)
    assert (on_disk[2]["toolCallId"], on_disk[2]["content"]) == ("a", '"late"')
    assert on_disk[3]["role"] == "user"


async def test_a_second_result_and_one_without_a_call_are_dropped(tmp_path):
    entries = [user("a"), thought(("a", "current_time")), result("a", '"1"'), result("a", '"2"'), result("ghost")]
    on_disk, request = await repaired(tmp_path, entries)
    assert [line["content"] for line in on_disk if line["role"] == "tool"] == ['"1"']
    assert "ghost" not in json.dumps(request.body)


async def test_equal_call_ids_are_told_apart(tmp_path):
    entries = [
        user("a"),
        thought(("x", "current_time")),
        result("x", '"1"'),
        thought(("x", "current_time")),
        result("x", '"2"'),
    ]
    on_disk = await mended(tmp_path, entries)
    assert open_calls(on_disk) == []
    assert [line["content"] for line in on_disk if line["role"] == "tool"] == ['"1"', '"2"']


@pytest.mark.files("torn and bad lines, which a move into a database sets aside")
@pytest.mark.parametrize(
    "torn",
    [
        b'{"ts":5,"role":"user","content":"half a',
        b'{"ts":5,"role":"user","content":"whole but without a newline"}',
        b"\xf0\x9f",
        b"\0" * 4096,
        b"{",
    ],
    ids=["half", "no newline", "half a character", "zeros", "a brace"],
)
async def test_a_torn_last_line_is_set_aside_and_reported(tmp_path, torn):
    write_session(tmp_path / "home", [user("kept"), thought(content="fine"), torn])
    async with running(tmp_path / "home", STAND_IN) as daemon:
        on_disk = session(daemon.home)
        assert [line.get("content") for line in on_disk] == ["[channel: web | id: c1]\nkept", "fine"]
        await until(lambda: "current.jsonl" in daemon.stderr, "a log line about the torn line")
        kept = [path.read_bytes() for path in (daemon.home / "data").rglob("*current.jsonl*")]
        assert any(torn in content for content in kept), "what was torn is nowhere"


BAD_LINES = {
    "no JSON": b"this is no JSON\n",
    "a list": b"[1,2]\n",
    "null": b"null\n",
    "unknown role": b'{"ts":1,"role":"wizard","content":"x"}\n',
    "no role": b'{"ts":1,"content":"x"}\n',
    "content a number": b'{"ts":1,"role":"user","content":5}\n',
    "toolCalls a string": b'{"ts":1,"role":"assistant","toolCalls":"x"}\n',
    "a call without a name": b'{"ts":1,"role":"assistant","toolCalls":[{"id":"q"}]}\n',
    "result without an id": b'{"ts":1,"role":"tool","content":"x"}\n',
    "not UTF-8": b'{"ts":1,"role":"user","content":"\xff\xfe"}\n',
    "zeros": b"\0" * 512 + b"\n",
    "deep": b"[" * 100_000 + b"\n",
    "two on one line": b'{"ts":1,"role":"user","content":"x"}{"ts":1,"role":"user","content":"y"}\n',
}


@pytest.mark.files("torn and bad lines, which a move into a database sets aside")
@pytest.mark.parametrize("kind", ["no JSON", "unknown role", "not UTF-8", "zeros", "deep", "two on one line"])
async def test_a_bad_line_never_hides_the_good_ones_around_it(tmp_path, kind):
    bad = BAD_LINES[kind]
    write_session(
        tmp_path / "home", [user("before"), thought(content="fine"), bad, user("after"), thought(content="good")]
    )
    async with running(tmp_path / "home", STAND_IN) as daemon:
        texts = [line["content"].rpartition("\n")[2] for line in session(daemon.home)]
        assert texts == ["before", "fine", "after", "good"]
        await until(lambda: "line 3" in daemon.stderr, "a log line that names the bad line")


async def test_many_bad_lines_and_the_model_still_knows_all_good_ones(tmp_path):
    entries = []
    for n, bad in enumerate(BAD_LINES.values()):
        entries += [bad, user(f"question {n}"), bad, thought(content=f"answer {n}"), bad]
    on_disk, request = await repaired(tmp_path, entries)
    assert len(on_disk) == 2 * len(BAD_LINES)
    for n in range(len(BAD_LINES)):
        assert f"question {n}" in request.user


async def test_empty_lines_and_crlf_are_no_problem(tmp_path):
    text = "\n\n".join(json.dumps(line) for line in (user("one"), thought(content="two"))) + "\r\n\n"
    _, request = await repaired(tmp_path, [text])
    assert "one" in request.user


async def test_unknown_keys_of_a_later_version_are_no_problem(tmp_path):
    _, request = await repaired(tmp_path, [{**user("one"), "mood": "good"}, thought(content="two")])
    assert "one" in request.user


@pytest.mark.parametrize(
    "entries",
    [
        [thought(content="I begin"), thought(content="and go on")],
        [thought(("a", "current_time")), result("a")],
        [
            {
                "ts": 1,
                "role": "system",
                "content": "a summary",
                "metadata": {"type": "compact", "previousSession": "x.jsonl"},
            }
        ],
        [
            user("a"),
            {"ts": 1, "role": "assistant"},
            user("b"),
            {"ts": 1, "role": "user", "content": ""},
            {"ts": 1, "role": "user"},
        ],
        [user("a"), thought(("a", "current_time")), {"ts": 1, "role": "tool", "toolCallId": "a"}],
        [user("a"), thought(("a" * 500, "no such tool!"), ("ü|", "current_time"), ("", "reply")), result("ü|")],
    ],
    ids=["assistant first", "call first", "a summary", "empty turns", "an empty result", "strange ids and names"],
)
async def test_the_provider_gets_a_valid_request_out_of(tmp_path, entries):
    """The provider checks every request as strictly as the real ones do, and `serving` fails the test if one is refused."""
    await repaired(tmp_path, entries)


async def test_repairing_twice_changes_nothing_more(tmp_path):
    write_session(tmp_path / "home", [user("a"), thought(("a", "reply")), b"bad\n", user("b"), b'{"torn'])
    async with running(tmp_path / "home", STAND_IN) as daemon:
        first = session_path(daemon.home).read_bytes()
        await daemon.restart()
        assert session_path(daemon.home).read_bytes() == first


async def test_a_reply_in_the_outbox_gets_its_true_result(tmp_path):
    """Killed after the reply was posted, before its result was in the session."""
    async with serving(tmp_path, book := Book()) as daemon:
        async with daemon.client() as client:
            await client.say("hello")
            await client.reply()
            daemon.kill()
        entries = session(daemon.home)
        until_call = [n for n, line in enumerate(entries) if line.get("toolCalls")][-1]
        write_session(daemon.home, entries[: until_call + 1])
        await daemon.start()
        [closing] = [line for line in session(daemon.home) if line["role"] == "tool"]
        assert "cancelled" not in closing["content"]
        assert json.loads(closing["content"])["seq"] == 1
        async with daemon.client(lastSeq=1) as client:
            assert (await client.ask("next"), client.seen[-1]["seq"]) == ("echo: next", 2)
        assert len(book.about("hello")) == 1


@pytest.mark.files("torn and bad lines, which a move into a database sets aside")
@pytest.mark.parametrize("log", ["inbox", "outbox"])
async def test_bad_lines_in_inbox_and_outbox_hide_nothing_around_them(tmp_path, log):
    async with serving(tmp_path, book := Book()) as daemon:
        async with daemon.client() as client:
            await client.say("one", id="m-1")
            await client.reply()
            book.hold()
            await client.say("two", id="m-2")
            daemon.kill()
        path = daemon.home / "data" / log / f"{log}.jsonl"
        spoilt = b"".join(
            line + bad for line in path.read_bytes().splitlines(keepends=True) for bad in BAD_LINES.values()
        )
        path.write_bytes(spoilt + b'{"torn')
        book.release()
        await daemon.start()
        async with daemon.client(lastSeq=0) as client:
            assert [(frame["seq"], frame["text"]) for frame in await client.replies(2)] == [
                (1, "echo: one"),
                (2, "echo: two"),
            ]
            await client.say("one", id="m-1")
            await client.say("three")
            assert (await client.reply())["text"] == "echo: three"
        assert len(book.about("one")) == 1
        await until(lambda: f"{log}.jsonl" in daemon.stderr, "a log line about the bad lines")


async def test_sessions_of_two_thousand_turns_load(tmp_path):
    entries = []
    for n in range(1000):
        entries += [
            user(f"question {n}"),
            thought((f"c{n}", "current_time")),
            result(f"c{n}"),
            thought(content=f"answer {n}"),
        ]
    _, request = await repaired(tmp_path, entries)
    assert "question 999" in request.user
    assert "question 0" in request.user
