r"""Markdown to Slack's mrkdwn for messages that are sent, and mrkdwn to plain text for messages that come in.

Sending. mrkdwn has bold, italics, strikethrough, code, quotes and links, but no headings, lists, tables or pictures; these become
bold lines, bullets, code blocks and links. `&`, `<` and `>` of the text are escaped, so nothing that the agent writes turns into a
mention of everybody or a link with another address than it shows. mrkdwn has no other escapes.

    >>> render_mrkdwn("**Done**: [log](https://example.org/?a=1&b=2) is < 5 kB")
    '*Done*: <https://example.org/?a=1&amp;b=2|log> is &lt; 5 kB'

Receiving. Mentions and links stand in angle brackets, and the three characters are escaped. Names of people and conversations are
not in the text; the caller looks them up (`find_mentions`) and hands them in.

    >>> read_mrkdwn("<@U1>: see <https://example.org|the page> &amp; reply", {"U1": "anna"})
    '@anna: see the page (https://example.org) & reply'

Source: https://docs.slack.dev/messaging/formatting-message-text
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from markdown_it.token import Token

from pegasus.channels.blocks import BlockRenderer, is_link
from pegasus.conversation import sanitize_for_prompt
from pegasus.formatting import truncate

NAME_LENGTH: Final = 80
"""Characters of a name that are shown; Slack allows 80 for people and conversations."""
_INVISIBLE_SPACE: Final = "\u200b"
"""A zero-width space: Slack sees the end of a word there, and people see nothing."""


# ------------------------------------------------------------------ sending


def escape_mrkdwn(text: str) -> str:
    """Return a text so that Slack shows it as it stands, but for marks such as `*`, which cannot be escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@lru_cache(maxsize=64)
def render_mrkdwn(markdown: str) -> str:
    """Return a Markdown text as mrkdwn. HTML in it is shown as text. Raises nothing.

    A reply is rendered to measure it and again to send it; the last texts are kept for that.
    """
    return _Blocks(markdown).render()


class _Blocks(BlockRenderer):
    """The blocks of a document as mrkdwn.

    Example: `_Blocks("# Hi").render()` is "*Hi*".
    """

    def inline(self, tokens: Sequence[Token]) -> str:
        """Return the text of a paragraph."""
        return _render_inline(tokens)

    def cell(self, tokens: Sequence[Token]) -> str:
        """Return the text of a cell without marks."""
        return _read_plain(tokens)

    def heading(self, text: str) -> str:
        """Return a heading as a bold line."""
        return _mark(text.replace("*", "").strip(), "*")

    def code(self, content: str, info: str) -> str:
        """Return a block of code. Slack knows no languages."""
        return _code_block(content)

    def quotation(self, depth: int) -> str:
        """Return a quotation, with a mark before each line."""
        return _prefix(self.render("blockquote_close", depth=depth), "> ")

    def item(self, sign: str, body: str, depth: int) -> str:
        """Return an item; its further lines are indented."""
        return f"{sign} {_prefix(body, ' ' * 4, first='')}"


def _code_block(content: str) -> str:
    """Return a code block. Backticks in the content that would end it are separated by a zero-width space."""
    # Two backticks are broken up already, so that no three of them stand together.
    safe = escape_mrkdwn(content.rstrip("\n")).replace("``", f"`{_INVISIBLE_SPACE}`")
    return f"```\n{safe}\n```"


def _prefix(text: str, prefix: str, first: str | None = None) -> str:
    """Return the text with something before each line. first: before the first line, if it is something else."""
    lines = text.split("\n")
    return "\n".join(
        (first if first is not None and n == 0 else prefix) + line for n, line in enumerate(lines)
    ).rstrip()


# ------------------------------------------------------------------ text within a block

_MARKS: Final = {"strong": "*", "em": "_", "s": "~"}
"""Slack's mark for each of Markdown's."""
MOST_NESTED: Final = 20
"""Marks around a text that are shown. What is within more of them is shown without its own."""


def _render_inline(tokens: Sequence[Token]) -> str:
    """Return the text of a block as mrkdwn."""
    parts: list[str] = []
    at = 0
    while at < len(tokens):
        token, closing = tokens[at], _closing(tokens, at)
        inner, at = tokens[at + 1 : closing], closing + 1
        match token.type:
            case "text":
                parts.append(escape_mrkdwn(token.content))
            case "softbreak" | "hardbreak":
                parts.append("\n")
            case "code_inline":
                parts.append(_inline_code(token.content))
            case "image":
                parts.append(_link(str(token.attrGet("src") or ""), _read_plain(token.children or [])))
            case "link_open":
                parts.append(_link(str(token.attrGet("href") or ""), _read_plain(inner)))
            case "strong_open" | "em_open" | "s_open":
                # Each level is a call of this function. A text made of marks only must not exhaust the stack.
                is_deep = token.level >= MOST_NESTED
                text = escape_mrkdwn(_read_plain(inner)) if is_deep else _render_inline(inner)
                # Slack sees a mark only beside a space or punctuation. Within a word an invisible space stands
                # in for one.
                before = parts[-1][-1:] if parts else ""
                after = tokens[at].content[:1] if at < len(tokens) else ""
                left = _INVISIBLE_SPACE if before.isalnum() else ""
                right = _INVISIBLE_SPACE if after.isalnum() else ""
                parts.append(f"{left}{_mark(text, _MARKS[token.type.removesuffix('_open')])}{right}")
    return "".join(parts)


def _closing(tokens: Sequence[Token], at: int) -> int:
    """Return the place of the token that closes the one at `at`; `at` itself for a token that opens nothing."""
    depth: int = tokens[at].nesting
    while depth > 0:
        at += 1
        depth += tokens[at].nesting
    return at


def _mark(text: str, mark: str) -> str:
    """Return a text between marks. They count within one line only, beside characters that are no spaces.

    Each line gets marks of its own, since Slack ends them at the end of a line. The mark itself is taken out of
    the text, because mrkdwn cannot escape it.
    """
    return re.sub(
        r"(?m)^(\s*)(.*?\S)([ \t]*)$",
        lambda found: f"{found[1]}{mark}{found[2]}{mark}{found[3]}",
        text.replace(mark, ""),
    )


def _inline_code(content: str) -> str:
    """Return code within a line. mrkdwn cannot quote a backtick, so code that has one is shown without marks."""
    text = escape_mrkdwn(content)
    return text if "`" in content or not content.strip() else f"`{text}`"


def _link(address: str, text: str) -> str:
    """Return a link. An address that Slack does not take as one is shown behind the text."""
    shown = escape_mrkdwn(" ".join(text.split()))
    if not is_link(address):
        return f"{shown} ({escape_mrkdwn(address)})" if address and address != text else shown
    # These would end the address or the link.
    target = re.sub(r"[|<>\s]", lambda found: f"%{ord(found[0]):02X}", address).replace("&", "&amp;")
    return f"<{target}|{shown}>" if shown and text != address else f"<{target}>"


def _read_plain(tokens: Sequence[Token]) -> str:
    """Return the text of a block without any marks."""
    parts: list[str] = []
    for token in tokens:
        if token.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif token.type == "image":
            parts.append(_read_plain(token.children or []))
        else:
            parts.append(token.content)
    return "".join(parts)


# ------------------------------------------------------------------ receiving

_TOKEN: Final = re.compile(r"<([^<>\n]*)>")
"""A mention, a link or a command in mrkdwn."""
_MENTION: Final = re.compile(r"[@#][A-Z0-9]{2,40}")
"""A mention of a person or a conversation by its id."""
ADDRESS_LIKE: Final = re.compile(r"[@/:]")
"""Characters of addresses, which a name of a person or a conversation seldom has."""
_ESCAPED: Final = {"&lt;": "<", "&gt;": ">", "&amp;": "&"}
"""Escapes of mrkdwn; there are no others."""
_ESCAPE: Final = re.compile("|".join(_ESCAPED))


def find_mentions(text: str) -> set[str]:
    """Return the ids of the people and conversations that a text mentions without their names.

    Ids with a label are left out, since their names need not be asked for.
    """
    targets = (found[1].partition("|") for found in _TOKEN.finditer(text))
    return {target[1:] for target, _, label in targets if not label and _MENTION.fullmatch(target)}


def holds_words_of_others(text: str) -> bool:
    """Return whether a text has a part that its writer need not have typed: an address behind other words, a name that looks like one.

    What people type as "example.com" comes as `<http://example.com|example.com>`.
    """
    for found in _TOKEN.finditer(text):
        target, _, label = (unescape_mrkdwn(part) for part in found[1].partition("|"))
        is_name = target[:1] in ("@", "#", "!")
        if ADDRESS_LIKE.search(label) if is_name else not target.endswith(label):
            return True
    return False


def read_mrkdwn(text: str, names: Mapping[str, str]) -> str:
    """Return a text of Slack as people read it. names: of people and conversations by id; an id without one is shown itself.

    Tokens are read before escapes are decoded: an escaped "<" is text and begins no token.
    """
    parts: list[str] = []
    at = 0
    for found in _TOKEN.finditer(text):
        parts += [unescape_mrkdwn(text[at : found.start()]), _read_token(found[1], names)]
        at = found.end()
    return "".join([*parts, unescape_mrkdwn(text[at:])])


def _read_token(content: str, names: Mapping[str, str]) -> str:
    """Return what people see of a token: a name, or a link as `label (address)`.

    A label alone could hide where a link leads.
    """
    target, _, label = (unescape_mrkdwn(part) for part in content.partition("|"))
    sign, name = target[:1], target[1:]
    if sign in ("@", "#"):
        return f"{sign}{_shown_name(names.get(name) or label or name)}"
    if sign == "!":  # <!here>, <!subteam^S1|@group>, <!date^…|fallback>
        word = label or name.partition("^")[0]
        return word if label and not name.startswith("subteam") else f"@{_shown_name(word.removeprefix('@'))}"
    address = target.removeprefix("mailto:").removeprefix("tel:")
    return address if not label or label in (target, address) else f"{label} ({address})"


def unescape_mrkdwn(text: str) -> str:
    """Return a text with its three escapes decoded, each once."""
    return _ESCAPE.sub(lambda found: _ESCAPED[found[0]], text)


def _shown_name(name: str) -> str:
    """Return the name of a person or conversation as a text may show it: on one line, nothing invisible, not too long."""
    return truncate(sanitize_for_prompt(name), NAME_LENGTH) or "?"


def strip_mention(text: str, user: str) -> str:
    """Return a text without the mention of a user at its beginning, so that "@pegasus /stop" is a command."""
    return re.sub(rf"\A\s*<@{re.escape(user)}(\|[^<>]*)?>[\s,:]*", "", text)
