"""The page about memory tells the truth."""

import re
from pathlib import Path

from pegasus.memory.index import EPISODE_INDEX, MemoryFile, index_message
from pegasus.memory.keeping import LARGEST
from pegasus.memory.memory import FACTS_SHOWN, FULL
from pegasus.memory.names import MOST
from pegasus.memory.page import LONGEST_SUMMARY, appended, summary_of

PAGE = (Path(__file__).parents[3] / "docs" / "memory-system.md").read_text("utf-8")
BLOCKS = re.findall(r"```markdown\n(.*?)```", PAGE, re.DOTALL)


def test_the_examples_are_what_the_tools_write():
    fact, entry = BLOCKS
    assert summary_of(fact) == "who the user is, how they like answers"
    assert appended(fact, "- Likes: tea", None, "") == fact + "- Likes: tea\n"
    assert appended("# 2026-02\n\n> Summary: x\n", entry, None, "") == "# 2026-02\n\n> Summary: x\n\n" + entry


def test_the_message_is_the_real_one():
    message = index_message(
        (MemoryFile("episodes/2026-02.md", "February", 1234), MemoryFile("facts/user.md", "who the user is", 35))
    )
    assert message.partition("read what")[0].split("; …")[0][:60] in PAGE
    assert all(line in PAGE for line in message.splitlines()[:3])


def test_the_limits_are_the_real_ones():
    for number in (f"{FULL:,} bytes", f"{LARGEST:,} bytes", f"| {MOST} |", f"{FACTS_SHOWN:,}", f"{EPISODE_INDEX:,}"):
        assert number in PAGE
    assert f"{LONGEST_SUMMARY} characters" in PAGE
