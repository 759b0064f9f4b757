"""Notifications of browsers. `pegasus.push` is imported when the first client of the HTTP server, or a subscription, needs it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors import ActorError, Inbox
from pegasus.access import ListApprovals, WebSessions
from pegasus.app.approval_texts import notice_of
from pegasus.app.approvals import ANSWER_TIMEOUT
from pegasus.app.services import Services
from pegasus.gateway import Listeners
from pegasus.host import Home
from pegasus.messages import ApprovalNotice
from pegasus.settings import LiveValue, PushSettings
from pegasus.storage import KeyedStore, until_wanted, while_owner

if TYPE_CHECKING:
    from pegasus.push import PushServices
    from pegasus.web import Operation

LOOK: Final = 5.0
"""Seconds between two looks at what other nodes have said."""


@attrs.define(eq=False, repr=False, slots=False)
class BrowserPush:
    """Notifications, as the daemon starts them."""

    _services: Services
    _sessions: WebSessions
    _listeners: Listeners
    _home: Home
    _asked: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when a client can subscribe."""
    _settings: LiveValue[PushSettings] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._settings = self._services.environment.in_force.follow(lambda settings: settings.push, "push.")

    def operations(self) -> Sequence[Operation]:
        """Return the routes of the HTTP server. Called in a thread."""
        from pegasus.push import push_operations

        operations = push_operations(self._push)
        trio.from_thread.run_sync(self._asked.set)
        return operations

    async def run(self, inbox: Inbox[object]) -> None:
        """Notify browsers until cancelled."""
        inbox.started()
        journal, is_shared = self._services.journal, self._services.environment.is_shared
        stored = KeyedStore("push-subscriptions", lambda name, value: (name, value))
        await stored.open(journal)
        if stored.is_read and not stored.rows:
            await until_wanted(journal, "push-subscriptions", self._asked)
        from pegasus.push import run_pusher

        async with trio.open_nursery() as nursery:
            if is_shared:
                nursery.start_soon(self._push.book.follow)
            # One node notifies a browser: it is told of each thing once.
            await while_owner(journal, "push", partial(run_pusher, self._push))

    @cached_property
    def _push(self) -> PushServices:
        from pegasus.push import PushBook, PushServices

        environment, journal = self._services.environment, self._services.journal
        persona = environment.persona
        return PushServices(
            book=PushBook(self._sessions, journal),
            journal=journal,
            listeners=self._listeners,
            open_notices=self._open_notices,
            owners=environment.owners,
            settings=self._settings,
            contact=self._contact,
            agent=lambda: persona.now.name,
            clean=environment.secrets.redact,
            key_file=self._home.push_key,
            clock=environment.clock,
            random=environment.random,
            look=LOOK if environment.is_shared else math.inf,
        )

    async def _open_notices(self) -> Sequence[ApprovalNotice] | None:
        """Return the approvals that wait; None if the keeper does not answer."""
        try:
            waiting = await self._services.approvals.approvals.ask(ListApprovals, timeout=ANSWER_TIMEOUT)
        except ActorError:
            return None
        return [notice_of(approval) for approval in waiting]

    def _contact(self) -> str:
        """Return where those who run a push service reach the owner. Without a setting there is only the name of a machine."""
        settings = self._services.environment.in_force.now
        public = settings.http.public_url
        return settings.push.contact or (public if public.startswith("https://") else "mailto:owner@localhost")
