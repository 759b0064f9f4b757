"""The operations of the protocol, whichever binding asks for them.

A message begins a task directly; no turn of a conversation stands between. The id of the task follows from the token and the id of the
message, so a message that is sent again, also after a crash, is the same task. A message that names a task answers its question.

A client sees the tasks that its token has begun over this protocol and no others: every other task does not exist for it. Its contexts
are conversations below its token. The work has the rights that the token has; what the message says has never the weight of words that
an owner has typed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import attrs

from pegasus.a2a.errors import (
    INTERNAL,
    TASK_NOT_CANCELABLE,
    TASK_NOT_FOUND,
    UNSUPPORTED_OPERATION,
    A2aError,
    bad_params,
    no_such_task,
)
from pegasus.a2a.forms import (
    ConfigForm,
    ListForm,
    MessageForm,
    PushForm,
    SendForm,
    TaskForm,
    check_history,
    check_message,
    content_of,
    page_of,
)
from pegasus.a2a.push import PushTarget, PushTargets, TooManyTargetsError
from pegasus.a2a.record import INPUT_REQUIRED, INTERRUPTED, TaskClient, TaskRecord, client_of
from pegasus.a2a.watch import LOOK, TaskWatch
from pegasus.access import AccessDenied, Principal, TokenGrant
from pegasus.conversation import keep_media
from pegasus.formatting import quote
from pegasus.intake import TooManyMessages, is_name
from pegasus.messages import A2A_CLIENT, InboundMessage, Json
from pegasus.outside import Untrusted, outside_metadata
from pegasus.tasks import (
    DEFAULT_TASK_TYPE,
    Cancel,
    LatestTasks,
    Resume,
    Submit,
    TaskError,
    TaskView,
    task_id_of,
    wait_until_running,
)
from pegasus.tools import AddressGuard, ToolError
from pegasus.web import ApiRequest, WebServices, failures_as_errors, message_of
from pegasus.wire import to_wire

API: Final = "api"
"""Channel type of conversations of programs, unless the token names another one."""
MOST_LISTED: Final = 300
"""The newest tasks of the agent, among which a list looks for those of a client. Each that is not in memory costs a read of a log."""
_TASK_ID: Final = re.compile(r"[0-9a-f]{16}")
_CURSOR: Final = re.compile(r"(\d{1,16})-([0-9a-f]{16})")


class A2aService:
    """The operations."""

    def __init__(
        self, services: WebServices, targets: PushTargets, watch: TaskWatch, guard: Callable[[], AddressGuard]
    ) -> None:
        """guard: returns what decides about the addresses of push targets, by the settings in force."""
        self._services = services
        self._targets = targets
        self._guard = guard
        self.watch = watch

    # ---------------------------------------------------------------- messages

    async def send(self, request: ApiRequest, form: SendForm, *, waits: bool = False) -> TaskRecord:
        """Begin a task, or answer one; return it when that is on disk. waits: return a new task when it is at rest."""
        check_message(form.message)
        check_history(form.configuration.history_length)
        with failures_as_errors():
            await wait_until_running(self._services.tasks)
            if form.message.task_id:
                return await self._answer(request, form)
            return await self._begin(request, form, waits=waits)

    async def _begin(self, request: ApiRequest, form: SendForm, *, waits: bool) -> TaskRecord:
        """Begin a task. The push target is kept first, so that no crash leaves a task without it."""
        sent, token = form.message, token_name(request.grant)
        key = f"a2a/{token}/{sent.message_id}"
        task_id = task_id_of(key)
        push = form.configuration.task_push_notification_config
        # `Submit` finds a task that exists by its key. A target that is kept again would get all updates again.
        if push is not None and (known := await self.watch.read_anew(task_id)) is not None:
            return known
        client = TaskClient(token, sent.context_id or f"c-{task_id}", sent.message_id)
        try:
            message, principal = await self._admit(request, sent, client.context)
        except A2aError:
            if (known := await self.watch.read_anew(task_id)) is not None:
                return known
            raise
        text = await self._text_of(message)
        target = await self._put_target(task_id, token, push, 0) if push is not None else None
        labels = () if principal.is_owner else (Untrusted.GUEST,)
        metadata: dict[str, Json] = {
            "channel": to_wire(message.channel),
            **principal.recorded,
            **outside_metadata(labels),
            A2A_CLIENT: to_wire(client),
        }
        submit = partial(
            Submit,
            text=text,
            source=f"a2a/{token or 'home'}",
            task_type=DEFAULT_TASK_TYPE,
            metadata=metadata,
            key=key,
            cause=f"message {message.channel.address} {sent.message_id}",
        )
        with self.watch.listen(task_id) as news:
            news.has_begun = True  # its first thought is no rest
            try:
                await self._services.tasks.ask(submit)
            except TaskError as error:
                if target is not None:
                    await self._targets.delete([target.key])
                raise _overloaded(str(error)) from None
            if not waits:
                return await self._own(request, task_id)
            if news.is_new:  # its log need not be read before there is news
                await news.wait(LOOK)
            return await self.wait_for_rest(task_id)

    async def _answer(self, request: ApiRequest, form: SendForm) -> TaskRecord:
        """Answer a task that waits. The same message again changes nothing."""
        sent = form.message
        record = await self._own(request, sent.task_id)
        if sent.context_id and sent.context_id != record.client.context:
            raise bad_params("message.contextId", "this is not the context of the task")
        if sent.message_id in {record.client.message, *record.heard}:
            return record
        if record.is_over:
            raise A2aError(
                UNSUPPORTED_OPERATION, f"the task is over ({record.state}); send a new message", taskId=record.task_id
            )
        if record.state not in INTERRUPTED:
            raise A2aError(
                UNSUPPORTED_OPERATION, "the task works; it takes a message when it asks", taskId=record.task_id
            )
        message, principal = await self._admit(request, sent, record.client.context)
        text = await self._text_of(message)
        if (push := form.configuration.task_push_notification_config) is not None:
            await self._put_target(record.task_id, record.client.token, push, len(record.updates))
        outside = () if principal.is_owner else (Untrusted.GUEST,)
        try:
            await self._services.tasks.ask(Resume, record.task_id, text, sent.message_id, outside)
        except TaskError as error:  # another message was quicker, or it was this one
            record = await self._own(request, record.task_id)
            if sent.message_id not in record.heard:
                raise A2aError(UNSUPPORTED_OPERATION, str(error), taskId=record.task_id) from None
            return record
        return await self._own(request, record.task_id)

    async def _admit(self, request: ApiRequest, sent: MessageForm, context: str) -> tuple[InboundMessage, Principal]:
        """Return a message of a client that may be taken, with what its sender has proved, and the sender."""
        grant = request.grant
        if grant.token.bridge:
            raise A2aError(attrs.evolve(INTERNAL, status=403), "the token of a bridge has no conversation of its own")
        content = content_of(sent.parts)
        is_bound = bool(grant.token.channel_id) and not grant.is_home
        channel: dict[str, Json] = {"type": grant.token.type or API, "channelId": grant.channel_id}
        if not is_bound:
            base = grant.channel_id or "home"
            channel["channelId"] = f"{base}/{context}"
            if not grant.is_home:  # rules and limits know the client by its token, whatever the context
                channel["userId"] = base
        fields: dict[str, Json] = {"id": sent.message_id, "text": content.text, "channel": channel}
        message = message_of(request, {**fields, "media": list(content.media) or None})
        try:
            return await self._services.intake.admit(message, grant, is_bridge=False)
        except TooManyMessages as error:
            raise _overloaded(str(error)) from None
        except AccessDenied as error:
            raise A2aError(attrs.evolve(INTERNAL, status=403, rpc_status="PERMISSION_DENIED"), str(error)) from None

    async def _text_of(self, message: InboundMessage) -> str:
        """Return the text for the task, with its files, which are on disk then."""
        kept = await keep_media(self._services.intake.journal, message.media)
        text = "\n\n".join(part for part in (message.text, *kept.labels) if part)
        if not text.strip():
            raise bad_params("message.parts", "found no text and no file")
        return text

    # ---------------------------------------------------------------- tasks

    async def _own(self, request: ApiRequest, task_id: str) -> TaskRecord:
        """Return a task of this client. Raises A2aError for any other."""
        record = await self.watch.read_anew(task_id) if _TASK_ID.fullmatch(task_id) else None
        if record is None or record.client.token != token_name(request.grant):
            raise no_such_task(task_id)
        return record

    async def get(self, request: ApiRequest, form: TaskForm) -> TaskRecord:
        """Return a task."""
        check_history(form.history_length)
        with failures_as_errors():
            await wait_until_running(self._services.tasks)
            return await self._own(request, form.id)

    async def wait_for_rest(self, task_id: str) -> TaskRecord:
        """Return a task when it is over, or waits for somebody."""
        with self.watch.listen(task_id) as news:
            news.has_begun = True
            while True:
                with failures_as_errors():
                    record = await self.watch.read(task_id)
                if record is None:
                    raise no_such_task(task_id)
                if record.is_at_rest:
                    return record
                await news.wait(LOOK)

    async def subscribe(self, request: ApiRequest, form: TaskForm) -> TaskRecord:
        """Return a task that can be followed."""
        record = await self.get(request, form)
        if record.is_over:
            raise A2aError(UNSUPPORTED_OPERATION, f"the task is over ({record.state})", taskId=record.task_id)
        return record

    async def cancel(self, request: ApiRequest, form: TaskForm) -> TaskRecord:
        """End a task; return it when nothing of it runs any more."""
        record = await self.get(request, form)
        if not record.is_over:
            with failures_as_errors():
                try:
                    await self._services.tasks.ask(Cancel, record.task_id, "its client")
                    return await self._ended(record)
                except TaskError:  # it has ended meanwhile
                    record = await self._own(request, record.task_id)
        raise A2aError(TASK_NOT_CANCELABLE, f"the task is over ({record.state})", taskId=record.task_id)

    async def _ended(self, record: TaskRecord) -> TaskRecord:
        """Return a task that was ended, when its log says so."""
        with self.watch.listen(record.task_id) as news:
            news.has_begun = True
            while not (found := await self.watch.read(record.task_id) or record).is_over:
                await news.wait(LOOK)
            return found

    async def list(self, request: ApiRequest, form: ListForm) -> dict[str, Json]:
        """Return a page of the client's tasks, the last changed first."""
        page = page_of(form)
        cursor = _CURSOR.fullmatch(form.page_token)
        if form.page_token and cursor is None:
            raise bad_params("pageToken", "allowed: the nextPageToken of an earlier answer")
        with failures_as_errors():
            await wait_until_running(self._services.tasks)
            views: Sequence[TaskView] = await self._services.tasks.ask(LatestTasks, MOST_LISTED)
            found: list[TaskRecord] = []
            for view in views:
                client = client_of(view.metadata)
                if client is None or client.token != token_name(request.grant):
                    continue
                if form.context_id not in ("", client.context):
                    continue
                record = await self.watch.read_anew(view.task_id)
                if record is not None and record.at >= page.since and (not page.states or record.state in page.states):
                    found.append(record)
        found.sort(key=lambda record: (-record.at, record.task_id))
        total = len(found)
        if cursor is not None:
            last = (-int(cursor[1]), cursor[2])
            found = [record for record in found if (-record.at, record.task_id) > last]
        shown, has_more = found[: page.size], len(found) > page.size
        return {
            "tasks": [each.json(form.history_length, artifacts=form.include_artifacts) for each in shown],
            "nextPageToken": f"{shown[-1].at}-{shown[-1].task_id}" if has_more else "",
            "pageSize": page.size,
            "totalSize": total,
        }

    # ---------------------------------------------------------------- push targets

    async def put_target(self, request: ApiRequest, form: PushForm) -> dict[str, Json]:
        """Keep a target of a task, and return it. It gets what happens from now on."""
        record = await self.get(request, TaskForm(form.task_id))
        with failures_as_errors():
            target = await self._put_target(record.task_id, record.client.token, form, len(record.updates))
        return target.json()

    async def _put_target(self, task_id: str, token: str, form: PushForm, sent: int) -> PushTarget:
        await self._check_target(form)
        target = PushTarget(
            task_id,
            form.id or f"push-{task_id}",
            form.url,
            token,
            form.token,
            form.authentication.scheme,
            form.authentication.credentials,
            sent,
        )
        try:
            return await self._targets.put(target)
        except TooManyTargetsError as error:
            raise _overloaded(str(error)) from None

    async def _check_target(self, form: PushForm) -> None:
        """Raise A2aError for a target that could never be reached. Names are resolved when something is delivered."""
        if form.id and (not is_name(form.id) or "/" in form.id):
            raise bad_params("id", f'found {quote(form.id, 80)}, allowed: 1 to 256 characters without "/"')
        secrets = (form.token, form.authentication.scheme, form.authentication.credentials)
        if any(len(text) > 4096 or not text.isprintable() or not text.isascii() for text in secrets):
            raise bad_params(
                "authentication", "token, scheme, credentials: allowed: one line of at most 4,096 characters"
            )
        try:
            url = urlsplit(form.url)
            host, port = url.hostname or "", url.port or 443
        except ValueError:
            host = ""
        if not host or url.scheme not in ("http", "https") or len(form.url) > 2048:
            raise bad_params("url", f"found {quote(form.url, 80)}, allowed: an http:// or https:// address")
        if host == "localhost" or not re.search("[g-z]", host.rpartition(".")[2].lower()):
            try:
                await self._guard().addresses(host, port)
            except ToolError as error:
                raise bad_params("url", str(error)) from None

    async def get_target(self, request: ApiRequest, form: ConfigForm) -> dict[str, Json]:
        """Return a target of a task."""
        await self.get(request, TaskForm(form.task_id))
        with failures_as_errors():
            for target in await self._targets.of_task(form.task_id):
                if target.id == form.id:
                    return target.json()
        raise A2aError(TASK_NOT_FOUND, "the task has no such push target", taskId=form.task_id)

    async def list_targets(self, request: ApiRequest, form: ConfigForm) -> dict[str, Json]:
        """Return all targets of a task. They are few, so there is one page."""
        await self.get(request, TaskForm(form.task_id))
        with failures_as_errors():
            return {
                "configs": [target.json() for target in await self._targets.of_task(form.task_id)],
                "nextPageToken": "",
            }

    async def delete_target(self, request: ApiRequest, form: ConfigForm) -> dict[str, Json]:
        """Delete a target of a task. One that does not exist is deleted already."""
        await self.get(request, TaskForm(form.task_id))
        with failures_as_errors():
            await self._targets.delete([f"{form.task_id}/{form.id}"])
        return {}


def token_name(grant: TokenGrant) -> str:
    """Return the name by which the tasks of a token are kept; "" for the owner's."""
    return "" if grant.is_home else grant.name


def closes_stream(record: TaskRecord) -> bool:
    """Return whether a stream of a message ends with this state: it is over, or has asked the client."""
    return record.is_over or record.state == INPUT_REQUIRED


def _overloaded(problem: str) -> A2aError:
    return A2aError(attrs.evolve(INTERNAL, status=429, rpc_status="RESOURCE_EXHAUSTED"), problem)
