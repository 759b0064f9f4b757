"""Web Push: notifications of browsers that have the page, also while it is closed.

The page (`pegasus/web/static`) subscribes with its browser's push service and gives the address here. What is said while nobody looks
is sent there, encrypted so that only the browser can read it, and the page's service worker shows it. docs/user/web.md describes it.

The daemon imports this package when the first client of the HTTP server connects, or at its start if a browser has subscribed. It
imports `pusher`, and what that needs for encryption, when a browser has subscribed.

Read the files in this order; each uses only those before it:

    subscriptions  browsers that are to be notified, and what each was told
    config         the parts of the agent that notifications are made of
    keys           encryption, and the key of the home
    routes         the routes by which a page subscribes
    notices        texts of notifications
    sending        one message to a push service
    pusher         tells each browser what nobody has seen
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from actors import ActorError
from pegasus.late import late_names
from pegasus.push.config import PushServices
from pegasus.push.subscriptions import PushBook
from pegasus.retry import retry
from pegasus.storage import StorageError

if TYPE_CHECKING:
    from pegasus.push.pusher import Pusher
    from pegasus.push.routes import push_operations
else:
    __getattr__ = late_names(__name__)


async def run_pusher(services: PushServices) -> None:
    """Notify browsers until cancelled. What that needs is imported when one has subscribed."""
    book = services.book
    await retry(book.ensure_read, (StorageError, ActorError))
    while not book.rows:
        await book.changed.wait()
    pusher = await trio.to_thread.run_sync(_import_pusher)
    await pusher(services).run()


def _import_pusher() -> type[Pusher]:
    from pegasus.push.pusher import Pusher

    return Pusher


__all__ = ["PushBook", "PushServices", "push_operations", "run_pusher"]
