"""By which words a text is known to ask something, or to say that something will come; in the languages whose words are here."""

from __future__ import annotations

import re
from typing import Final

_PROMISE: Final = re.compile(
    r"\bI['’]ll\b|\bI (?:will|shall|promise|am going to)\b|\bI['’]m going to\b|\bwe['’]ll\b|\blet me\b|\bget back to you\b"
    r"|\bkeep you posted\b|\blet you know\b|\bremind you\b"
    r"|\bich (?:werde|melde|erinnere|sage dir|prüfe|kümmere)\b|\bmelde mich\b|\bje (?:vais|vous tiens|te tiens|reviens)\b"
    r"|\bte (?:aviso|avisaré|recordaré)\b|\bvoy a\b|\bti (?:avviso|ricordo|faccio sapere)\b|\bvou\b"
    r"|我会|我會|我将|我將|我去|我来|我來|稍后|稍後|一会儿|待会|待會|回头|回頭|提醒你|通知你|告诉你|告訴你"
    r"|後で|のちほど|お知らせします|ご連絡します|알려드리|하겠습니다|напомню|сообщу|я (?:буду|сделаю|проверю)",
    re.IGNORECASE,
)
_HINTS: Final = (
    *(
        "'ll",
        "’ll",
        "i will",
        "i shall",
        "i promise",
        "i am going",
        "'m going",
        "’m going",
        "let me",
        "back to you",
        "you posted",
    ),
    *(
        "let you know",
        "remind you",
        "ich ",
        "melde m",
        "je v",
        "je t",
        "je r",
        "te a",
        "te r",
        "voy a",
        "ti a",
        "ti r",
        "ti f",
        "vou",
    ),
    *(
        "我",
        "稍",
        "一会",
        "待",
        "回",
        "提醒",
        "通知",
        "告",
        "後で",
        "のちほど",
        "知らせ",
        "連絡",
        "알려",
        "하겠",
        "напомню",
        "сообщу",
        "я ",
    ),
)
"""One of these is in every text that the expression finds, and looking for them is twenty times as quick."""
_QUESTION: Final = re.compile(r"[？؟]|\?(?=[\s\"'”’)\]»*_]|$)")


def promises(text: str) -> bool:
    """Whether the words of a reply say that something will come."""
    lower = text.lower()
    return any(hint in lower for hint in _HINTS) and _PROMISE.search(text) is not None


def asks(text: str) -> bool:
    """Whether a question stands in it."""
    return _QUESTION.search(text) is not None
