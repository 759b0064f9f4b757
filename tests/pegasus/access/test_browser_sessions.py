"""Sessions of browsers while the disk does not let files be read: none is lost, and none counts as ended."""

import json

import pytest
import trio
import trio.testing

from pegasus.access import OWNER_GRANT, TokenBook, WebSessions
from pegasus.gateway import GatewayConfig
from pegasus.settings import LiveValue
from pegasus.storage import NextChange, ReadRows, StorageError
from tests.pegasus.files_of_journal import answer_from, path_of
from tests.pegasus.web.world import HANDSHAKE, world


class Files:
    """A journal with files, of which those in `unreadable` cannot be read."""

    def __init__(self):
        self.files = {}
        self.unreadable = set()

    async def ask(self, kind, *args):
        if kind is NextChange:
            await trio.sleep_forever()
        if kind is ReadRows and path_of(kind, *args) in self.unreadable:
            raise StorageError("I/O error")
        return answer_from(self.files, kind, *args)

    @property
    def sessions(self):
        """Names of the tokens of the sessions on disk."""
        return [session["tokenName"] for session in json.loads(self.files["web/sessions.json"])["sessions"]]


async def start(files, clock=lambda: 7):
    """Return the tokens and sessions of a daemon that has just started."""
    tokens = TokenBook()
    await tokens.load(files, clock)
    sessions = WebSessions(LiveValue(GatewayConfig(token="t0ken-of-the-home", tokens=tokens)))
    await sessions.load(files, clock)
    return tokens, sessions


@pytest.fixture
async def phone():
    """Files with a session of the token "phone", and the id of that session."""
    files = Files()
    tokens, sessions = await start(files)
    token = await tokens.add("phone", scopes=("read",))
    return files, await sessions.open(await tokens.find_read(token))


async def test_a_session_stays_when_somebody_signs_in_while_tokens_cannot_be_read(phone):
    files, id = phone
    files.unreadable = {"tokens.json"}
    _, sessions = await start(files)
    await sessions.open(OWNER_GRANT)
    assert files.sessions == ["phone", ""]
    with pytest.raises(StorageError):
        await sessions.find_read(id)
    files.unreadable = set()
    assert (await sessions.find_read(id)).name == "phone"


async def test_a_session_ends_with_its_token(phone):
    files, id = phone
    tokens, sessions = await start(files)
    await tokens.revoke("phone")
    assert await sessions.find_read(id) is None
    await sessions.open(OWNER_GRANT)
    assert files.sessions == [""]


async def test_sessions_stay_in_a_file_that_could_not_be_read(phone):
    files, id = phone
    files.unreadable = {"web/sessions.json"}
    _, sessions = await start(files)
    for act in (sessions.open(OWNER_GRANT), sessions.close(id), sessions.find_read(id)):
        with pytest.raises(StorageError):
            await act
    assert files.sessions == ["phone"]
    files.unreadable = set()
    assert (await sessions.find_read(id)).name == "phone"


async def test_the_owner_is_signed_in_while_tokens_cannot_be_read(phone):
    files, _ = phone
    files.unreadable = {"tokens.json"}
    _, sessions = await start(files)
    assert (await sessions.find_read(await sessions.open(OWNER_GRANT))).is_home
    assert await sessions.find_read("of nobody") is None


async def test_a_link_signs_in_once_and_for_five_minutes_at_any_node(nursery):
    """A proxy leads the browser to a node, and the command that makes the link has asked one, too."""
    files, now = Files(), [7]
    (_, here), (_, there) = [await start(files, lambda: now[0]) for _ in range(2)]
    for sessions in (here, there):
        nursery.start_soon(sessions.follow_codes)
    await trio.testing.wait_all_tasks_blocked()
    code, late = await here.make_code(), await here.make_code()
    assert await there.is_code(code)
    assert await there.redeem(code)
    assert not await there.redeem(code)
    assert not await here.redeem(code)
    assert not await here.redeem("")
    assert code not in files.files["web/codes.json"].decode()
    now[0] += 300_000
    assert not await there.is_code(late)
    assert not await there.redeem(late)
    newer = await there.make_code()
    assert len(json.loads(files.files["web/codes.json"])["codes"]) == 1
    assert await here.redeem(newer)


async def test_a_damaged_entry_ends_its_session_and_the_others_stay(phone):
    files, id = phone
    record = json.loads(files.files["web/sessions.json"])
    files.files["web/sessions.json"] = json.dumps({"sessions": [{"hash": 1}, *record["sessions"]]}).encode()
    damaged = files.files["web/sessions.json"]
    _, sessions = await start(files)
    assert (await sessions.find_read(id)).name == "phone"
    assert files.sessions == ["phone"]
    assert files.files["web/sessions.json.bad-1"] == damaged


async def test_a_cookie_that_cannot_be_judged_is_answered_with_503_and_not_as_signed_out():
    class UnreadableJournal:
        async def ask(self, kind, *args):
            raise StorageError("I/O error")

    async with world() as there, there.client() as client:
        token = await there.tokens.add("phone", scopes=("read",), type="api", channel_id="phone")
        answer = await client.post("/api/login", json={"token": token}, headers={"origin": there.origin})
        assert answer.status_code == 200
        assert (await client.get("/api/status")).status_code == 200
        await there.tokens.load(UnreadableJournal(), lambda: 0)
        answer = await client.get("/api/status")
        assert (answer.status_code, "I/O error" in answer.text) == (503, True)
        [(name, id)] = client.cookies.items()
        async with there.raw() as stream:
            await stream.send_all(f"{HANDSHAKE}Host: localhost\r\nCookie: {name}={id}\r\n\r\n".encode())
            with trio.fail_after(10):
                assert await stream.receive_some() == b"", "the page connects again"
