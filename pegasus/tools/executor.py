"""Running tools. The deadline of a call is enforced here, in `_run_prepared`, by `trio.move_on_after`; nowhere else.

Steps of one call:

1. The arguments are checked against the tool's schema. A call with wrong arguments does not start. Then the gate decides whether it
   may be made (`pegasus.tools.gate`).
2. The tool runs in a cancel scope that ends after `tools.timeout` seconds, or
   `tools.timeouts.<name>`. At the end of that time the tool is cancelled, together with everything
   that it has started, and the call fails. A tool can have limits of its own inside (a command its
   `timeout`, a connection its ten seconds), but they only ever end a call earlier.
3. Every failure becomes a result that begins with `Error:`, because the model can react to a result
   but not to an exception. Only a cancellation from outside (a stopped task, a shutdown) is passed
   on to the caller.
4. Secrets are replaced by `***` (`pegasus.redaction`): those of this installation, and whatever has the format of
   a key. This happens before cutting, since the first half of a key is a secret too.
5. A result that is longer than `ToolContext.max_result` is cut, with a notice that tells how to get
   the rest.

Arguments are checked by the library `jsonschema_rs`. Two of its options keep the check harmless whatever the
schema of a tool says: a `$ref` to a server is refused and not fetched, and a `pattern` that needs too many
backtracking steps counts as a mismatch, so that it cannot hang the process.

A compiled schema is kept, since compiling takes 30 microseconds, a sixth of a call of an MCP tool. It is found by the identity of the
schema, which nobody changes in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import trio

from pegasus.access import Decision, Ruling
from pegasus.formatting import describe_error, first_cause
from pegasus.messages import Json, Media, Metadata
from pegasus.observe import Activity, ToolCallEnded, get_logger
from pegasus.outside import Untrusted, join_outside
from pegasus.redaction import KnownSecrets
from pegasus.tools.base import (
    NO_CONTEXT,
    AwaitsOwner,
    LabelledResult,
    PlannedCall,
    ResultWithImages,
    Tool,
    ToolContext,
    ToolError,
    ToolOutcome,
)
from pegasus.tools.gate import Gate
from pegasus.wire import encode_json, kind, to_unicode

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

_log = get_logger("tools")

DEFAULT_TIMEOUT: Final = 60.0
"""Seconds for one call, unless the settings say otherwise."""
MAX_PROBLEMS: Final = 5
"""Problems that one answer names. A model corrects a few things at a time, and a long list would
fill its window."""
MAX_PATTERN_STEPS: Final = 100_000
"""Backtracking steps of a `pattern` with lookaround, some milliseconds. Patterns without lookaround
run in linear time."""


async def _run_prepared(tool: Tool, arguments: Metadata, timeout: float, context: ToolContext) -> ToolOutcome:
    """Run a tool with checked arguments once, for at most `timeout` seconds, and return its result or its error.

    Raises nothing but Cancelled. If the caller is cancelled, the tool is cancelled and has cleaned up when this returns.
    """
    outside: tuple[Untrusted, ...] = (
        () if tool.source is None else (tool.source,)
    )  # labels of everything that it returns
    try:
        with trio.move_on_after(timeout):
            result = await tool.run(arguments, context)
            if isinstance(result, ToolOutcome):
                return result
            if isinstance(result, AwaitsOwner):
                return ToolOutcome("", failed=True, approval=result.approval)
            pictures: tuple[Media, ...] = ()
            if isinstance(result, LabelledResult):
                outside, result = join_outside(outside, result.outside), result.result
            elif isinstance(result, ResultWithImages):
                pictures, result = result.pictures, result.result
            return ToolOutcome(encode_json(result), failed=False, outside=outside, pictures=pictures)
        return ToolOutcome.failure(f"{tool.name} was ended: it took longer than {timeout:g} s")
    except Exception as error:  # a defect in a tool fails the call, not the agent
        # A server or a command may have a hand in the words of an error.
        return attrs.evolve(ToolOutcome.failure(_explain(tool.name, error)), outside=outside)
    except BaseExceptionGroup as group:
        # A nursery in the tool was cancelled while one of its tasks failed. Only the cancellation concerns the caller.
        raise group.split(Exception)[1] or group from None


class ToolSource(Protocol):
    """Tools that may change while the program runs: those of MCP servers (`pegasus.mcp.McpServers`).

    Example::

        executor = ToolExecutor(tools, source=McpServers(settings.mcp.servers, context))
        executor.get("time__get_time")   # asks the source, where no own tool has this name
    """

    @property
    def version(self) -> int:
        """Number that changes whenever `offered` may return something else."""

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, if there is one now."""

    def offered(self, caller: str, allows: Callable[[str], bool], window: int) -> tuple[Tool, ...]:
        """Return the tools to show to a model, which need not be all.

        caller: a task's id, "" for the Main Agent. allows: whether the caller may use a tool. window: the model's, in tokens; 0 = not
        known.
        """

    def notes(self, allows: Callable[[str], bool]) -> str:
        """Return the section of a prompt about these tools; "" if there is nothing to say. It changes with `version` only."""


class _NoTools:
    """The source of an executor that has only tools of its own."""

    version = 0

    def get(self, name: str) -> Tool | None:
        return None

    def offered(self, caller: str, allows: Callable[[str], bool], window: int) -> tuple[Tool, ...]:
        return ()

    def notes(self, allows: Callable[[str], bool]) -> str:
        return ""


class ToolExecutor:
    """The tools of an installation by name, and running them under the deadlines of the settings.

    Example::

        executor = ToolExecutor(tools, timeout=60.0, timeouts={"shell_exec": 600.0}, secrets=known_secrets)
        outcome = await executor.run(executor.get("read_file"), {"path": "notes.md"}, context)

    One executor serves all tasks. It keeps no state of a call, so calls may overlap.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        timeout: float = DEFAULT_TIMEOUT,
        timeouts: Mapping[str, float] | None = None,
        secrets: KnownSecrets | None = None,
        source: ToolSource | None = None,
        allows: Callable[[str], bool] = lambda name: True,
        gate: Gate | None = None,
        activity: Activity | None = None,
    ) -> None:
        """Make an executor. Raises ValueError for two tools of one name: logs could not tell them apart.

        tools: in the order in which the model sees them. timeout: seconds for one call. timeouts: the same by
        tool name. secrets: the texts that no result may show, beside what has the format of a secret. source: further
        tools, which may change; a tool of `tools` wins over one of its name. allows: whether a tool of the source may
        be used at all. gate: decides about each call; None: all may be made. activity: is told of every call that
        has ended.
        """
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if self._tools.setdefault(tool.name, tool) is not tool:
                raise ValueError(f"there is a tool {tool.name!r} already")
        self.repeating: frozenset[str] = frozenset(name for name, tool in self._tools.items() if tool.repeats)
        """Names of tools that may be called again and again with the same arguments, since they wait for something."""
        self._timeout = timeout
        self._timeouts = timeouts or {}
        self._secrets = secrets or KnownSecrets()
        self.source: ToolSource = source or _NoTools()
        """Further tools. What `offered` and `notes` return changes with its `version` only."""
        self._allows = allows
        self._gate = gate
        self._activity = activity or Activity()

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, if there is one now. A tool that a model was shown a moment ago may be gone."""
        tool = self._tools.get(name)
        return self.source.get(name) if tool is None and self._allows(name) else tool

    def offered(
        self, caller: str = "", *, allows: Callable[[str], bool] = lambda name: True, window: int = 0
    ) -> tuple[Tool, ...]:
        """Return the tools to show to a model: its own, and those of the source as far as there is room.

        caller: a task's id, "" for the Main Agent. allows: whether the caller may use a tool. window: the model's, in tokens; 0 = not
        known.
        """
        own = [tool for name, tool in self._tools.items() if allows(name)]
        return (*own, *self.offered_by_source(caller, allows=allows, window=window))

    def offered_by_source(self, caller: str, *, allows: Callable[[str], bool], window: int = 0) -> tuple[Tool, ...]:
        """Return those tools of the source that `offered` returns."""
        found = self.source.offered(caller, lambda name: self._allows(name) and allows(name), window)
        return tuple(tool for tool in found if tool.name not in self._tools)

    def notes(self, allows: Callable[[str], bool] = lambda name: True) -> str:
        """Return the section of a prompt about the tools of the source; "" if there is nothing to say."""
        return self.source.notes(lambda name: self._allows(name) and allows(name))

    async def run(self, tool: Tool, arguments: Metadata, context: ToolContext = NO_CONTEXT) -> ToolOutcome:
        """Run a tool if its arguments fit and the gate lets it pass, mask secrets in its result or error, and cut it.

        A call that waits for an owner has no result yet; its outcome names the approval. Raises nothing but Cancelled.
        """
        start, name = trio.current_time(), tool.spec.name
        arguments, problem = prepare_arguments(tool.spec.parameters, arguments)
        # A call with wrong arguments is refused before the gate: an owner must not be asked about what cannot run.
        outcome = ToolOutcome.failure(problem) if problem is not None else None
        if outcome is None and self._gate is not None:
            checked = await self._gate.check(tool, arguments, context)
            if isinstance(checked, ToolOutcome):
                outcome = checked
            else:
                context = checked
        if outcome is None:
            timeout = self._timeouts.get(name, tool.timeout or self._timeout)
            outcome = await _run_prepared(tool, arguments, timeout, context)
        # Masked before it is cut: half of a secret at the cut would not be recognised.
        content = cut_result(self._secrets.redact(outcome.content), context.max_result, tool.more)
        milliseconds = round((trio.current_time() - start) * 1000)
        # Without the arguments, which may hold what is private.
        _log.debug("tool call", tool=name, failed=outcome.failed, ms=milliseconds)
        self._activity.tool_called(
            ToolCallEnded(
                tool=name,
                key=context.key,
                task_id=context.task_id,
                began=self._activity.clock() - milliseconds,
                seconds=milliseconds / 1000,
                outcome="waits" if outcome.approval is not None else "failed" if outcome.failed else "ok",
                content=partial(_texts_of, arguments, content),
            )
        )
        return attrs.evolve(outcome, content=content, duration_ms=milliseconds)

    async def ask_beforehand(self, planned: Sequence[PlannedCall], words: str) -> ToolOutcome:
        """Ask an owner for calls that a task plans, as `Gate.ask_beforehand` says; without a gate none of them needs a yes."""
        if self._gate is None:
            return ToolOutcome(encode_json({"needNoYes": list(range(1, len(planned) + 1))}), failed=False)
        outcome = await self._gate.ask_beforehand(planned, words)
        return attrs.evolve(outcome, content=self._secrets.redact(outcome.content))

    async def judge(self, tool: Tool, arguments: Metadata, context: ToolContext) -> Ruling:
        """Return what the gate's rules say about something that the caller does itself. Nobody is asked."""
        if self._gate is None:
            return Ruling(Decision.ALLOW)
        ruling = await self._gate.judge(tool, arguments, context)
        return attrs.evolve(ruling, why=self._secrets.redact(ruling.why))

    async def check(self, tool: Tool, arguments: Metadata, context: ToolContext) -> ToolContext | ToolOutcome:
        """Return whether the gate lets something pass that the caller does itself, as `Gate.check` does."""
        checked = await self._gate.check(tool, arguments, context) if self._gate is not None else context
        if isinstance(checked, ToolContext):
            return checked
        return attrs.evolve(checked, content=self._secrets.redact(checked.content))


def _texts_of(arguments: Metadata, result: str) -> Mapping[str, Json]:
    """Return the texts of a call, as traces have them."""
    return {"gen_ai.tool.call.arguments": arguments, "gen_ai.tool.call.result": result}


def cut_result(content: str, limit: int, more: str) -> str:
    """Return the content if it has at most `limit` characters, otherwise its beginning and a notice of what is missing.

    more: a sentence that tells the model how to get the rest.
    """
    if len(content) <= limit:
        return content
    # The beginning is kept, where a result names what it is.
    shown = max(0, limit - len(more) - 80)  # 80: room for the notice itself
    missing = len(content) - shown
    return f"{content[:shown]}\n[cut: {missing:,} of {len(content):,} characters are missing here. {more}]"


def _explain(name: str, error: BaseException) -> str:
    """Return the reason for the model, without the exception groups that nurseries wrap around it."""
    error = first_cause(error)
    if isinstance(error, ToolError):
        return str(error)
    if isinstance(error, trio.TooSlowError):
        return f"{name} failed: something in it took too long"
    return f"{name} failed: {describe_error(error)}"


# ------------------------------------------------------------------ arguments


def prepare_arguments(schema: Metadata, arguments: Metadata) -> tuple[Metadata, str | None]:
    """Return the arguments to call a tool with, and what is wrong with them as text for the model, None if they fit the schema.

    Nulls that the schema does not allow are left out: some models fill in every optional parameter, with null for those that they
    do not need. Nothing is coerced: "5" is not a number. A schema that is itself broken is reported as a problem, never raised.
    """
    properties = schema.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    prepared = {name: value for name, value in arguments.items() if value is not None or _allows_null(known.get(name))}
    return prepared, _problems_of(schema, prepared)


def _problems_of(schema: Metadata, arguments: Metadata) -> str | None:
    """Return the problems of the arguments as text for the model, None if they fit the schema."""
    try:
        validator = _compile(schema)
    except ValueError as error:
        reason = _shorten(str(error).splitlines()[0], 200)
        return f"this tool cannot be called: its schema is broken ({reason})"
    try:
        problems = _find_problems(validator, schema, dict(arguments))
    except UnicodeEncodeError:
        # A lone surrogate, such as in the name of a file that is not UTF-8. The tool itself can refuse it.
        problems = _find_problems(validator, schema, _replace_surrogates(arguments))
    except (ValueError, RecursionError) as error:
        return f"the arguments cannot be read: {_shorten(str(error), 200)}"
    return "; ".join(problems) or None


def _allows_null(schema: object) -> bool:
    """Return whether a property takes null. A property that is unknown or not described by a mapping does not."""
    if not isinstance(schema, Mapping):
        return False
    types = schema.get("type")
    if isinstance(types, str):
        return types == "null"
    return "null" in types if isinstance(types, Sequence) else True


MOST_COMPILED: Final = 256
"""Compiled schemas that are kept."""
_compiled: dict[int, tuple[Metadata, Validator]] = {}
"""Compiled schemas of tools by the identity of the schema, which is kept with it."""


def _compile(schema: Metadata) -> Validator:
    """Return the compiled schema. Raises ValueError if it is broken or refers to a server.

    `jsonschema_rs` is a native library of 7 MB, so it is loaded when the first tool is called and
    not at the start.
    """
    import jsonschema_rs

    known = _compiled.get(id(schema))
    if known is not None and known[0] is schema:
        return known[1]
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_PATTERN_STEPS)
    validator = jsonschema_rs.validator_for(dict(schema), retriever=_refuse_reference, pattern_options=options)
    if len(_compiled) >= MOST_COMPILED:
        _compiled.clear()
    _compiled[id(schema)] = schema, validator
    return validator


def is_valid_schema(schema: Metadata) -> bool:
    """Return whether the schema of a tool is valid JSON Schema that refers to nothing outside of itself."""
    try:
        _compile(schema)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_reference(uri: str) -> Any:
    """Refuse to fetch a schema; the validator calls this for every `$ref` that is not in the schema itself."""
    raise ValueError(f"{uri} is not fetched")


def _replace_surrogates(value: Any) -> Any:
    """Return a copy with � for characters that cannot be encoded, which the validator cannot take."""
    if isinstance(value, str):
        return to_unicode(value)
    if isinstance(value, Mapping):
        return {_replace_surrogates(name): _replace_surrogates(item) for name, item in value.items()}
    return [_replace_surrogates(item) for item in value] if isinstance(value, list) else value


# ------------------------------------------------------------------ words for the model


def _find_problems(validator: Validator, schema: Metadata, arguments: Any) -> list[str]:
    """Return at most `MAX_PROBLEMS` problems in words. Further ones are not looked for."""
    errors = list(islice(validator.iter_errors(arguments), MAX_PROBLEMS + 1))
    words = [_describe_problem(error, schema) for error in errors[:MAX_PROBLEMS]]
    return [*words, "and more"] if len(errors) > MAX_PROBLEMS else words


def _describe_problem(error: ValidationError, schema: Metadata) -> str:
    """Return path, problem and allowed values: `xs[1].q must be of type string, found a number (2)`."""
    path, details = _format_path(error.instance_path), error.kind.as_dict()
    match error.kind.name:
        case "required":
            return f"{_join(path, details['property'])} is required"
        case "additionalProperties":
            names = ", ".join(_join(path, name) for name in details["unexpected"])
            return f"{names}: no such parameter (there are: {_known_parameters(error, schema)})"
        case "type":
            types = " or ".join(details["types"])
            found = f"{kind(error.instance)} ({_format_value(error.instance)})"
            return f"{path or 'the whole'} must be of type {types}, found {found}"
        case "enum":
            allowed = ", ".join(_format_value(option) for option in details["options"])
            return f"{path or 'the whole'} must be one of {allowed}; found {_format_value(error.instance)}"
        case _:
            return f"{path}: {_shorten(error.message, 200)}" if path else _shorten(error.message, 200)


def _known_parameters(error: ValidationError, schema: Any) -> str:
    """Return the names that the schema knows in the object that holds the unknown one."""
    for step in error.schema_path[:-1]:
        schema = schema.get(step) if isinstance(schema, Mapping) else None
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return ", ".join(properties or ()) or "none"


def _format_path(steps: Iterable[str | int]) -> str:
    """Return a path as people write it: `xs[1].q`."""
    path = ""
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else _join(path, step)
    return path


def _join(path: str, name: str) -> str:
    """Return the path of a property below `path`."""
    return f"{path}.{name}" if path else name


def _format_value(value: Any) -> str:
    """Return a value as JSON, shortened, since the model has it in its conversation."""
    return _shorten(encode_json(value), 40)


def _shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters. Unlike `formatting.truncate` it keeps line breaks, which can be what is wrong."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
