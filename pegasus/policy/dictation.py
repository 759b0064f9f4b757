"""Dictation: whether words that are to be remembered are those that an owner has typed to be remembered.

Whatever a conversation writes after it has read text from outside bears the mark of that, since the text may have chosen the words.
A sentence that an owner has typed was chosen by nobody else. So a text counts as dictated if each of its sentences is one of the
owner's: the same words in the same order. Left out on both sides is only what a writer changes who tells it of somebody else ("my
dog" for "the user's dog", "I like" for "likes"), and in the owner's sentence what asks to remember it ("please note that"). Questions
count for nothing, and neither does what `owner_values` does not count: long messages, code, quotations, and exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pegasus.policy.owner_values import LONGEST_MESSAGE, OwnerMessage, counting_part

_SENTENCE: Final = re.compile(r"[^\n.!?;。！？；\0]*(?:[.!?;](?=\S)[^\n.!?;。！？；\0]*)*(?:[.!?;。！？；\0]+|\n|\Z)")
_WORD: Final = re.compile(r"[^\W_]+(?:['’.@:/_-]+[^\W_]+)*|[^\w\s]")
_POINTS: Final = frozenset(".,;:!()\"'`*-–—[]。，：；、！")
"""Punctuation without a meaning of its own."""
_LEFT_OUT: Final = re.compile(
    r"an?|the|i|me|my|mine|myself|we|us|ours?|users?|owner|they|them|their|he|him|his|she|her|am|is|are|was|were|be|has|have|had"
)
"""Words that depend on who tells it to whom."""
_ASKING: Final = re.compile(
    r"please|remember|notes?|save|store|keep|memori[sz]e|learn|write|down|add|put|in|mind|to|your|memory|this|that|fact|also|and|for"
    r"|later|now|know|can|could|you|hey|pegasus"
)
"""Words by which somebody asks to remember what follows."""
_HEAD: Final = re.compile(
    r"remember|note|memor|save|store|fact|merk|notier|speicher|souvien|reti|enregistr|recuerd|anota|guarda|ricord|lembr|记|記|覚|メモ|기억|запомн",
    re.IGNORECASE,
)
"""Word before a colon that asks the same, in some languages; "Mallory says:" does not."""


def is_dictated(text: str, messages: Iterable[OwnerMessage]) -> bool:
    """Return whether every sentence of a text is one that an owner has typed."""
    said = [sentence for message in messages for sentence in _sentences_of(message)]
    wanted = [words for words in map(_content, _sentences(text)) if words]
    return bool(wanted) and all(words in said for words in wanted)


def _sentences_of(message: OwnerMessage) -> Iterable[tuple[str, ...]]:
    """Yield the sentences of a message that count, and what stands behind the colon of one, as in "Remember: …"."""
    if len(message.text) > LONGEST_MESSAGE:
        return
    for sentence in _sentences(counting_part(message.text)):
        if not sentence.rstrip().endswith(("?", "？", "\0")):
            yield _content(_behind_asking(sentence))
            head, colon, told = sentence.replace("：", ": ").partition(": ")
            if colon and _HEAD.search(head):
                yield _content(told)


def _sentences(text: str) -> list[str]:
    return [found for found in _SENTENCE.findall(text) if found.strip()]


def _behind_asking(sentence: str) -> str:
    """Return a sentence without the words at its beginning that ask to remember it."""
    begin = 0
    for found in _WORD.finditer(sentence):
        if not _ASKING.fullmatch(found[0].casefold()) and found[0] not in _POINTS:
            break
        begin = found.end()
    return sentence[begin:]


def _content(sentence: str) -> tuple[str, ...]:
    """Return the words of a sentence that somebody else would use too. Endings in s are left out: "likes", "dog's"."""
    words = (
        word.casefold().replace("’", "'").removesuffix("'s") for word in _WORD.findall(sentence) if word not in _POINTS
    )
    # A word such as "is" ends in s, too, so that it is looked up before.
    return tuple(re.sub(r"(?<=[a-z]{2})s\Z", "", word) for word in words if not _LEFT_OUT.fullmatch(word))
