"""`TelegramServer`: a fake of Telegram's Bot API that the official client python-telegram-bot works with, in virtual time too.

It behaves as Telegram does where an adapter can notice: updates are given again until their offset is confirmed, texts have at most
4,096 UTF-16 code units and strict HTML, an edit that changes nothing is refused, a revoked token is answered with 401.

    async with open_service(TelegramServer()) as telegram:          # or telegram.transport() in memory
        telegram.say(42, "hello")
        sent = await telegram.next_message()
        assert (sent.chat_id, sent.text) == (42, "hi")

Faults come from `FakeService` (down, half of all calls, answers that get lost), and from here: `blocked` chats answer 403, `limits`
holds back chats with 429, `token` may be changed to revoke the old one.

What it does not do: it calls no webhook (a test hands the request to the adapter itself, and `webhook` has what was set), forgets no
update after a day, limits nothing unless `limits` says so, and lets messages of any age be edited. Kinds of updates that the bot has
not asked for come all the same. Two programs that poll at the same time do not disturb each other.

The official client is the oracle: tests/pegasus/testing/test_telegram_server.py lets it talk to this fake. To add a method of the Bot
API, write a method of its name in lower case behind an underscore: it gets the parameters, and returns the result or raises Refusal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import attrs
import trio

from pegasus.testing.services.server import FakeService, ServiceRequest, ServiceResponse, json_response
from pegasus.testing.services.telegram_html import MarkupError, read_html, units

TOKEN: Final = "123456:AAE-fake-token-of-a-bot_0123456789abcd"  # noqa: S105
BOT_ID: Final = 123456
LONGEST_TEXT: Final = 4096
"""UTF-16 code units of a text."""
LONGEST_CAPTION: Final = 1024
_JSON_FIELDS: Final = (
    "reply_markup",
    "allowed_updates",
    "commands",
    "entities",
    "link_preview_options",
    "scope",
    "media",
)


class Refusal(Exception):
    """An answer `{"ok":false}`, raised by a method of the API. parameters: more of it, such as `retry_after`."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.code = code
        self.parameters = parameters


@attrs.define(eq=False)
class SentMessage:
    """A message of the bot as people see it. Example: `(await telegram.next_message()).text`."""

    chat_id: int
    """Chat that it was sent to; negative for groups."""
    message_id: int
    """Number of the message, unique in this fake."""
    text: str
    """Without markup."""
    entities: list[dict[str, Any]]
    """Ranges of the text that are formatted, as the API has them."""
    thread_id: int | None = None
    """Topic of a group; None for none."""
    reply_markup: Any = None
    """Buttons below it, as they were sent."""
    file: tuple[str, str, bytes] | None = None
    """Kind, name and content."""
    edits: int = 0
    """Edits of its text."""
    is_deleted: bool = False
    """The bot has deleted it."""
    states: list[str] = attrs.field(factory=list)
    """Every text that it has shown, the present one last."""


class TelegramServer(FakeService):
    """A fake of the Bot API for one bot. Example: see the top of this file."""

    def __init__(self, token: str = TOKEN, username: str = "pegasus_bot") -> None:
        super().__init__()
        self.token = token
        self.me = {"id": BOT_ID, "is_bot": True, "first_name": "Pegasus", "username": username}
        self.messages: list[SentMessage] = []
        """Messages of the bot, oldest first."""
        self.actions: list[tuple[int, str, float]] = []
        """Chat actions: chat, action, Trio's clock."""
        self.edit_times: list[tuple[int, float]] = []
        """Edits of texts: message id, Trio's clock."""
        self.clicks: dict[str, dict[str, Any]] = {}
        """Answers to clicks, by the id of the click."""
        self.commands: list[dict[str, str]] = []
        self.webhook: dict[str, Any] = {}
        """Parameters of the webhook that is set; empty if there is none."""
        self.blocked: set[int] = set()
        """Chats that have blocked the bot."""
        self.moved: dict[int, int] = {}
        """Groups that have become supergroups, with their new ids."""
        self.limits: dict[int, float] = {}
        """Chats that may not be written to before this time of Trio's clock."""
        self.unknown: set[int] = set()
        """Chats that do not exist."""
        self.files: dict[str, bytes] = {}
        self.violations: list[str] = []
        """Calls that came before their `retry_after` was over."""
        self.calls: list[tuple[str, dict[str, Any]]] = []
        """Method and parameters of every call with the right token."""
        self.closed_threads: set[int] = set()
        """Topics that take no message any more."""
        self.closed_reason = "message thread not found"
        """Words of the refusal: these for a topic that was deleted, "TOPIC_CLOSED" for one that was closed."""
        self._limited_until: dict[int, float] = {}
        """Until when each chat was told to wait."""
        self._updates: list[dict[str, Any]] = []
        """Updates that were not confirmed, oldest first."""
        self._ids = {"update": 100, "message": 1000, "query": 1}
        self._changed = trio.Event()
        """Set and replaced after each call and each new update."""
        self._read = 0
        """Messages that `next_message` has returned."""

    # ---------------------------------------------------------------- what people do

    def say(
        self, chat_id: int, text: str | None, *, user: int | None = None, name: str = "Anna", **fields: Any
    ) -> dict[str, Any]:
        """Write to the bot: a private chat by default, a group if chat_id is negative. Return the message. fields: more of it."""
        user = chat_id if user is None else user
        message = {
            "message_id": self._next("message"),
            "date": 1_772_020_800,
            "from": {"id": user, "is_bot": False, "first_name": name},
            "chat": self.chat(chat_id),
            "text": text,
        }
        if text is not None and text.startswith("/"):
            message["entities"] = [{"type": "bot_command", "offset": 0, "length": units(text.split()[0])}]
        message |= fields
        message = {key: value for key, value in message.items() if value is not None}
        self.update(message=message)
        return message

    def mention(self, chat_id: int, text: str, **fields: Any) -> dict[str, Any]:
        """Write to a group, with the bot's name in front."""
        named = f"@{self.me['username']}"
        entities = [{"type": "mention", "offset": 0, "length": len(named)}]
        return self.say(chat_id, f"{named} {text}", entities=entities, **fields)

    def click(self, message: SentMessage, label: str, *, user: int) -> str:
        """Click on the button with this label below a message of the bot; return the id of the click."""
        rows = message.reply_markup["inline_keyboard"]
        data = next(button["callback_data"] for row in rows for button in row if button["text"] == label)
        query_id = str(self._next("query"))
        self.update(
            callback_query={
                "id": query_id,
                "from": {"id": user, "is_bot": False, "first_name": "Anna"},
                "message": {"message_id": message.message_id, "chat": self.chat(message.chat_id), "date": 1},
                "chat_instance": "1",
                "data": data,
            }
        )
        return query_id

    def update(self, **content: Any) -> dict[str, Any]:
        """Queue any update; return it."""
        update = {"update_id": self._next("update"), **content}
        self._updates.append(update)
        self._notify()
        return update

    def chat(self, chat_id: int) -> dict[str, Any]:
        """Return a chat as it stands in messages."""
        if chat_id > 0:
            return {"id": chat_id, "type": "private", "first_name": "Anna"}
        return {"id": chat_id, "type": "supergroup", "title": "Group"}

    def add_file(self, content: bytes, **fields: Any) -> dict[str, Any]:
        """Keep a file that the bot can fetch; return it as it stands in a message."""
        file_id = f"file{len(self.files)}"
        self.files[file_id] = content
        return {"file_id": file_id, "file_unique_id": f"u{file_id}", "file_size": len(content), **fields}

    # ---------------------------------------------------------------- what tests wait for

    @property
    def shown(self) -> list[tuple[int, str]]:
        """Chat and text of every message that people see now."""
        return [(message.chat_id, message.text) for message in self.messages if not message.is_deleted]

    async def next_message(self) -> SentMessage:
        """Return the next message of the bot that was not returned before."""
        await self.until(lambda: len(self.messages) > self._read)
        self._read += 1
        return self.messages[self._read - 1]

    async def until(self, condition: Any) -> None:
        """Wait until a condition holds, looked at after each call."""
        while not condition():
            await self._changed.wait()

    @property
    def updates(self) -> list[dict[str, Any]]:
        """Updates that were not confirmed, as a webhook would get them."""
        return list(self._updates)

    @property
    def waiting(self) -> int:
        """Updates that were not confirmed."""
        return len(self._updates)

    # ---------------------------------------------------------------- HTTP

    async def answer(self, request: ServiceRequest) -> ServiceResponse:
        """Answer a call of the Bot API or the download of a file."""
        kind, _, rest = unquote(request.path).lstrip("/").partition("/")
        if kind == "file":
            token, _, file_id = rest.partition("/")
            content = self.files.get(file_id) if token == f"bot{self.token}" else None
            return ServiceResponse(404) if content is None else ServiceResponse(200, content)
        try:
            if kind != f"bot{self.token}":
                raise Refusal(401, "Unauthorized")
            params = read_params(request)
            self.calls.append((rest, params))
            result = await self._call(rest, params)
            return json_response({"ok": True, "result": result})
        except Refusal as refusal:
            body: dict[str, Any] = {"ok": False, "error_code": refusal.code, "description": str(refusal)}
            if refusal.parameters:
                body["parameters"] = refusal.parameters
            return json_response(body, refusal.code)
        finally:
            self._notify()

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        handler = getattr(self, f"_{method.lower()}", None)
        if handler is None:
            raise Refusal(404, "Not Found")
        result = handler(params)
        return await result if hasattr(result, "__await__") else result

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _next(self, name: str) -> int:
        self._ids[name] += 1
        return self._ids[name]

    # ---------------------------------------------------------------- methods: the bot itself

    def _getme(self, params: dict[str, Any]) -> Any:
        return {
            **self.me,
            "can_join_groups": True,
            "can_read_all_group_messages": False,
            "supports_inline_queries": False,
        }

    def _setmycommands(self, params: dict[str, Any]) -> Any:
        for command in params["commands"]:
            name = command["command"]
            if not (1 <= len(name) <= 32 and name.replace("_", "a").isalnum() and name == name.lower()):
                raise Refusal(400, "Bad Request: BOT_COMMAND_INVALID")
            if not 1 <= len(command["description"]) <= 256:
                raise Refusal(400, "Bad Request: BOT_COMMAND_DESCRIPTION_INVALID")
        self.commands = params["commands"]
        return True

    async def _getupdates(self, params: dict[str, Any]) -> Any:
        """Forget the updates below the offset; wait for another one for `timeout` seconds, on Trio's clock."""
        if self.webhook:
            raise Refusal(409, "Conflict: can't use getUpdates method while webhook is active")
        offset, limit = int(params.get("offset") or 0), int(params.get("limit") or 100)
        if offset:
            # An offset confirms everything below it. A bot that crashes before it asks again is given the same updates once more.
            self._updates = [update for update in self._updates if update["update_id"] >= offset]
        with trio.move_on_after(float(params.get("timeout") or 0)):
            await self.until(lambda: self._updates)
        return self._updates[:limit]

    def _setwebhook(self, params: dict[str, Any]) -> Any:
        if not str(params.get("url", "")).startswith(("https://", "http://127.0.0.1", "http://localhost")):
            raise Refusal(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook")
        self.webhook = dict(params)
        return True

    def _deletewebhook(self, params: dict[str, Any]) -> Any:
        self.webhook = {}
        return True

    def _getwebhookinfo(self, params: dict[str, Any]) -> Any:
        url = self.webhook.get("url", "")
        return {"url": url, "has_custom_certificate": False, "pending_update_count": len(self._updates)}

    # ---------------------------------------------------------------- methods: messages

    def _open_chat(self, params: dict[str, Any]) -> int:
        """Return the chat that a call writes to. Raises Refusal where it may not."""
        try:
            chat_id = int(params["chat_id"])
        except (KeyError, ValueError):
            raise Refusal(400, "Bad Request: chat not found") from None
        if chat_id in self.moved:
            moved = self.moved[chat_id]
            raise Refusal(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=moved)
        if chat_id in self.unknown:
            raise Refusal(400, "Bad Request: chat not found")
        if chat_id in self.blocked:
            raise Refusal(403, "Forbidden: bot was blocked by the user")
        until = self.limits.get(chat_id, 0.0)
        if until > trio.current_time():
            # A bot that tries again too early is what Telegram punishes; a test asserts that `violations` is empty.
            if chat_id in self._limited_until and trio.current_time() < self._limited_until[chat_id]:
                self.violations.append(f"{chat_id} at {trio.current_time():.2f}")
            self._limited_until[chat_id] = until
            seconds = max(1, int(until - trio.current_time() + 0.999))
            raise Refusal(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)
        return chat_id

    def _read_text(self, params: dict[str, Any], key: str, longest: int) -> tuple[str, list[dict[str, Any]]]:
        text = str(params.get(key) or "")
        entities: list[dict[str, Any]] = []
        if params.get("parse_mode") == "HTML":
            try:
                text, entities = read_html(text)
            except MarkupError as error:
                raise Refusal(400, f"Bad Request: can't parse entities: {error}") from None
        if units(text) > longest:
            raise Refusal(
                400, "Bad Request: message is too long" if key == "text" else "Bad Request: message caption is too long"
            )
        return text, entities

    def _sendmessage(self, params: dict[str, Any]) -> Any:
        chat_id = self._open_chat(params)
        text, entities = self._read_text(params, "text", LONGEST_TEXT)
        if not text.strip():
            raise Refusal(400, "Bad Request: message text is empty")
        return self._keep(chat_id, text, entities, params)

    def _keep(
        self,
        chat_id: int,
        text: str,
        entities: list[dict[str, Any]],
        params: dict[str, Any],
        file: tuple[str, str, bytes] | None = None,
    ) -> Any:
        thread = params.get("message_thread_id")
        if thread is not None and int(thread) in self.closed_threads:
            raise Refusal(400, f"Bad Request: {self.closed_reason}")
        sent = SentMessage(
            chat_id,
            self._next("message"),
            text,
            entities,
            None if thread is None else int(thread),
            params.get("reply_markup"),
            file,
            states=[text],
        )
        self.messages.append(sent)
        return self._as_json(sent)

    def _as_json(self, sent: SentMessage) -> dict[str, Any]:
        content: dict[str, Any] = {"text": sent.text, "entities": sent.entities}
        if sent.file is not None:
            kind, name, data = sent.file
            about = {"file_id": f"sent{sent.message_id}", "file_unique_id": "x", "file_size": len(data)}
            content = {"caption": sent.text, kind: {**about, "file_name": name}}
            if kind == "photo":
                content["photo"] = [{**about, "width": 1, "height": 1}]
        return {
            "message_id": sent.message_id,
            "date": 1_772_020_801,
            "chat": self.chat(sent.chat_id),
            "from": self.me,
            **content,
        }

    def _edited(self, params: dict[str, Any]) -> SentMessage:
        chat_id, message_id = self._open_chat(params), int(params.get("message_id") or 0)
        found = [sent for sent in self.messages if (sent.chat_id, sent.message_id) == (chat_id, message_id)]
        if not found or found[0].is_deleted:
            raise Refusal(400, "Bad Request: message to edit not found")
        return found[0]

    def _editmessagetext(self, params: dict[str, Any]) -> Any:
        sent = self._edited(params)
        text, entities = self._read_text(params, "text", LONGEST_TEXT)
        markup = params.get("reply_markup")
        if (text, entities, markup) == (sent.text, sent.entities, sent.reply_markup):
            raise Refusal(
                400, "Bad Request: message is not modified: specified new message content is exactly the same"
            )
        sent.text, sent.entities, sent.reply_markup = text, entities, markup
        sent.edits += 1
        sent.states.append(text)
        self.edit_times.append((sent.message_id, trio.current_time()))
        return self._as_json(sent)

    def _editmessagereplymarkup(self, params: dict[str, Any]) -> Any:
        sent = self._edited(params)
        sent.reply_markup = params.get("reply_markup")
        return self._as_json(sent)

    def _deletemessage(self, params: dict[str, Any]) -> Any:
        chat_id, message_id = self._open_chat(params), int(params.get("message_id") or 0)
        for sent in self.messages:
            if (sent.chat_id, sent.message_id) == (chat_id, message_id) and not sent.is_deleted:
                sent.is_deleted = True
                return True
        raise Refusal(400, "Bad Request: message to delete not found")

    def _sendchataction(self, params: dict[str, Any]) -> Any:
        self.actions.append((self._open_chat(params), params["action"], trio.current_time()))
        return True

    def _answercallbackquery(self, params: dict[str, Any]) -> Any:
        if len(str(params.get("text") or "")) > 200:
            raise Refusal(400, "Bad Request: MESSAGE_TOO_LONG")
        self.clicks[str(params["callback_query_id"])] = params
        return True

    def _sendphoto(self, params: dict[str, Any]) -> Any:
        return self._send_file("photo", params)

    def _sendvoice(self, params: dict[str, Any]) -> Any:
        return self._send_file("voice", params)

    def _senddocument(self, params: dict[str, Any]) -> Any:
        return self._send_file("document", params)

    def _send_file(self, kind: str, params: dict[str, Any]) -> Any:
        chat_id = self._open_chat(params)
        if not isinstance(params.get(kind), tuple):
            raise Refusal(400, "Bad Request: there is no file in the request")
        name, data = params[kind]
        text, entities = self._read_text(params, "caption", LONGEST_CAPTION)
        return self._keep(chat_id, text, entities, params, (kind, name, data))

    def _getfile(self, params: dict[str, Any]) -> Any:
        file_id = str(params.get("file_id"))
        if file_id not in self.files:
            raise Refusal(400, "Bad Request: invalid file_id")
        size = len(self.files[file_id])
        if size > 20 << 20:
            raise Refusal(400, "Bad Request: file is too big")
        return {"file_id": file_id, "file_unique_id": f"u{file_id}", "file_size": size, "file_path": file_id}


# ------------------------------------------------------------------ parameters


def read_params(request: ServiceRequest) -> dict[str, Any]:
    """Return the parameters of a call: query, JSON, a form, or a form with files, each as (name, bytes)."""
    params: dict[str, Any] = dict(parse_qsl(request.target.partition("?")[2]))
    kind = request.headers.get("content-type", "")
    if kind.startswith("application/json"):
        given = json.loads(request.body or b"{}")
        if not isinstance(given, dict):
            raise Refusal(400, "Bad Request: object expected")
        return params | given
    if kind.startswith("application/x-www-form-urlencoded"):
        params |= dict(parse_qsl(request.body.decode(), keep_blank_values=True))
    elif kind.startswith("multipart/form-data"):
        params |= _read_form(kind, request.body)
    for name in _JSON_FIELDS:
        if isinstance(params.get(name), str):
            params[name] = json.loads(params[name])
    return params


def _read_form(kind: str, body: bytes) -> Mapping[str, Any]:
    message = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    found: dict[str, Any] = {}
    for part in message.iter_parts():
        content = part.get_payload(decode=True)
        content = content if isinstance(content, bytes) else b""
        name, file_name = part.get_param("name", header="content-disposition"), part.get_filename()
        found[str(name)] = content.decode() if file_name is None else (file_name, content)
    return found
