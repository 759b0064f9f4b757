"""Running tools. The deadline of a call is enforced here, in `run_tool`, by `trio.move_on_after`; nowhere else.

Steps of one call:

1. The arguments are checked against the tool's schema (`pegasus.tools.arguments`). A call with
   wrong arguments does not start.
2. The tool runs in a cancel scope that ends after `tools.timeout` seconds, or
   `tools.timeouts.<name>`. At the end of that time the tool is cancelled, together with everything
   that it has started, and the call fails. A tool can have limits of its own inside (a command its
   `timeout`, a connection its ten seconds), but they only ever end a call earlier.
3. Every failure becomes a result that begins with `Error:`, because the model can react to a result
   but not to an exception. Only a cancellation from outside (a stopped task, a shutdown) is passed
   on to the caller.
4. Known secrets are replaced by `***`. This happens before cutting, since the first half of a key
   is a secret too.
5. A result that is longer than `ToolContext.max_result` is cut, with a notice that tells how to get
   the rest.

The Main Agent calls `run_tool` directly; tasks use a `ToolExecutor`, which adds steps 4 and 5 and
the statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import trio

from pegasus.formatting import describe_error, first_cause
from pegasus.messages import Metadata
from pegasus.tools.arguments import check_arguments, without_nulls
from pegasus.tools.base import NO_CONTEXT, Tool, ToolContext, ToolError, ToolOutcome
from pegasus.tools.registry import ToolRegistry
from pegasus.wire import encode_json

DEFAULT_TIMEOUT: Final = 60.0
"""Seconds for one call, unless the settings say otherwise."""
MASK: Final = "***"
"""Text that stands for a secret, the same as in the log and in `pegasus config show`."""
MIN_SECRET: Final = 6
"""Characters from which a secret is masked. Shorter ones would also replace parts of ordinary
words."""


async def run_tool(tool: Tool, arguments: Metadata, timeout: float, context: ToolContext = NO_CONTEXT) -> ToolOutcome:
    """Run a tool once, for at most `timeout` seconds, and return its result or its error.

    Raises nothing but Cancelled. If the caller is cancelled, the tool is cancelled and has cleaned
    up when this returns.
    """
    arguments = without_nulls(tool.spec.parameters, arguments)
    problem = check_arguments(tool.spec.parameters, arguments)
    if problem is not None:
        return _failure(problem)
    try:
        with trio.move_on_after(timeout):
            return ToolOutcome(encode_json(await tool.run(arguments, context)), failed=False)
        return _failure(f"{tool.name} was ended: it took longer than {timeout:g} s")
    except Exception as error:  # a defect in a tool fails the call, not the agent
        return _failure(_explain(tool.name, error))
    except BaseExceptionGroup as group:
        # A nursery in the tool was cancelled while one of its tasks failed. Only the cancellation concerns the caller.
        raise group.split(Exception)[1] or group from None


class ToolExecutor:
    """Runs the tools of a registry under the deadlines of the settings.

        executor = ToolExecutor(registry, timeout=60.0, timeouts={"shell_exec": 600.0}, secrets=known_secrets)
        outcome = await executor.run(executor.get("read_file"), {"path": "notes.md"}, context)

    One executor serves all tasks. It keeps no state of a call, so calls may overlap.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        timeouts: Mapping[str, float] | None = None,
        secrets: Iterable[str] = (),
    ) -> None:
        """timeout: seconds for one call. timeouts: the same by tool name. secrets: texts that no result may show."""
        self.registry = registry
        self._timeout = timeout
        self._timeouts = timeouts or {}
        self._masked_texts = _forms_of(secrets)

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, if there is one."""
        return self.registry.get(name)

    def all(self) -> tuple[Tool, ...]:
        """Return every tool."""
        return self.registry.all()

    def timeout_of(self, name: str) -> float:
        """Return the seconds that one call of this tool may take."""
        return self._timeouts.get(name, self._timeout)

    async def run(self, tool: Tool, arguments: Metadata, context: ToolContext = NO_CONTEXT) -> ToolOutcome:
        """Run a tool as `run_tool` does, mask secrets, cut the result and count the call.

        Raises nothing but Cancelled. A cancelled call counts as a failure.
        """
        start = trio.current_time()
        failed = True
        try:
            outcome = await run_tool(tool, arguments, self.timeout_of(tool.name), context)
            failed = outcome.failed
        finally:
            milliseconds = (trio.current_time() - start) * 1000
            self.registry.count_call(tool.name, milliseconds, failed=failed)
        content = cut_result(self._mask(outcome.content), context.max_result, tool.more)
        return ToolOutcome(content, outcome.failed, round(milliseconds))

    def _mask(self, content: str) -> str:
        """Replace every secret, in results and in errors: a command that fails often shows its arguments."""
        for text in self._masked_texts:
            content = content.replace(text, MASK)
        return content


def cut_result(content: str, limit: int, more: str) -> str:
    """Return the content if it has at most `limit` characters, otherwise its beginning and a notice of what is missing.

    more: a sentence that tells the model how to get the rest.
    """
    if len(content) <= limit:
        return content
    shown = max(0, limit - len(more) - 80)  # 80: room for the notice itself
    missing = len(content) - shown
    return f"{content[:shown]}\n[cut: {missing:,} of {len(content):,} characters are missing here. {more}]"


def _forms_of(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return each secret as it can stand in a result: plain, and escaped once by JSON.

    The longest come first, so that a secret that contains another one leaves no rest.
    """
    texts = {secret for secret in secrets if len(secret) >= MIN_SECRET}
    escaped = {encode_json(text)[1:-1] for text in texts}
    return tuple(sorted(texts | escaped, key=len, reverse=True))


def _failure(message: str) -> ToolOutcome:
    """Return the outcome of a call that failed. All failures begin with `Error:`, so that a model recognises them."""
    return ToolOutcome(f"Error: {message}", failed=True)


def _explain(name: str, error: BaseException) -> str:
    """Return the reason for the model, without the exception groups that nurseries wrap around it."""
    error = first_cause(error)
    if isinstance(error, ToolError):
        return str(error)
    if isinstance(error, trio.TooSlowError):
        return f"{name} failed: something in it took too long"
    return f"{name} failed: {describe_error(error)}"
