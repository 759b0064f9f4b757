"""What an answer of a push service means, and how long one is waited for."""

from __future__ import annotations

import subprocess
import sys
from email.utils import formatdate

import attrs
import pytest
import trio

from pegasus.messages import ApprovalNotice, ChannelInfo, OutboundMessage
from pegasus.push import sending
from pegasus.push.keys import LARGEST, ensure_key
from pegasus.push.notices import PushNotice, answered_notice, approval_notice, reply_notice
from pegasus.push.sending import DEADLINE, LONGEST_WAIT, PushState, send_push
from pegasus.push.subscriptions import PushSubscription
from pegasus.tools import AddressGuard, HttpAnswer, ToolError
from pegasus.wire import decode_object
from tests.pegasus.push.service import Browser, PushServer

NOW = 1_800_000_000_000
MAIN = ChannelInfo("web", "main")


@pytest.fixture
def send(tmp_path, monkeypatch):
    """Sends a message to a service that gives this answer, after so many seconds."""
    subscription = Browser("phone").subscription(PushServer())
    keys = subscription["keys"]
    row = PushSubscription(subscription["endpoint"], keys["p256dh"], keys["auth"], "s", "all", True, NOW)

    async def send(status, headers=None, seconds=0.0):
        async def answer(guard, method, url, *rest, limits):
            assert limits.redirects == 0
            await trio.sleep(seconds)
            if status is None:
                raise ToolError("POST failed")
            return HttpAnswer(url, status, "", headers or {}, b"why", True)

        monkeypatch.setattr(sending, "fetch", answer)
        key = ensure_key(tmp_path / "push.key")
        notice = PushNotice(content=b"{}", topic="reply")
        return await send_push(row, notice, key, AddressGuard(), NOW, "mailto:me@example.org")

    return send


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (201, "taken"),
        (200, "taken"),
        (404, "gone"),
        (410, "gone"),
        (403, "gone"),
        (413, "refused"),
        (400, "refused"),
        (307, "refused"),
        (429, "later"),
        (500, "later"),
        (503, "later"),
        (None, "later"),
    ],
)
async def test_an_answer_means(send, status, state):
    assert (await send(status)).state == PushState(state)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (formatdate(NOW / 1000 + 60, usegmt=True), 60.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("", 0.0),
        ("9" * 400, LONGEST_WAIT),
        (formatdate(NOW / 1000 - 60, usegmt=True), 0.0),
    ],
)
async def test_when_a_service_wants_to_be_asked_again(send, value, seconds):
    assert (await send(429, {"retry-after": value})).after == seconds


async def test_a_service_that_answers_after_an_hour_is_asked_again_and_not_waited_for(send, autojump_clock):
    begin = trio.current_time()
    assert (await send(201, seconds=3600)).state is PushState.LATER
    assert trio.current_time() - begin == DEADLINE


def approval(arguments, **more):
    fields = {"why": "rule 1", "who": "owner", "expires": NOW + 60_000, "state": "open", **more}
    return ApprovalNotice("a-7f3k", "shell_exec", arguments, **fields)


def asked(notice, **how):
    how = {"with_text": True, "may_decide": True, "now": NOW, "clean": str, **how}
    message = approval_notice("Pegasus", notice, **how)
    return message, decode_object(message.content)


def test_a_call_can_be_allowed_only_where_all_of_it_is_shown():
    short = approval({"command": "ls\u202e -a"})
    message, shown = asked(short)
    assert (shown["body"], shown["decisions"]) == ("command: ls⟨U+202E⟩ -a", ["allow", "deny"])
    assert (message.ttl, message.urgency) == (60, "high")
    assert asked(short, with_text=False)[1]["decisions"] == ["deny"]
    assert asked(short, may_decide=False)[1]["decisions"] == []
    assert asked(approval({"command": "x" * 300}))[1]["decisions"] == ["deny"]
    assert asked(attrs.evolve(short, notes=("it is not that host",)))[1]["decisions"] == ["deny"]
    assert "s3cret" not in str(
        asked(approval({"command": "s3cret"}), clean=lambda text: text.replace("s3cret", "***"))[1]
    )


def test_replies_fit_into_a_message_and_many_are_one():
    reply = OutboundMessage("🦄" * 5000 + "\ud800", MAIN, 2)
    message = reply_notice("A" * 500, reply, 1, with_text=True)
    assert len(message.content) <= LARGEST
    assert decode_object(message.content)["seq"] == 2
    assert decode_object(reply_notice("P", reply, 1, with_text=False).content)["body"] == "2 new messages"
    assert decode_object(answered_notice("P", "a-1", "").content)["body"] == "Answered"


def test_nothing_of_it_is_imported_before_a_browser_subscribes():
    code = (
        "import sys, pegasus.app.daemon; print(*[name for name in sys.modules if name.startswith('pegasus.push')]);"
        "import pegasus.push.routes; print('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
