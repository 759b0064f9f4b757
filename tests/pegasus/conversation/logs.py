"""Random but lawful session logs for property tests: what a life of thoughts, replies, failures and stops would have written."""

from __future__ import annotations

from hypothesis import strategies as st

from pegasus.conversation.entry import Entry, encode
from pegasus.models.base import ToolCall

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
spoken = texts.filter(lambda text: bool(text.strip()))
names = st.sampled_from(["reply", "current_time", "no_such_tool"])
arguments = st.dictionaries(st.sampled_from(["text", "channelId", "timezone"]), texts, max_size=3)


@st.composite
def turns(draw, serial):
    """One assistant entry with its results. Call ids may repeat from turn to turn, as some providers' do."""
    count = draw(st.integers(0, 3))
    style = draw(st.sampled_from(["own", "repeating"]))
    calls = tuple(
        ToolCall(f"call_{i}" if style == "repeating" else f"c{serial}-{i}", draw(names), draw(arguments))
        for i in range(count)
    )
    results = [Entry(0, "tool", draw(texts), call_id=call.id, failed=draw(st.booleans())) for call in calls]
    return [Entry(0, "assistant", draw(texts), calls), *results]


@st.composite
def logs(draw, max_items=5):
    """The entries of a session, with every call answered."""
    entries = []
    if draw(st.booleans()):
        entries.append(Entry(0, "system", "summary", metadata={"type": "new", "closes": 0}))
    serial = 0
    for n in range(1, draw(st.integers(0, max_items)) + 1):
        entries.append(Entry(0, "user", draw(spoken), item=n))
        for _ in range(draw(st.integers(0, 3))):
            serial += 1
            entries += draw(turns(serial))
        if draw(st.integers(0, 4)) == 0:
            entries.append(Entry(0, "system", "stopped", metadata={"type": "stopped", "ends": True}))
    return entries


def as_bytes(entries):
    """The file that holds these entries."""
    return b"".join(map(encode, entries))
