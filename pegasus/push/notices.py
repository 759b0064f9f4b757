"""Texts of notifications, as the service worker of the page shows them. Pure.

A message is JSON with the words for the screen, so that the service worker needs no connection to show it. `tag` names the
notification: a later one with the same tag takes the place of the first on the screen, and `topic` does the same at the push service,
for a browser that is away.

A button that allows a call is offered only where the notification shows all that would be run. Where it is longer than a notification,
where a person should look twice, and where the browser shows no texts, the button is missing, and the page asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from pegasus.access import shown_subject
from pegasus.formatting import cut_text, plural, truncate
from pegasus.messages import ApprovalNotice, Json, OutboundMessage
from pegasus.policy import make_visible
from pegasus.wire import encode_json

LONGEST_TEXT: Final = 600
"""Characters of a reply that a notification shows. Screens show less; the rest is on the page."""
LONGEST_TITLE: Final = 80
"""Characters of a title."""
LONGEST_CALL: Final = 240
"""Characters of a call that a notification can allow: what screens show when it is opened."""
DAY: Final = 86_400
"""Seconds for which a push service keeps a message for a browser that is away."""


@attrs.frozen(kw_only=True)
class PushNotice:
    """A message for a browser."""

    content: bytes = attrs.field(repr=False)
    """JSON for the service worker."""
    topic: str
    """Name at the push service, by which a later one replaces this."""
    urgency: str = "normal"
    """"high" for what somebody waits for; see RFC 8030, section 5.3."""
    ttl: int = DAY
    """Seconds for which it is of use."""


def reply_notice(agent: str, last: OutboundMessage, more: int, *, with_text: bool) -> PushNotice:
    """Return the notification about replies that nobody has seen: the last one, and so many before it."""
    text = last.text.strip() or plural(len(last.files), "file")
    if not with_text:
        text = "New message" if not more else f"{more + 1} new messages"
    elif more:
        text = f"{text}\n(and {plural(more, 'message')} before)"
    return PushNotice(
        content=_content(kind="reply", tag="reply", title=agent, body=text, seq=last.seq, url="/#/chat"),
        topic="reply",
    )


def approval_notice(
    agent: str, notice: ApprovalNotice, *, with_text: bool, may_decide: bool, now: int, clean: Callable[[str], str]
) -> PushNotice:
    """Return the question about an approval. may_decide: its reader may answer. clean: removes secrets. now: wall clock, ms."""
    subject = shown_subject(notice, clean)
    is_whole = with_text and len(subject) <= LONGEST_CALL and not notice.notes and not notice.question
    decisions: tuple[Json, ...] = (("allow", "deny") if is_whole else ("deny",)) if may_decide else ()
    what = make_visible(notice.tool) if len(notice.all_calls) == 1 else plural(len(notice.all_calls), "call")
    title = f"{agent} asks: {what}" if with_text else f"{agent} asks for your answer"
    body = cut_text(subject, LONGEST_CALL) if with_text else "Open the page to see what it is about."
    content = _content(
        kind="approval",
        tag=f"approval-{notice.id}",
        id=notice.id,
        title=title,
        body=body,
        decisions=[*decisions],
        url="/#/approvals",
    )
    ttl = min(DAY, max(1, (notice.expires - now) // 1000))
    return PushNotice(content=content, topic=f"approval-{notice.id}", urgency="high", ttl=ttl)


def answered_notice(agent: str, id: str, state: str) -> PushNotice:
    """Return what takes the place of a question that waits no more. state: of the approval; "" if it is not known any more."""
    words = {"allowed": "Allowed", "denied": "Denied", "expired": "Not answered in time", "withdrawn": "Withdrawn"}
    body = words.get(state, "Answered")
    content = _content(kind="answered", tag=f"approval-{id}", id=id, title=agent, body=body, url="/#/approvals")
    return PushNotice(content=content, topic=f"approval-{id}")


def _content(*, title: str, body: str, **fields: Json) -> bytes:
    """Return the JSON of a notice. Half of a surrogate pair, which a model may write, becomes "?"."""
    shown = {"title": truncate(title, LONGEST_TITLE), "body": cut_text(body, LONGEST_TEXT)}
    return encode_json({**fields, **shown}).encode("utf-8", "replace")
