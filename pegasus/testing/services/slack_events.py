"""Events of a fake Slack workspace: what people write and click, in the service's wire format, and the signature of a webhook.

    event = message_event(slack, general, anna, f"<@{BOT_USER}> hello")
    headers, body = signed(event, now=slack.now())     # for the Events API
    await server.emit(event)                           # for Socket Mode (`slack_server`)

The events are those of https://docs.slack.dev/reference/events, with fields that the adapter does not know.

Slack tells some things twice, and so do tests: a message that names the app comes as `message` and as `app_mention`
(`mention_event`), a link that is unfurled comes as a change without a change (`changed_event`), and what was not acknowledged comes
again with the same `event_id` (`deliver`). To let something come again by hand, emit the same envelope a second time.

An event changes nothing in the workspace. A message of a person is in no history, and a click leaves the buttons where they are.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import attrs
import trio

from pegasus.testing.services.slack_workspace import APP, BOT, BOT_USER, SIGNING_SECRET, TEAM, SlackFile, SlackWorkspace
from pegasus.wire import encode_json

_event_ids = itertools.count(1)
"""Numbers of events in this process. They are unique over all workspaces, as Slack's are."""
RETRY_PAUSES: Final = (0.0, 60.0, 300.0)
"""Seconds before the second, third and fourth attempt of an event that was not acknowledged.
https://docs.slack.dev/apis/events-api#errors"""
ACKNOWLEDGE_TIME: Final = 3.0
"""Seconds that an app has to acknowledge."""


@attrs.frozen
class SlackEnvelope:
    """A payload with its kind, as Socket Mode delivers it. The Events API sends the payload alone.

    Example::

        envelope = message_event(slack, general, anna, "hello")
        envelope.kind  # "events_api"
        envelope.payload["event"]["text"]  # "hello"
    """

    kind: str
    """"events_api", "interactive" or "slash_commands"."""
    payload: Mapping[str, Any]
    """The object that the app gets, with names as on the wire."""


def wrap_event(event: Mapping[str, Any], event_id: str = "") -> SlackEnvelope:
    """Return an event in its outer object. Each gets an event_id of its own unless one is given.

    Example: `wrap_event({"type": "app_home_opened", "user": anna})`. With the event_id of an earlier envelope it is a repetition.
    """
    payload = {
        # Fields that the adapter must not rely on are here as well, so that a test would notice if it did.
        "token": "deprecated",
        "team_id": TEAM,
        "api_app_id": APP,
        "event": event,
        "type": "event_callback",
        "event_id": event_id or f"Ev{next(_event_ids):08d}",
        "event_time": int(float(event.get("event_ts") or event.get("ts") or 0)),
        "authorizations": [{"team_id": TEAM, "user_id": BOT_USER, "is_bot": True}],
        "is_ext_shared_channel": False,
    }
    return SlackEnvelope("events_api", payload)


def message_event(
    slack: SlackWorkspace,
    channel: str,
    user: str,
    text: str,
    *,
    thread_ts: str | None = None,
    parent: str = "",
    files: Sequence[SlackFile] = (),
    ts: str = "",
    **more: Any,
) -> SlackEnvelope:
    """Return the event of a message that somebody writes. parent: who has begun the thread. more: fields that replace others.

    The message is not kept anywhere: see `SlackWorkspace.posts` for what the app writes.
    """
    ts = ts or slack.new_ts()
    event: dict[str, Any] = {
        "type": "message",
        "user": user,
        "text": text,
        "ts": ts,
        "event_ts": ts,
        "channel": channel,
        "channel_type": "im" if slack.channels[channel]["is_im"] else "channel",
        "team": TEAM,
        "client_msg_id": f"msg-{ts}",
        "blocks": [{"type": "rich_text", "elements": []}],
    }
    # A thread is the ts of its first message. Slack names who has written that one in answers only.
    if thread_ts is not None:
        event |= {"thread_ts": thread_ts} | ({"parent_user_id": parent} if parent else {})
    if files:
        event |= {"subtype": "file_share", "files": [file.view() for file in files]}
    return wrap_event(event | more)


def mention_event(slack: SlackWorkspace, message: SlackEnvelope) -> SlackEnvelope:
    """Return the `app_mention` that accompanies a message that names the app: the same text and ts, another event_id.

    Slack sends both, and an app must answer once.
    """
    event = message.payload["event"]
    # The fields that both events have. An app takes files from the `message`.
    kept = ("user", "text", "ts", "event_ts", "channel", "thread_ts", "client_msg_id", "team")
    return wrap_event({"type": "app_mention"} | {key: event[key] for key in kept if key in event})


def changed_event(slack: SlackWorkspace, message: SlackEnvelope, text: str) -> SlackEnvelope:
    """Return the event of a message whose text was edited. With the same text, it is what unfurling a link sends.

    The `ts` of the event is new; the message within keeps its own, by which an app recognises it.
    """
    before = {key: value for key, value in message.payload["event"].items() if key != "channel"}
    after = before | {"text": text}
    if text != before["text"]:
        after |= {"edited": {"user": before["user"], "ts": slack.new_ts()}}
    return wrap_event(_hidden(slack, message, "message_changed") | {"message": after, "previous_message": before})


def deleted_event(slack: SlackWorkspace, message: SlackEnvelope) -> SlackEnvelope:
    """Return the event of a message that was deleted."""
    before = message.payload["event"]
    return wrap_event(
        _hidden(slack, message, "message_deleted") | {"deleted_ts": before["ts"], "previous_message": before}
    )


def _hidden(slack: SlackWorkspace, message: SlackEnvelope, subtype: str) -> dict[str, Any]:
    """Return the fields that events about another message have in common."""
    before, ts = message.payload["event"], slack.new_ts()
    return {"type": "message", "subtype": subtype, "hidden": True, "ts": ts, "event_ts": ts} | {
        key: before[key] for key in ("channel", "channel_type")
    }


def click_event(
    slack: SlackWorkspace, user: str, channel: str, ts: str, action_id: str, value: str, **more: Any
) -> SlackEnvelope:
    """Return the interaction of somebody who presses a button of a message of the app.

    ts: of the message that has the button. more: fields that replace others, such as the container of an ephemeral message.
    """
    action = {"type": "button", "action_id": action_id, "block_id": "b1", "value": value, "action_ts": slack.new_ts()}
    payload: dict[str, Any] = {
        "type": "block_actions",
        "user": {"id": user, "username": slack.users[user]["name"], "team_id": TEAM},
        "api_app_id": APP,
        "container": {"type": "message", "message_ts": ts, "channel_id": channel, "is_ephemeral": False},
        "trigger_id": "1.2.3",
        "team": {"id": TEAM, "domain": "test"},
        "channel": {"id": channel, "name": slack.channels[channel].get("name", "directmessage")},
        "message": {"type": "message", "user": BOT_USER, "bot_id": BOT, "ts": ts, "text": "…"},
        "response_url": f"{slack.base or 'https://hooks.slack.com'}/commands/response/1",
        "actions": [action],
    }
    return SlackEnvelope("interactive", payload | more)


def command_event(slack: SlackWorkspace, user: str, channel: str, command: str, text: str = "") -> SlackEnvelope:
    """Return the slash command of somebody, as "/pegasus status".

    Such a command has no ts: the app answers by `response_url`, or with a message of its own.
    """
    payload = {
        "command": command,
        "text": text,
        "user_id": user,
        "user_name": slack.users[user]["name"],
        "channel_id": channel,
        "channel_name": slack.channels[channel].get("name", "directmessage"),
        "team_id": TEAM,
        "api_app_id": APP,
        "trigger_id": slack.new_ts(),
        "response_url": f"{slack.base or 'https://hooks.slack.com'}/commands/response/1",
    }
    return SlackEnvelope("slash_commands", payload)


# ------------------------------------------------------------------ webhooks


def signed(
    envelope: SlackEnvelope | Mapping[str, Any], now: float, *, secret: str = SIGNING_SECRET, retry: int = 0
) -> tuple[dict[str, str], bytes]:
    """Return header and body of the request by which the Events API delivers something.

    now: wall clock, seconds. An interaction is a form with the field `payload`, a command a form of its fields.
    https://docs.slack.dev/authentication/verifying-requests-from-slack
    """
    if isinstance(envelope, SlackEnvelope) and envelope.kind == "slash_commands":
        body, kind = urlencode(envelope.payload), "application/x-www-form-urlencoded"
    elif isinstance(envelope, SlackEnvelope) and envelope.kind == "interactive":
        body, kind = urlencode({"payload": encode_json(envelope.payload)}), "application/x-www-form-urlencoded"
    else:
        payload = envelope.payload if isinstance(envelope, SlackEnvelope) else envelope
        body, kind = encode_json(payload), "application/json"
    headers = {"content-type": kind, **signature(body.encode(), now, secret)}
    # The reason is one of several that Slack may give; an app must not depend on it.
    if retry:
        headers |= {"x-slack-retry-num": str(retry), "x-slack-retry-reason": "http_error"}
    return headers, body.encode()


def signature(body: bytes, now: float, secret: str = SIGNING_SECRET) -> dict[str, str]:
    """Return the headers that prove that a body comes from Slack.

    now: wall clock in seconds. An app refuses one that is too old, so that a request cannot be replayed.
    """
    timestamp = str(int(now))
    digest = hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    return {"x-slack-request-timestamp": timestamp, "x-slack-signature": f"v0={digest}"}


async def deliver(
    slack: SlackWorkspace, envelope: SlackEnvelope, post: Callable[[Mapping[str, str], bytes], Awaitable[int]]
) -> int:
    """Deliver as the Events API does, with its retries; return how often it was sent.

    post: takes headers and body, returns the status. An answer other than 2xx, or none within 3 seconds, is a failure.
    """
    # In virtual time the pauses cost nothing.
    for retry, pause in enumerate((0.0, *RETRY_PAUSES)):
        await trio.sleep(pause)
        with trio.move_on_after(ACKNOWLEDGE_TIME):
            if 200 <= await post(*signed(envelope, slack.now(), retry=retry)) < 300:
                return retry + 1
    return len(RETRY_PAUSES) + 1
