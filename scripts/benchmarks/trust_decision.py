"""What the decision about one call costs, after text from outside was read: the facts of the call, and the policy's rules.

The call sends a mail to ten addresses; the owner's message has 2,000 characters, which is the most that counts, and the addresses in
its last words; the task has made a hundred calls before. Once the call passes by its values, once the last address is another one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.report import Result
from benchmarks.samples import median, quantile
from benchmarks.workplace import Workplace
from pegasus.access import Decision, Policy, Principal, Role, SandboxState
from pegasus.messages import ChannelInfo, Json, Metadata
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.policy import OwnerMessage, ToolKind
from pegasus.tools import Tool, ToolContext, parameters
from pegasus.tools.gate import describe_call

LIMIT = 1e-3
"""Seconds."""
PEOPLE = tuple(f"person-{number}@mail.example" for number in range(10))
LONGEST_MESSAGE = 2_000
EARLIER = 100


def measure(place: Workplace) -> Iterator[Result]:
    text = f"to {', '.join(PEOPLE)} with the subject 'The plan for May'."
    words = "Please write the following mail when you have looked at what is new there; "
    words = (words * (LONGEST_MESSAGE // len(words)))[: LONGEST_MESSAGE - len(text) - 10] + text
    for name, people, expected in (
        ("passes", PEOPLE, Decision.ALLOW),
        ("is asked about", (*PEOPLE[:-1], "eve@mail.example"), Decision.ASK),
    ):
        samples = _decisions(words, list(people), expected, place.rounds(2_000, 200))
        middle = median(samples)
        detail = {"p99_ms": quantile(samples, 0.99) * 1e3}
        title = f"decision about a call that {name}"
        yield Result(title, middle * 1e3, LIMIT * 1e3, "limit", "ms", middle / LIMIT, 1.0, None, detail)


def _decisions(words: str, people: list[Json], expected: Decision, rounds: int) -> list[float]:
    """Return the processor seconds of each decision."""
    schema = parameters({"to": {"type": "array", "items": {"type": "string"}}, "subject": {"type": "string"}})
    tool = Tool(ToolSpec("mail__send", "", schema), _run, "mcp", source=Untrusted.MCP, kind=ToolKind.ACT, server="mail")
    before = [
        tool.value_call({"to": [f"someone-{number}@mail.example"], "subject": "Hello"}) for number in range(EARLIER)
    ]
    channel = ChannelInfo("cli", "main")
    arguments: Metadata = {"to": people, "subject": "The plan for May"}
    policy, walls = Policy(), SandboxState(stands=True)
    samples = []
    for number in range(rounds):
        context = ToolContext(
            principal=Principal(Role.OWNER, channel),
            outside=(Untrusted.MCP,),
            owner_messages=(
                OwnerMessage(f"m{number}", f"{number}. {words}"),
            ),  # another text each time: none is remembered
            earlier=lambda: before,
        )
        began = time.thread_time()
        ruling = policy.decide(describe_call(tool, arguments, context), walls)
        samples.append(time.thread_time() - began)
        assert ruling.decision is expected, ruling
    return samples


async def _run(arguments: Metadata, context: ToolContext) -> Json:
    raise AssertionError("it is decided about, and not made")
