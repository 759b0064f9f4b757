"""Buttons below a message: an approval to allow or deny, somebody to let in. In Slack's Block Kit.

    approval_blocks("May task 3 run shell_exec? …", "a-7f3k")

The text stands in blocks as well as in the message, since blocks replace it. What a button stands for is in its `value`; whether the
person who has pressed it may decide is checked when the click comes.

Source: https://docs.slack.dev/reference/block-kit/blocks
"""

from __future__ import annotations

from typing import Final

from pegasus.messages import Json

APPROVAL: Final = "approval"
"""Key of a reply's metadata: id of the approval that it asks for."""
PAIRING: Final = "pairing"
"""Key of a reply's metadata: code of somebody who wants to be let in."""
ALLOW: Final = "allow"
ALWAYS: Final = "always"
DENY: Final = "deny"
PAIR: Final = "pair"
LONGEST_SECTION: Final = 3_000
"""Characters of the text of a block."""
MOST_SECTIONS: Final = 40
"""Blocks of text; a message may have 50 blocks."""


def approval_blocks(text: str, id: str) -> list[Json]:
    """Return the blocks of a message that asks for an approval. text: mrkdwn."""
    buttons = [_button("Allow once", ALLOW, id, "primary"), _button("Always allow", ALWAYS, id)]
    return [*section_blocks(text), _actions(*buttons, _button("Deny", DENY, id, "danger"))]


def pairing_blocks(text: str, code: str) -> list[Json]:
    """Return the blocks of a message that offers to let somebody in. text: mrkdwn."""
    return [*section_blocks(text), _actions(_button("Let in", PAIR, code, "primary"))]


def section_blocks(text: str) -> list[Json]:
    """Return a text (mrkdwn) as blocks, cut between lines where it is too long for one; code that is cut is a block of its own."""
    sections: list[str] = []
    rest, is_code = text, False
    while rest and len(sections) < MOST_SECTIONS:
        opening = "```\n" if is_code else ""
        room = LONGEST_SECTION - len(opening) - len("\n```")
        if len(rest) <= room:
            sections.append(opening + rest)
            break
        end = rest.rfind("\n", 1, room)
        end = end if end > 0 else room
        part, rest = rest[:end], rest[end:].removeprefix("\n")
        is_code ^= part.count("```") % 2 == 1
        sections.append(opening + part + ("\n```" if is_code else ""))
    return [{"type": "section", "text": {"type": "mrkdwn", "text": part}} for part in sections if part.strip()]


def _actions(*buttons: Json) -> Json:
    return {"type": "actions", "elements": list(buttons)}


def _button(text: str, action: str, value: str, style: str = "") -> Json:
    button: dict[str, Json] = {
        "type": "button",
        "text": {"type": "plain_text", "text": text},
        "action_id": action,
        "value": value,
    }
    return {**button, "style": style} if style else button
