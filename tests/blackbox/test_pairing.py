"""People who write and are not known yet: pairing by codes, allow lists, groups; over kill -9, races and look-alikes."""

from __future__ import annotations

import json
import re

import pytest
import trio

from tests.blackbox.support import Book, connect, serving
from tests.blackbox.support.files import session

PAIRING = {"channels.telegram.access": "pairing"}
CODE = re.compile(r"\b[ABCDEFGHJKLMNPQRSTUVWXYZ23456789]{8}\b")


def by(user, channel_id=None, kind="telegram"):
    return {"type": kind, "channelId": channel_id or user, "userId": user}


async def write(bridge, text, channel, **more):
    """Send a message that is not accepted; the error."""
    id = await bridge.post(text, channel=channel, **more)
    frame = await bridge.get("accepted", "error", id=id)
    assert (frame["type"], frame.get("code")) == ("error", "bad_frame"), frame
    return frame["message"]


async def code_for(bridge, channel):
    """Write as somebody unknown; the code of the answer."""
    await write(bridge, "let me in", channel)
    reply = await bridge.reply()
    await bridge.ack(reply)
    assert reply["channel"]["channelId"] == channel["channelId"]
    [code] = CODE.findall(reply["text"])
    return code


async def answered(bridge, text, channel):
    await bridge.say(text, channel=channel)
    reply = await bridge.reply()
    await bridge.ack(reply)
    return reply["text"]


async def assert_silent(bridge, daemon, known):
    """Nothing was sent to somebody else: the next reply is that to somebody known."""
    assert await answered(bridge, "fence", known) == "echo: fence"


async def test_somebody_unknown_gets_a_code_and_is_heard_when_the_owner_approves(tmp_path):
    async with serving(tmp_path, book := Book(), PAIRING) as daemon, daemon.bridge("telegram") as bridge:
        code = await code_for(bridge, by("42"))
        assert book.asked == []
        async with daemon.client("cli", "main") as owner:
            assert code in await owner.ask("/pair")
            assert "telegram:42 may write" in await owner.ask(f"/pair {code.lower()}")
        assert await answered(bridge, "hello", by("42")) == "echo: hello"
        assert await answered(bridge, "also here", by("42", "-100")) == "echo: also here"
        seen = json.dumps([view.body for view in book.asked]) + json.dumps(session(daemon.home))
        assert "let me in" not in seen
        for path in (daemon.home / "data").rglob("*"):
            assert not path.is_file() or b"let me in" not in path.read_bytes(), path


async def test_who_was_let_in_is_so_after_kill_9_and_the_answer_is_not_repeated(tmp_path):
    async with serving(tmp_path, Book(), PAIRING) as daemon:
        async with daemon.bridge("telegram") as bridge:
            first, second = await code_for(bridge, by("1")), await code_for(bridge, by("2"))
        assert (await daemon.command("pair", "approve", first)).code == 0
        await daemon.restart()
        async with daemon.bridge("telegram", lastSeqs={"1": 1, "2": 1}) as bridge:
            await write(bridge, "again", by("2"))
            await assert_silent(bridge, daemon, by("1"))
            assert "telegram:2" in (await daemon.command("pair", "approve", second)).out
            assert await answered(bridge, "hello", by("2")) == "echo: hello"


async def test_an_approval_that_was_confirmed_holds_after_kill_9(tmp_path):
    async with serving(tmp_path, Book(), PAIRING) as daemon:
        for user in ("1", "2", "3"):
            async with daemon.bridge("telegram") as bridge:
                code = await code_for(bridge, by(user))
                assert (await daemon.command("pair", "approve", code)).code == 0
                daemon.kill()
            await daemon.start()
            async with daemon.bridge(
                "telegram", lastSeqs={u: 1 if u == user else 2 for u in ("1", "2", "3")}
            ) as bridge:
                assert await answered(bridge, "hello", by(user)) == "echo: hello"


async def test_a_code_counts_once_also_for_two_approvals_at_the_same_time(tmp_path):
    async with serving(tmp_path, Book(), PAIRING) as daemon, daemon.bridge("telegram") as bridge:
        code = await code_for(bridge, by("1"))
        codes = []

        async def approve():
            codes.append((await daemon.command("pair", "approve", code)).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(approve)
            nursery.start_soon(approve)
        assert sorted(codes) == [0, 1]
        assert (await daemon.command("pair", "revoke", "telegram:1")).code == 0
        used = await daemon.command("pair", "approve", code)
        assert (used.code, "there is no open code" in used.err) == (1, True)
        assert await code_for(bridge, by("1")) != code


async def test_a_wrong_code_is_refused(tmp_path):
    async with (
        serving(tmp_path, Book(), PAIRING) as daemon,
        daemon.bridge("telegram") as bridge,
        daemon.client("cli", "main") as owner,
    ):
        real = await code_for(bridge, by("1"))
        for code in ("AAAAAAAA", "", "x", "7KQ2MX4P7KQ2MX4P", "\u0410" * 8, "../x"):
            done = await daemon.command("pair", "approve", code)
            assert (done.code, "Traceback" in done.err) == (1, False), code
            assert "may write" not in await owner.ask(f"/pair {code or 'nothing'}"), code
        assert (await daemon.command("pair", "approve", real)).code == 0


async def test_a_code_is_valid_for_an_hour(tmp_path):
    async with serving(tmp_path, Book(), PAIRING) as daemon:
        async with daemon.bridge("telegram") as bridge:
            code = await code_for(bridge, by("1"))
        daemon.kill()
        path = daemon.home / "data" / "access.json"
        stored = json.loads(path.read_text())
        stored["codes"][0] |= {"made": stored["codes"][0]["made"] - 3_601_000, "asked": 0}
        path.write_text(json.dumps(stored))
        assert (await daemon.command("pair", "approve", code)).code == 1
        await daemon.start()
        assert (await daemon.command("pair", "approve", code)).code == 1
        async with daemon.bridge("telegram", lastSeqs={"1": 1}) as bridge:
            assert await code_for(bridge, by("1")) != code


async def test_the_answer_comes_again_after_ten_minutes_with_the_same_code(tmp_path):
    async with serving(tmp_path, Book(), PAIRING) as daemon:
        async with daemon.bridge("telegram") as bridge:
            code = await code_for(bridge, by("1"))
        daemon.kill()
        path = daemon.home / "data" / "access.json"
        stored = json.loads(path.read_text())
        stored["codes"][0] |= {
            "made": stored["codes"][0]["made"] - 700_000,
            "asked": stored["codes"][0]["asked"] - 700_000,
        }
        path.write_text(json.dumps(stored))
        await daemon.start()
        async with daemon.bridge("telegram", lastSeqs={"1": 1}) as bridge:
            assert await code_for(bridge, by("1")) == code


async def test_a_channel_type_has_three_open_codes_at_most(tmp_path):
    settings = {**PAIRING, "channels.sms.access": "pairing"}
    async with (
        serving(tmp_path, Book(), settings) as daemon,
        daemon.bridge("telegram") as bridge,
        daemon.bridge("sms") as sms,
    ):
        codes = [await code_for(bridge, by(str(n))) for n in range(3)]
        assert len(set(codes)) == 3
        for n in range(3, 40):
            await write(bridge, "let me in", by(str(n)))
        await code_for(sms, by("+1", kind="sms"))
        assert (await daemon.command("pair", "approve", codes[0])).code == 0
        await assert_silent(bridge, daemon, by("0"))
        await code_for(bridge, by("39"))


@pytest.mark.parametrize("users", [("аnn", "ANN", "Ann"), ("ann ", "ann.", "a nn")])  # there may be three open codes
async def test_an_id_that_looks_alike_is_somebody_else(tmp_path, users):
    settings = {**PAIRING, "channels.telegram.allow_from": ["ann"]}
    async with serving(tmp_path, book := Book(), settings) as daemon, daemon.bridge("telegram") as bridge:
        for user in users:
            await code_for(bridge, by(user))
            assert book.asked == [], user
        assert await answered(bridge, "hello", by("ann")) == "echo: hello"


async def test_an_id_with_invisible_characters_is_refused(tmp_path):
    settings = {**PAIRING, "channels.telegram.allow_from": ["ann"]}
    async with serving(tmp_path, book := Book(), settings) as daemon, daemon.bridge("telegram") as bridge:
        for user in ("ann\u200b", "\uff41nn", "an\u0301n", "ann\ufe0f"):
            await bridge.send({"type": "message", "id": "m", "text": "hi", "channel": by(user, "1")})
            await bridge.error("bad_frame")
        assert await answered(bridge, "hello", by("ann")) == "echo: hello"
        assert book.asked == book.about("hello")


async def test_with_an_allow_list_nobody_unknown_is_answered(tmp_path):
    settings = {"channels.telegram.access": "allow_list", "channels.telegram.allow_from": ["1", 2]}
    daemon_settings = {**settings}
    async with serving(tmp_path, book := Book(), daemon_settings) as daemon, daemon.bridge("telegram") as bridge:
        assert "allow_from" in await write(bridge, "let me in", by("3"))
        assert await answered(bridge, "hello", by("1")) == "echo: hello"
        assert await answered(bridge, "hello", by("2")) == "echo: hello"
        assert "let me in" not in str([view.user for view in book.asked])


async def test_in_a_group_nobody_unknown_gets_an_answer(tmp_path):
    async with serving(tmp_path, book := Book(), PAIRING) as daemon, daemon.bridge("telegram") as bridge:
        code = await code_for(bridge, by("1"))
        assert (await daemon.command("pair", "approve", code)).code == 0
        await write(bridge, "let me in", by("2", "-100"))
        await write(bridge, "let me in", by("3", "group"), metadata={"group": True})
        assert await answered(bridge, "hello", by("1", "-100")) == "echo: hello"
        assert "let me in" not in str([view.user for view in book.asked])


@pytest.mark.parametrize(
    ("groups", "metadata", "is_heard"),
    [
        ("off", {}, False),
        ("off", {"mentioned": True}, False),
        ("mention", {"mentioned": False}, False),
        ("mention", {"mentioned": True}, True),
        ("all", {"mentioned": False}, True),
    ],
)
async def test_what_is_heard_in_groups(tmp_path, groups, metadata, is_heard):
    settings = {"channels.slack.access": "open", "channels.slack.groups": groups}
    async with serving(tmp_path, Book(), settings) as daemon, daemon.bridge("slack") as bridge:
        if is_heard:
            await bridge.say("hello", channel=by("U1", "C1", "slack"), metadata=metadata)
            assert (await bridge.reply())["text"] == "echo: hello"
        else:
            assert "groups" in await write(bridge, "hello", by("U1", "C1", "slack"), metadata=metadata)
        assert await answered(bridge, "direct", by("U1", "D1", "slack")) == "echo: direct"


async def test_owners_are_let_in_without_being_listed_and_a_type_without_a_section_is_open(tmp_path):
    settings = {**PAIRING, "agent.owners": ["cli:*", "telegram:42"]}
    async with (
        serving(tmp_path, Book(), settings) as daemon,
        daemon.bridge("telegram") as bridge,
        daemon.bridge("irc") as irc,
    ):
        assert await answered(bridge, "hello", by("42")) == "echo: hello"
        assert await answered(irc, "hello", by("anybody", "#x", "irc")) == "echo: hello"


async def test_a_bridge_of_any_type_may_have_a_section(tmp_path):
    async with (
        serving(tmp_path, Book(), {"channels.matrix.access": "pairing"}) as daemon,
        daemon.bridge("matrix") as bridge,
    ):
        code = await code_for(bridge, by("@ann:example.org", "!room", "matrix"))
        assert (await daemon.command("pair", "approve", code)).code == 0
        assert (await daemon.command("pair", "revoke", "matrix:@ann:example.org")).code == 0


async def test_only_an_owner_approves(tmp_path):
    async with (
        serving(tmp_path, Book(), PAIRING) as daemon,
        daemon.bridge("telegram") as bridge,
        daemon.bridge("irc") as irc,
    ):
        code = await code_for(bridge, by("1"))
        assert "only my owner" in (await answered(irc, f"/pair {code}", by("eve", "#x", "irc"))).lower()
        assert "only my owner" in (await answered(irc, "/pair", by("eve", "#x", "irc"))).lower()
        await write(bridge, f"/pair {code}", by("1"))
        token = (await daemon.command("token", "add", "reader", "--scope", "message,read", "--type", "web")).out.strip()
        async with connect(daemon.url) as peer:
            await peer.hello(token, "web", None)
            for method, params in (("pair.list", {}), ("pair.approve", {"code": code})):
                await peer.send({"type": "call", "id": method, "method": method, "params": params})
                assert (await peer.get("error", id=method))["code"] == "bad_frame"
        assert (await daemon.command("pair", "approve", code)).code == 0


async def test_revoked(tmp_path):
    async with serving(tmp_path, Book(), PAIRING) as daemon, daemon.bridge("telegram") as bridge:
        code = await code_for(bridge, by("1"))
        assert (await daemon.command("pair", "approve", code)).code == 0
        assert await answered(bridge, "hello", by("1")) == "echo: hello"
        assert (await daemon.command("pair", "revoke", "telegram:1")).code == 0
        await write(bridge, "hello?", by("1"))
        done = await daemon.command("pair", "revoke", "telegram:1")
        await daemon.restart()
        assert done.code in (0, 1)  # a code may be open again
        assert (await daemon.command("pair", "revoke", "telegram:nobody")).code == 1


async def test_codes_are_listed_without_a_daemon(tmp_path):
    async with serving(tmp_path, Book(), PAIRING) as daemon:
        async with daemon.bridge("telegram") as bridge:
            code = await code_for(bridge, by("1"))
        daemon.kill()
        assert code in (await daemon.command("pair", "list")).out


@pytest.mark.files("with a database a running agent changes what its nodes know")
async def test_without_a_daemon(tmp_path):
    async with serving(tmp_path, Book(), PAIRING) as daemon:
        async with daemon.bridge("telegram") as bridge:
            code = await code_for(bridge, by("1"))
        daemon.kill()
        assert (await daemon.command("pair", "approve", code)).code == 0
        assert (await daemon.command("pair", "approve", code)).code == 1
        await daemon.start()
        async with daemon.bridge("telegram", lastSeqs={"1": 1}) as bridge:
            assert await answered(bridge, "hello", by("1")) == "echo: hello"


@pytest.mark.files("garbage in a file that somebody has edited")
@pytest.mark.parametrize(
    "content", ["garbage", "[]", '{"people": 5, "codes": [1]}', '{"people": [{"type": "telegram"}]}', "\x00\xff"]
)
async def test_what_was_edited_into_garbage_is_set_aside_and_lets_nobody_in(tmp_path, content):
    async with serving(tmp_path, Book(), PAIRING) as daemon:
        async with daemon.bridge("telegram") as bridge:
            assert (await daemon.command("pair", "approve", await code_for(bridge, by("1")))).code == 0
        daemon.kill()
        path = daemon.home / "data" / "access.json"
        path.write_text(content)
        await daemon.start()
        assert [kept.read_text() for kept in path.parent.glob("access.json.bad-*")] == [content]
        async with daemon.bridge("telegram", lastSeqs={"1": 1}) as bridge:
            await code_for(bridge, by("1"))


@pytest.mark.files("a file that cannot be read")
async def test_people_stay_in_a_file_that_could_not_be_read_at_the_start(tmp_path):
    async with serving(tmp_path, Book(), PAIRING) as daemon:
        async with daemon.bridge("telegram") as bridge:
            assert (await daemon.command("pair", "approve", await code_for(bridge, by("1")))).code == 0
        daemon.kill()
        path, aside = daemon.home / "data" / "access.json", daemon.home / "data" / "aside"
        path.rename(aside)
        path.mkdir()  # a read fails, also for root
        assert "cannot read" in (await daemon.command("pair", "list")).err
        await daemon.start()
        assert "cannot read" in (await daemon.command("pair", "list")).err
        async with daemon.bridge("telegram", lastSeqs={"1": 1}) as bridge:
            await bridge.post("let me in", channel=by("2"))
            await bridge.get("error")
            path.rmdir()
            aside.rename(path)
            await code_for(bridge, by("2"))
            assert "telegram:1" in (await daemon.command("pair", "list")).out
            assert await answered(bridge, "hello", by("1")) == "echo: hello"


async def test_a_client_without_a_bridge_gets_its_code_too(tmp_path):
    async with serving(tmp_path, Book(), PAIRING) as daemon, daemon.client("telegram", "42") as client:
        await client.post("let me in")
        await client.error("bad_frame")
        [code] = CODE.findall((await client.reply())["text"])
        assert "telegram:42" in (await daemon.command("pair", "approve", code)).out
        await client.say("hello")
        assert (await client.reply())["text"] == "echo: hello"


async def test_killed_at_any_moment_of_a_request_the_person_gets_a_code_that_counts(tmp_path):
    """Between the code on disk and the answer, or behind both."""
    async with serving(tmp_path, Book(), PAIRING) as daemon:
        for n, pause in enumerate((0, 0.001, 0.003, 0.01, 0.03)):
            async with daemon.bridge("telegram") as bridge:
                await bridge.post("let me in", channel=by(f"u{n}"))
                await trio.sleep(pause)
                daemon.kill()
            await daemon.start()
            async with daemon.bridge("telegram") as bridge:
                await write(bridge, "let me in", by(f"u{n}"))
                with trio.fail_after(10):
                    [code] = CODE.findall((await _reply_to(bridge, f"u{n}"))["text"])
            assert f"telegram:u{n}" in (await daemon.command("pair", "approve", code)).out


async def _reply_to(bridge, channel_id):
    """The next reply to this conversation; those to others come again, since their acknowledgement was killed."""
    while (frame := await bridge.reply())["channel"]["channelId"] != channel_id:
        pass
    return frame
