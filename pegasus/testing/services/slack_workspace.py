"""Fake Slack: a workspace with people, conversations, files and one installed app, behind the methods of the Web API.

    slack = SlackWorkspace()
    anna = slack.add_user("anna")
    general = slack.add_channel("general", members=[anna])

It answers as api.slack.com documents and is as strict as a test can use: unknown methods, wrong tokens, texts and blocks beyond the
limits and conversations without the app are refused with Slack's error codes. `fault` makes calls fail on demand. What the app has
written is in `posts`, every call in `calls`.

What it does not do: tokens have all scopes, all channels are public, and no call is limited unless `fault` says so. Threads need no
first message. What the app posts makes no events. Changing and deleting is possible for the app's own posts of any age.

To add a method of the Web API, write a method of its name behind an underscore, with underscores for its dots: it gets the parameters
and returns the fields of the answer besides `ok`, or raises SlackRefusal with the error code that Slack documents.

This file has no I/O. `slack_server` serves it over HTTP and WebSocket, and `slack_events` makes the events of people. The official
`slack-sdk` is the oracle: tests/pegasus/testing/test_slack_server.py lets it talk to this fake.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio

from pegasus.messages import Json
from pegasus.testing.services.slack_calls import (
    SlackCall,
    SlackHttpAnswer,
    SlackHttpRequest,
    SlackRefusal,
    check_block,
    parse_parameters,
)
from pegasus.wire import decode_object, encode_json

BOT_TOKEN: Final = "xoxb-1-test"  # noqa: S105
APP_TOKEN: Final = "xapp-1-test"  # noqa: S105
SIGNING_SECRET: Final = "8f742231b10e8888abcd99yyyzzz85a5"  # noqa: S105
TEAM: Final = "T0TEAM"
APP: Final = "A0APP"
BOT_USER: Final = "U0PEGASUS"
BOT: Final = "B0PEGASUS"

LONGEST_TEXT: Final = 40_000
"""Characters of a message's text. The service cuts longer ones; the fake refuses them, so that nothing is lost unseen."""
MOST_BLOCKS: Final = 50
"""Blocks of a message."""
PAGE: Final = 200
"""Entries of a page of a list; the service gives fewer than asked for at any time."""


@attrs.define
class SlackPost:
    """A message that the app has written, with its last text. Example: `[post] = slack.posts; post.versions`."""

    channel: str
    """Id of the conversation."""
    ts: str
    text: str
    thread_ts: str | None
    """Thread that it belongs to; None for none."""
    blocks: Sequence[Mapping[str, Any]]
    """Blocks of its last text, such as buttons."""
    metadata: Mapping[str, Any] | None
    """Values that the app has put with it, unseen by people."""
    at: float
    """Time of the post, on Trio's clock."""
    versions: list[str] = attrs.field(factory=list)
    """Texts that an update has replaced, oldest first."""
    is_deleted: bool = False
    """The app has deleted it."""


@attrs.define
class SlackFile:
    """A file of the workspace.

    Example: `message_event(slack, dm, anna, "see", files=[slack.add_file("a.txt", "text/plain", b"A")])`.
    """

    id: str
    """Id, which its address has in it."""
    name: str
    """Name as people see it."""
    mime: str
    """MIME type that the service names."""
    data: bytes = b""
    """Content."""
    is_complete: bool = False
    """Shared, not only uploaded."""
    channel: str = ""
    """Conversation that the app has shared it in; "" for files of people."""
    thread_ts: str | None = None
    """Thread that it was shared in; None for none."""
    redirect: str = ""
    """Address that its download is redirected to."""

    def view(self) -> dict[str, Any]:
        """Return the file as events and answers show it."""
        url = f"https://files.slack.com/files-pri/{TEAM}-{self.id}/{self.name}"
        return {
            "id": self.id,
            "name": self.name,
            "title": self.name,
            "mimetype": self.mime,
            "size": len(self.data),
            "mode": "hosted",
            "is_external": False,
            "url_private": url,
            "url_private_download": url.replace(self.id, f"{self.id}/download"),
        }


class SlackWorkspace:
    """State of a workspace, for tests to look at and to change at any time.

    Example: see the top of this file.
    """

    def __init__(self, *, start: int = 1_772_020_800) -> None:
        """start: wall clock at Trio's time 0, seconds."""
        self.bot_token = BOT_TOKEN
        """The only bot token that counts; another value revokes what clients have."""
        self.app_token = APP_TOKEN
        self.users: dict[str, dict[str, Any]] = {}
        self.channels: dict[str, dict[str, Any]] = {}
        self.members: dict[str, set[str]] = {}
        """Ids of the users in each conversation, the app's included."""
        self.files: dict[str, SlackFile] = {}
        self.posts: list[SlackPost] = []
        """Messages of the app, in the order in which they were posted."""
        self.threads: dict[tuple[str, str], list[dict[str, Any]]] = {}
        """Messages of people in threads, by conversation and root, in the form of `conversations.replies`."""
        self.closed_threads: dict[tuple[str, str | None], str] = {}
        """Threads that take no message, by conversation and root, with the code of the refusal."""
        self.ephemeral: list[tuple[str, str, str]] = []
        """Messages that only one person sees: conversation, user, text."""
        self.statuses: list[tuple[str, str, str]] = []
        """Calls of assistant.threads.setStatus: channel, thread_ts, status."""
        self.responses: list[dict[str, Any]] = []
        """Messages that were sent to the response_url of a slash command or a button."""
        self.assistant_threads: set[tuple[str, str]] = set()
        """Threads that belong to an assistant, as channel and thread_ts."""
        self.calls: list[SlackCall] = []
        self.fault: Callable[[SlackCall], SlackHttpAnswer | None] = lambda call: None
        """Decides whether a call fails; see `refused`, `rate_limited`, `broken` and `hung_up`."""
        self.tickets: set[str] = set()
        """Tickets of WebSocket addresses that were not used yet."""
        self.base = ""
        """Address of the server, "" for the service's own names, which only a transport in memory can reach."""
        self.file_delay = 0.0
        """Seconds that a download takes."""
        self.foreign: list[SlackHttpRequest] = []
        """Requests to hosts that are not Slack's."""
        self._start = start
        self._numbers = itertools.count(1)
        self._changed = trio.Event()
        self.add_user("pegasus", id=BOT_USER, is_bot=True)

    # ---------------------------------------------------------------- for tests

    def add_user(self, name: str, *, shown: str = "", id: str = "", is_bot: bool = False) -> str:
        """Add a person or bot and return its id. name: the handle. shown: the display name, by default the handle."""
        id = id or f"U{next(self._numbers):07d}"
        profile = {"display_name": shown or name, "real_name": shown or name}
        self.users[id] = {"id": id, "name": name, "deleted": False, "is_bot": is_bot, "profile": profile}
        return id

    def add_channel(
        self, name: str, *, members: Sequence[str] = (), has_app: bool = True, archived: bool = False
    ) -> str:
        """Add a public channel and return its id. has_app: whether the app was invited."""
        id = f"C{next(self._numbers):07d}"
        self.channels[id] = {"id": id, "name": name, "is_channel": True, "is_im": False, "is_archived": archived}
        self.members[id] = {*members, *([BOT_USER] if has_app else [])}
        return id

    def open_dm(self, user: str) -> str:
        """Return the id of the direct conversation between the app and a user."""
        for id, channel in self.channels.items():
            if channel.get("user") == user:
                return id
        id = f"D{next(self._numbers):07d}"
        self.channels[id] = {"id": id, "is_im": True, "is_archived": False, "user": user}
        self.members[id] = {user, BOT_USER}
        return id

    def add_file(self, name: str, mime: str, data: bytes, redirect: str = "") -> SlackFile:
        """Add a file that somebody has shared. redirect: where its download leads."""
        file = SlackFile(f"F{next(self._numbers):07d}", name, mime, data, is_complete=True, redirect=redirect)
        self.files[file.id] = file
        return file

    def new_ts(self) -> str:
        """Return a timestamp that no message has yet; they grow."""
        number = next(self._numbers)
        return f"{self.now() + number / 1e6:.6f}"

    def now(self) -> float:
        """Return the wall clock in seconds; it follows Trio's clock."""
        return self._start + trio.current_time()

    def texts(self, channel: str | None = None) -> list[str]:
        """Return the texts of the app's messages, those of one conversation or all."""
        return [post.text for post in self.posts if channel in (None, post.channel) and not post.is_deleted]

    def called(self, method: str) -> list[SlackCall]:
        """Return the calls of one method."""
        return [call for call in self.calls if call.method == method]

    async def until(self, condition: Callable[[SlackWorkspace], bool]) -> None:
        """Wait until a condition holds. It is checked again whenever a call was answered or a socket has changed."""
        while not condition(self):
            await self._changed.wait()

    def notify(self) -> None:
        """Let `until` check its condition again."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    # ---------------------------------------------------------------- requests

    def handle(self, request: SlackHttpRequest) -> SlackHttpAnswer:
        """Answer a request of HTTP: a method of the Web API, an upload, a download, or a response_url."""
        parts = urlsplit(request.url)
        host = parts.netloc
        if host and not self.base and not (host == "slack.com" or host.endswith(".slack.com")):
            self.foreign.append(request)
            return SlackHttpAnswer(200, b"not Slack")
        try:
            if parts.path.startswith("/api/"):
                return self._handle_call(parts.path.removeprefix("/api/"), request)
            if parts.path.startswith("/upload/"):
                return self._take_upload(parts.path.rsplit("/", 1)[1], request)
            if parts.path.startswith("/files-pri/"):
                return self._give_file(parts.path, request)
            if parts.path.startswith("/commands/"):
                self.responses.append(decode_object(request.body))
                return SlackHttpAnswer(200, b"ok")
            return SlackHttpAnswer(404, b"not found")
        finally:
            self.notify()

    def _handle_call(self, method: str, request: SlackHttpRequest) -> SlackHttpAnswer:
        """Answer a method of the Web API. A fault that is late comes in place of the answer, after the call has taken effect."""
        params = parse_parameters(request)
        token = request.headers.get("authorization", "").removeprefix("Bearer ") or str(params.pop("token", ""))
        params.pop("token", None)
        call = SlackCall(method, params, trio.current_time())
        # Recorded before the token is checked, so that a test sees calls with a wrong one.
        self.calls.append(call)
        fault = self.fault(call)
        if fault is not None and not fault.is_late:
            return fault
        try:
            # The order of the service: token, then method, then parameters.
            self._check_token(method, token)
            function = getattr(self, "_" + re.sub(r"[.]", "_", method), None)
            if function is None:
                raise SlackRefusal("unknown_method", req_method=method)
            result: dict[str, Any] = {"ok": True, **function(params)}
        except SlackRefusal as error:
            result = {"ok": False, "error": error.code, **error.details}
        return fault or SlackHttpAnswer(
            200, encode_json(result).encode(), {"content-type": "application/json; charset=utf-8"}
        )

    def _check_token(self, method: str, token: str) -> None:
        """Raise SlackRefusal unless a call has the token for its method: the app's for opening sockets, the bot's for all else."""
        if not token:
            raise SlackRefusal("not_authed")
        wanted = self.app_token if method == "apps.connections.open" else self.bot_token
        if token == wanted:
            return
        if token in (self.app_token, self.bot_token):
            raise SlackRefusal("not_allowed_token_type")
        raise SlackRefusal("invalid_auth")

    def _take_upload(self, id: str, request: SlackHttpRequest) -> SlackHttpAnswer:
        """Keep the content of an upload. The file is not visible before files.completeUploadExternal."""
        file = self.files.get(id)
        if file is None:
            return SlackHttpAnswer(404, b"no such upload")
        file.data = request.body
        return SlackHttpAnswer(200, f"OK - {len(request.body)}".encode())

    def _give_file(self, path: str, request: SlackHttpRequest) -> SlackHttpAnswer:
        """Answer a download. Without the token Slack shows the page to sign in, with status 200."""
        found = re.match(rf"/files-pri/{TEAM}-(\w+)/", path)
        file = self.files.get(found[1]) if found else None
        if file is None:
            return SlackHttpAnswer(404, b"no such file")
        if file.redirect:
            return SlackHttpAnswer(302, b"", {"location": file.redirect})
        if request.headers.get("authorization") != f"Bearer {self.bot_token}":
            return SlackHttpAnswer(200, b"<html>Sign in", {"content-type": "text/html; charset=utf-8"})
        return SlackHttpAnswer(200, file.data, {"content-type": file.mime})

    # ---------------------------------------------------------------- methods of the Web API

    def _auth_test(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"url": "https://test.slack.com/", "team": "test", "user": "pegasus"} | {
            "team_id": TEAM,
            "user_id": BOT_USER,
            "bot_id": BOT,
        }

    def _apps_connections_open(self, params: Mapping[str, Any]) -> dict[str, Any]:
        ticket = f"ticket-{next(self._numbers)}"
        self.tickets.add(ticket)
        base = self.base.replace("http", "ws", 1) or "wss://wss-primary.slack.com"
        return {"url": f"{base}/link/?ticket={ticket}&app_id={APP}"}

    def _conversation(self, params: Mapping[str, Any], key: str = "channel") -> str:
        """Return the conversation of a call, which the app must be able to see."""
        id = str(params.get(key) or "")
        # A user's id stands for the direct conversation with them, as in chat.postMessage of the service.
        if id in self.users and id != BOT_USER:
            return self.open_dm(id)
        if id not in self.channels:
            raise SlackRefusal("channel_not_found")
        return id

    def _chat_postMessage(self, params: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._conversation(params)
        if BOT_USER not in self.members[channel]:
            raise SlackRefusal("not_in_channel")
        if self.channels[channel]["is_archived"]:
            raise SlackRefusal("is_archived")
        text, blocks = self._check_content(params)
        thread = str(params["thread_ts"]) if params.get("thread_ts") else None
        if (channel, thread) in self.closed_threads:
            raise SlackRefusal(self.closed_threads[channel, str(thread)])
        metadata = params.get("metadata")
        post = SlackPost(channel, self.new_ts(), text, thread, blocks, metadata, trio.current_time())
        self.posts.append(post)
        return {"channel": channel, "ts": post.ts, "message": self._view(post)}

    def _chat_update(self, params: Mapping[str, Any]) -> dict[str, Any]:
        post = self._own_post(params, "cant_update_message")
        text, blocks = self._check_content(params)
        post.versions.append(post.text)
        post.text, post.blocks = text, blocks
        post.metadata = params.get("metadata", post.metadata)
        return {"channel": post.channel, "ts": post.ts, "text": text, "message": self._view(post)}

    def _chat_delete(self, params: Mapping[str, Any]) -> dict[str, Any]:
        post = self._own_post(params, "cant_delete_message")
        post.is_deleted = True
        return {"channel": post.channel, "ts": post.ts}

    def _own_post(self, params: Mapping[str, Any], code: str) -> SlackPost:
        """Return the app's message that a call is about. code: the refusal for a deleted one."""
        channel = self._conversation(params)
        found = [post for post in self.posts if (post.channel, post.ts) == (channel, params.get("ts"))]
        if not found or found[0].is_deleted:
            raise SlackRefusal("message_not_found" if not found else code)
        return found[0]

    def _check_content(self, params: Mapping[str, Any]) -> tuple[str, Sequence[Mapping[str, Any]]]:
        """Return text and blocks, which must be within the limits."""
        text, blocks = str(params.get("text") or ""), params.get("blocks") or []
        if not text and not blocks:
            raise SlackRefusal("no_text")
        if len(text) > LONGEST_TEXT:
            raise SlackRefusal("msg_too_long")
        if len(blocks) > MOST_BLOCKS:
            raise SlackRefusal("invalid_blocks")
        for block in blocks:
            check_block(block)
        return text, blocks

    def _view(self, post: SlackPost) -> dict[str, Any]:
        """Return a message as answers show it."""
        view: dict[str, Any] = {"type": "message", "user": BOT_USER, "bot_id": BOT, "text": post.text, "ts": post.ts}
        view |= {"thread_ts": post.thread_ts} if post.thread_ts else {}
        view |= {"metadata": post.metadata} if post.metadata else {}
        return view | {"blocks": list(post.blocks)}

    def _conversations_history(self, params: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._conversation(params)
        found = [post for post in self.posts if post.channel == channel and not post.thread_ts and not post.is_deleted]
        return self._messages(found[::-1], params)

    def _conversations_replies(self, params: Mapping[str, Any]) -> dict[str, Any]:
        key = self._conversation(params), str(params.get("ts"))
        found = [post for post in self.posts if (post.channel, post.thread_ts) == key and not post.is_deleted]
        page = self._messages(found, params)
        # The root comes first on each page, whatever the bounds say.
        before = float(params.get("latest") or "inf")
        people = [each for each in self.threads.get(key, ()) if float(each["ts"]) < before]
        return page | {"messages": sorted([*people, *page["messages"]], key=lambda each: float(each["ts"]))}

    def _messages(self, posts: Sequence[SlackPost], params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a page of messages, those newer than `oldest`."""
        oldest = float(params.get("oldest") or 0)
        page = self._page("messages", [self._view(post) for post in posts if float(post.ts) > oldest], params)
        return page | {"has_more": bool(page["response_metadata"]["next_cursor"])}

    def _chat_postEphemeral(self, params: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._conversation(params)
        if params.get("user") not in self.members[channel]:
            raise SlackRefusal("user_not_in_channel")
        self._check_content(params)
        self.ephemeral.append((channel, str(params["user"]), str(params["text"])))
        return {"message_ts": self.new_ts()}

    def _conversations_info(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"channel": self.channels[self._conversation(params)]}

    def _conversations_open(self, params: Mapping[str, Any]) -> dict[str, Any]:
        user = str(params.get("users") or "")
        if user not in self.users:
            raise SlackRefusal("user_not_found")
        if self.users[user]["is_bot"]:
            raise SlackRefusal("cannot_dm_bot")
        return {"channel": {"id": self.open_dm(user)}}

    def _conversations_list(self, params: Mapping[str, Any]) -> dict[str, Any]:
        kinds = str(params.get("types") or "public_channel").split(",")
        found = [each for each in self.channels.values() if ("im" if each["is_im"] else "public_channel") in kinds]
        return self._page("channels", found, params)

    def _users_info(self, params: Mapping[str, Any]) -> dict[str, Any]:
        user = self.users.get(str(params.get("user")))
        if user is None:
            raise SlackRefusal("user_not_found")
        return {"user": user}

    def _users_list(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return self._page("members", list(self.users.values()), params)

    def _page(self, name: str, entries: Sequence[Json], params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a page of a list; the cursor is the place where the next one begins."""
        begin, size = int(params.get("cursor") or 0), min(int(params.get("limit") or PAGE), PAGE)
        rest = str(begin + size) if begin + size < len(entries) else ""
        return {name: entries[begin : begin + size], "response_metadata": {"next_cursor": rest}}

    def _files_getUploadURLExternal(self, params: Mapping[str, Any]) -> dict[str, Any]:
        if not params.get("filename") or int(params.get("length") or 0) <= 0:
            raise SlackRefusal("invalid_arguments")
        file = SlackFile(f"F{next(self._numbers):07d}", str(params["filename"]), "application/octet-stream")
        self.files[file.id] = file
        return {
            "upload_url": f"{self.base or 'https://files.slack.com'}/upload/v1/{file.id}",
            "file_id": file.id,
        }

    def _files_completeUploadExternal(self, params: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._conversation(params, "channel_id") if params.get("channel_id") else ""
        given = params.get("files") or []
        for entry in given:
            file = self.files.get(entry.get("id", ""))
            if file is None or file.is_complete:
                raise SlackRefusal("file_not_found" if file is None else "invalid_arguments")
            file.is_complete, file.channel = True, channel
            file.thread_ts = str(params["thread_ts"]) if params.get("thread_ts") else None
        return {"files": [self.files[entry["id"]].view() for entry in given]}

    def _files_info(self, params: Mapping[str, Any]) -> dict[str, Any]:
        file = self.files.get(str(params.get("file")))
        if file is None:
            raise SlackRefusal("file_not_found")
        places = [file.channel] if file.is_complete and file.channel else []
        kinds = {"ims": [id for id in places if id.startswith("D")], "groups": []}
        return {"file": file.view() | kinds | {"channels": [id for id in places if not id.startswith("D")]}}

    def _assistant_threads_setStatus(self, params: Mapping[str, Any]) -> dict[str, Any]:
        key = str(params.get("channel_id")), str(params.get("thread_ts"))
        if key not in self.assistant_threads:
            raise SlackRefusal("channel_not_found")
        self.statuses.append((*key, str(params.get("status"))))
        return {}
