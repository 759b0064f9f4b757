"""Buttons below messages: a yes or no to a tool call, and letting somebody in. Only owners may click.

The text stands in blocks of Slack's Block Kit as well as in the message, since blocks replace it. What a button stands for is in its
`value`. Who clicks is looked at with each click: people other than owners see the buttons, too.

The message that asks for an approval is a fact of the delivery log until the answer is there, so the buttons disappear wherever the
answer is given. The text of the question is in memory only: after a restart the answer stands alone.

Source: https://docs.slack.dev/reference/block-kit/blocks
"""

from __future__ import annotations

from typing import Any, Final

from pegasus.access import PAIRING, end_text
from pegasus.channels.delivery_log import DeliveryLog
from pegasus.channels.service_contract import APPROVAL, RateLimited, ServiceContext, ServiceDown, yes_buttons
from pegasus.channels.slack.api import SlackApi, SlackRefused
from pegasus.channels.slack.markup import escape_mrkdwn
from pegasus.channels.slack.reading import TYPE, SlackClick
from pegasus.messages import ApprovalNotice, ChannelInfo, Json, OutboundMessage
from pegasus.observe import get_logger

ALLOW: Final = "allow"
"""`action_id` of the button that allows one call."""
SCOPE: Final = "scope:"
"""Beginning of the `action_id` of a button with a wider yes; its scope follows."""
DENY: Final = "deny"
"""`action_id` of the button that refuses."""
PAIR: Final = "pair"
"""`action_id` of the button that lets somebody in; its value is the code."""
LONGEST_SECTION: Final = 3_000
"""Characters of the text of a block."""
MOST_SECTIONS: Final = 40
"""Blocks of text; a message may have 50 blocks."""


_log = get_logger("slack")


class SlackButtons:
    """Remembers messages with buttons, and handles clicks."""

    def __init__(self, api: SlackApi, log: DeliveryLog, context: ServiceContext) -> None:
        self._api = api
        self._log = log
        self._context = context
        self._questions: dict[str, str] = {}
        """By the id of an approval, the text of the message that asks, as mrkdwn."""

    async def remember(self, reply: OutboundMessage, text: str, channel: str, ts: str) -> None:
        """Note where a message is if it asks for an approval. text: mrkdwn. Returns when that is on disk."""
        if approval := str(reply.metadata.get(APPROVAL) or ""):
            self._questions[approval] = text
            await self._log.set_fact(_approval_key(approval), [channel, ts])

    async def handle(self, click: SlackClick) -> None:
        """Carry out a button for an owner, and show the answer in place of the buttons."""
        # An ephemeral message is seen by the one who has clicked only.
        if not self._context.is_owner(ChannelInfo(TYPE, click.channel, click.user)):
            refusal = "Only my owner may decide about that."
            await self._try_once("chat.postEphemeral", channel=click.channel, user=click.user, text=refusal)
            return
        # Kept with the decision, for the log and for those who see the answer elsewhere.
        by = f"{TYPE}:{click.channel} ({click.user})"
        if click.action in (ALLOW, DENY) or click.action.startswith(SCOPE):
            self._questions.pop(click.value, None)
            await self._log.set_fact(_approval_key(click.value), None)  # so that it is not shown a second time
            decision = "once" if click.action == ALLOW else click.action.removeprefix(SCOPE)
            answer = await self._context.decide(click.value, decision, by)
        elif click.action == PAIR:
            answer = await self._context.decide(click.value, "once", by)
        else:
            return
        # The text comes with the click, so this works after a restart as well.
        await self._replace(click.channel, click.ts, click.text, answer)

    async def show(self, notice: ApprovalNotice) -> None:
        """Show an answer that was given elsewhere on the message that asked."""
        found = self._log.fact(_approval_key(notice.id))
        if isinstance(found, list) and len(found) == 2:
            await self._log.set_fact(_approval_key(notice.id), None)
            await self._replace(str(found[0]), str(found[1]), self._questions.pop(notice.id, ""), end_text(notice))

    async def _replace(self, channel: str, ts: str, text: str, answer: str) -> None:
        """Put an answer below the text of a message, and take its buttons away. text: mrkdwn."""
        whole = f"{text}\n\n{escape_mrkdwn(answer)}".strip()
        await self._try_once("chat.update", channel=channel, ts=ts, text=whole, blocks=section_blocks(whole))

    async def _try_once(self, method: str, **params: Any) -> None:
        """Make a call that is not worth holding anything up for.

        The decision itself counts already. Buttons that stay after a failure answer a further click with what
        has become of it.
        """
        try:
            await self._api.call(method, **params)
        except (SlackRefused, ServiceDown, RateLimited) as error:
            _log.warning("an answer to a button is not shown", reason=str(error))


def _approval_key(id: str) -> str:
    """Return the key of the fact that has conversation and ts of the message that asks for an approval."""
    return f"approval/{id}"


# ------------------------------------------------------------------ blocks


def blocks_of(reply: OutboundMessage, text: str) -> list[Json] | None:
    """Return the blocks of a reply that has buttons, None for one without. text: mrkdwn."""
    if id := str(reply.metadata.get(APPROVAL) or ""):
        buttons = [_button("Allow once", ALLOW, id, "primary"), _button("Deny", DENY, id, "danger")]
        buttons += [_button(label, f"{SCOPE}{scope}", id) for scope, label in yes_buttons(reply)[1:]]
    elif code := str(reply.metadata.get(PAIRING) or ""):
        buttons = [_button("Let in", PAIR, code, "primary")]
    else:
        return None
    return [*section_blocks(text), {"type": "actions", "elements": buttons}]


def section_blocks(text: str) -> list[Json]:
    """Return a text (mrkdwn) as blocks, cut between lines where it is too long for one; code that is cut is a block of its own.

    What does not fit into MOST_SECTIONS blocks is left out there; the message's own text, which notifications
    show, has all of it.
    """
    sections: list[str] = []
    rest, is_code = text, False
    while rest and len(sections) < MOST_SECTIONS:
        # A block of code that was cut goes on as one, so each part is complete in itself.
        opening = "```\n" if is_code else ""
        room = LONGEST_SECTION - len(opening) - len("\n```")
        if len(rest) <= room:
            sections.append(opening + rest)
            break
        # A line that is too long for a block is cut within.
        end = rest.rfind("\n", 1, room)
        end = end if end > 0 else room
        part, rest = rest[:end], rest[end:].removeprefix("\n")
        is_code ^= part.count("```") % 2 == 1
        sections.append(opening + part + ("\n```" if is_code else ""))
    return [{"type": "section", "text": {"type": "mrkdwn", "text": part}} for part in sections if part.strip()]


def _button(text: str, action: str, value: str, style: str = "") -> Json:
    """Return a button. value: comes back with the click. style: "primary" or "danger"; "" for a plain one."""
    button: dict[str, Json] = {
        "type": "button",
        "text": {"type": "plain_text", "text": text},
        "action_id": action,
        "value": value,
    }
    return {**button, "style": style} if style else button
