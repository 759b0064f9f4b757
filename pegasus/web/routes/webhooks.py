"""Webhooks: requests that a service makes when something has happened there.

**Of any service.** `POST /hooks/{name}` becomes a message or a background task, by `[hooks.NAME]` of the settings. The caller signs
the body with the hook's secret, as GitHub does, or the time and the body. A delivery is carried out once, however often it comes
(`deliveries`): the same id is answered again, and the same signed content under another id is not carried out. A signed time is the
stronger form, for what it signs is refused when it is late. What arrives was written by somebody outside, whoever has the
secret: the work has a guest's rights, and what it says is marked as text from outside.

**Of chat services.** A request below `/channels/{type}` goes to the receiver of that channel. Only its body is read here, within the
bounds of all bodies. Everything else is the receiver's: the signature, the path behind the channel's type, and the message, which is
on disk when it answers.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Final

from starlette.responses import Response

from actors import ActorError
from pegasus.access import Role, with_role
from pegasus.channels import WebhookRequest
from pegasus.events import Emit, Event, EventType
from pegasus.formatting import quote
from pegasus.intake import Priority
from pegasus.messages import APART, ChannelInfo, InboundMessage, Json
from pegasus.observe import get_logger
from pegasus.outside import OUTSIDE, Untrusted
from pegasus.settings import HookSettings
from pegasus.storage import Accept, Overloaded
from pegasus.tasks import DEFAULT_TASK_TYPE, HOOK, GetTask, Submit, TaskError, task_id_of, wait_until_running
from pegasus.web.bodies import DeliveryAnswer
from pegasus.web.config import WebServices
from pegasus.web.operations import Operation
from pegasus.web.requests import ApiRequest, failures_as_errors, json_response
from pegasus.web.visitors import ApiError
from pegasus.wire import decode_json, encode_json, to_unicode, to_wire

SIGNATURES: Final = ("x-pegasus-signature", "x-hub-signature-256")
"""Headers that may have the signature: `sha256=<HMAC of the body in hexadecimal digits>`."""
DELIVERIES: Final = ("x-pegasus-delivery", "x-github-delivery")
"""Headers that may have the id of the delivery."""
TIMESTAMP: Final = "x-pegasus-timestamp"
"""Header with the time of a delivery, in seconds since 1970. The signature is then that of `<time>.<body>`."""
MOST_LATE: Final = 300.0
"""Seconds that this time may differ from ours."""
MOST_WAITING: Final = 100
"""Messages of one hook that may wait for the agent."""
MAX_TEXT: Final = 100_000
"""Characters of the text that a delivery becomes."""
_TIME: Final = re.compile(r"[0-9]{10}")
"""Form of a time. It has ten digits until the year 2286."""
_BEGINS_WITH_TIME: Final = re.compile(rb"[0-9]{10}\.")
"""Beginning of what is signed with a time."""
_FIELD: Final = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")
"""A field of a template: `{{pull_request.title}}`, with dots between names and numbers."""
_log = get_logger("web")


def fill_template(template: str, body: str) -> str:
    """Return the text of a delivery: the template with its fields filled, or with the body behind it if it has none.

    Raises ApiError 400 for a template with fields and a body that is no JSON.

    >>> fill_template("{{who.name}} says {{what}}", '{"who": {"name": "Ann"}, "what": "hi"}')
    'Ann says hi'
    """
    if not _FIELD.search(template):
        return f"{template}\n\n{body}".strip()
    try:
        value = decode_json(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(
            400, "bad_request", f"found no JSON ({error}), and the template of this hook has fields"
        ) from None
    return _FIELD.sub(lambda match: _text_of(_look_up(value, match[1])), template)


def _look_up(value: Json, path: str) -> Json:
    """Return the field that a path of names and numbers with dots leads to, None if there is none."""
    for name in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _text_of(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else encode_json(value)


def _is_signed(hook: HookSettings, content: bytes, headers: Mapping[str, str]) -> bool:
    """Return whether one of the headers has the signature of this content.

    A comparison takes the same time wherever two signatures differ, so its time tells nothing about the right one. A hook without a
    secret does not exist: the check of the settings refuses it.
    """
    expected = f"sha256={hmac.new(hook.secret.encode(), content, sha256).hexdigest()}"
    return any(
        hmac.compare_digest(headers.get(name, "").encode("utf-8", "replace"), expected.encode()) for name in SIGNATURES
    )


class HookRoutes:
    """The handler of webhooks.

    The steps have this order for a reason: the name is looked up first, because the secret belongs to the hook;
    the signature is checked before the body is parsed; the delivery is noted before its work begins; the event is
    published last, when the work is on disk.
    """

    def __init__(self, services: WebServices) -> None:
        self._services = services

    async def deliver(self, request: ApiRequest) -> Response:
        """Check the signature, and begin the work: 202 with the id of the message or the task, when it is on disk."""
        # Whoever has no secret may learn which hooks exist by the status. The names are no secret.
        name = request.path["name"]
        hook = self._services.hooks.now.get(name)
        if hook is None:
            raise ApiError(404, "not_found", "there is no such hook")
        body = await request.body()
        headers = request.http.headers
        content = self._check_signature(hook, body, headers)
        text = to_unicode(fill_template(hook.template, body.decode("utf-8", "replace")))[:MAX_TEXT]
        if not text:
            raise ApiError(400, "bad_request", "the delivery has no text")
        # The id is hashed: it becomes part of names of files, and comes from outside.
        given = next((headers[key] for key in DELIVERIES if headers.get(key)), "")
        id = sha256(given.encode("utf-8", "replace")).hexdigest()[:32] if given else ""
        with failures_as_errors():
            if hook.repeats:
                key, is_again, first_id = f"hook-{name}-{id or secrets.token_hex(16)}", False, id
                await self._begin(hook, name, key, text)
            else:
                delivery, is_new = await self._services.deliveries.note(name, sha256(content).hexdigest(), id)
                key, first_id = delivery.stored.key, delivery.stored.id
                async with delivery.lock:
                    # After a crash nobody here knows whether it was begun; then its key makes the second time no work.
                    was_begun = delivery.is_done or await self._begin(hook, name, key, text, is_new=is_new)
                    is_again = was_begun and not is_new
                    delivery.is_done = True
        if is_again and TIMESTAMP in headers:
            self._note_repeat(name)
            raise ApiError(409, "conflict", f"this delivery came before; sign each with a {TIMESTAMP} of its own")
        if is_again and not (id and id == first_id):
            self._note_repeat(name)
            return json_response(DeliveryAnswer(repeated=True))
        answer = DeliveryAnswer(id=key) if hook.channel else DeliveryAnswer(task_id=task_id_of(key))
        self._publish(name, text, to_wire(answer))
        return json_response(answer, 202)

    def _check_signature(self, hook: HookSettings, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Return what is signed: the body, or the time and the body. Raises ApiError 401 if it is not, or if it is late.

        What was signed with a time must not come again as a body that begins with one, when the time is over.
        """
        time = headers.get(TIMESTAMP)
        content = body if time is None else f"{time}.".encode("utf-8", "replace") + body
        if not _is_signed(hook, content, headers):
            what = "body" if time is None else f"{TIMESTAMP}, a dot and the body"
            message = f"the signature of the {what} is missing or wrong; allowed: {' or '.join(SIGNATURES)}"
            raise ApiError(401, "unauthorized", message)
        if time is None:
            if _BEGINS_WITH_TIME.match(body):
                raise ApiError(401, "unauthorized", f"found a body that begins with a time, and no {TIMESTAMP}")
        elif not _TIME.fullmatch(time) or abs(int(time) - self._services.clock() / 1000) > MOST_LATE:
            found = f"found {quote(time, 40)}, allowed: seconds since 1970, at most {MOST_LATE:g} s from now"
            raise ApiError(401, "unauthorized", f"{TIMESTAMP}: {found}")
        return content

    def _note_repeat(self, name: str) -> None:
        """Log and count a delivery that is not carried out."""
        self._services.deliveries.repeats[name] += 1
        _log.warning("a webhook delivery came again; it is not carried out", hook=name)

    def _publish(self, name: str, text: str, answer: Mapping[str, Json]) -> None:
        fired: dict[str, Json] = {"hook": name, "text": text[:2000], "handledBy": "http", **answer}
        with suppress(ActorError):  # observers may miss it
            now = self._services.clock()
            self._services.bus.tell_nowait(
                Emit((Event(EventType.WEBHOOK_TRIGGERED, now, f"hooks/{name}", payload=fired),))
            )

    async def _begin(self, hook: HookSettings, name: str, key: str, text: str, *, is_new: bool = True) -> bool:
        """Begin the work of a delivery, and return whether it was begun before; is_new: it was not.

        Raises ApiError 429 where too much of the hook waits, which services take as a reason to send it again later.
        """
        if hook.channel:
            return await self._send(hook, name, key, text)
        return await self._submit(name, key, text, is_new=is_new)

    async def _send(self, hook: HookSettings, name: str, key: str, text: str) -> bool:
        """Make the delivery a message of its conversation; return whether there is this message already.

        `MOST_WAITING` bounds what one hook may leave in the queue, so that a service that has gone wild cannot
        crowd out people.
        """
        kind, _, channel_id = hook.channel.partition(":")
        channel = ChannelInfo(kind, channel_id, f"hook {name}")
        metadata: dict[str, Json] = {OUTSIDE: [Untrusted.WEB.value]}
        message = with_role(InboundMessage(text, channel, key, metadata), Role.GUEST, f"hook {name}")
        answer = await self._services.intake.journal.ask(
            Accept, message, "main", Priority.PERSON, False, "", MOST_WAITING
        )
        if isinstance(answer, Overloaded):
            raise ApiError(429, "overloaded", answer.reason)
        return answer.duplicate

    async def _submit(self, name: str, key: str, text: str, *, is_new: bool) -> bool:
        """Make the delivery a task; return whether there is this task already. Of a hook WAITING_OF_HOOK tasks may wait.

        Waits until the task system runs, since a delivery may come right after a start.
        """
        await wait_until_running(self._services.tasks)
        was_begun = not is_new and await self._services.tasks.ask(GetTask, task_id_of(key)) is not None
        metadata: dict[str, Json] = {"role": Role.GUEST, APART: False, HOOK: name, OUTSIDE: [Untrusted.WEB.value]}
        request = (text, f"hooks/{name}", DEFAULT_TASK_TYPE, f"webhook {name}", metadata, key)
        try:
            await self._services.tasks.ask(partial(Submit, cause=f"hook {name}"), *request)
        except TaskError as error:
            raise ApiError(429, "overloaded", str(error)) from None
        return was_begun


# ------------------------------------------------------------------ chat services


async def receive_webhook(request: ApiRequest) -> Response:
    """Hand a request to the receiver of a channel, and return its answer.

    Header fields that come several times are joined with commas, as HTTP allows. The path is given as it was
    sent, because signatures cover it in that form.

    A refusal of the receiver becomes an error object, unless the receiver has made one itself.
    """
    receiver = request.services.receivers.get(request.path["type"])
    if receiver is None:
        raise ApiError(404, "not_found", "this channel is not configured")
    headers: dict[str, str] = {}
    for name, value in request.http.headers.items():
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    scope = request.http.scope
    path, query = scope["raw_path"].decode("ascii"), scope["query_string"].decode("ascii")
    url = f"http://{headers.get('host', '')}{path}" + (f"?{query}" if query else "")
    with failures_as_errors():
        answer = await receiver.receive(WebhookRequest(request.http.method, path, headers, await request.body(), url))
    if answer.status >= 400 and answer.content_type != "application/json":
        codes = {401: "unauthorized", 404: "not_found", 503: "unavailable"}
        reason = answer.body.decode("utf-8", "replace") or "the channel refuses this request"
        raise ApiError(answer.status, codes.get(answer.status, "bad_request"), reason)
    return Response(answer.body, answer.status, dict(answer.headers), answer.content_type)


def webhook_operations(services: WebServices) -> tuple[Operation, ...]:
    """Return the operations of this file."""
    hooks, path = HookRoutes(services), "/channels/{type}/{rest:path}"
    return (
        Operation(
            "POST", "/hooks/{name}", hooks.deliver, "A webhook, signed with the hook's secret", None, body=object
        ),
        Operation("POST", path, receive_webhook, "A webhook of a chat service, signed by it", None),
        Operation("GET", path, receive_webhook, "A file that a chat service fetches", None, allows_head=True),
    )
