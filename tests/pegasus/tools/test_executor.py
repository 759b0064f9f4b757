"""The tools there are, and how they are run."""

import json

import pytest
import trio

from pegasus.models.base import ToolSpec
from pegasus.observe import configure_logging, stop_logging
from pegasus.redaction import KnownSecrets
from pegasus.tools import Tool, ToolContext, ToolError, ToolExecutor, parameters
from pegasus.tools.executor import cut_result


def tool(name, run=None, category="custom", more="Ask for less."):
    async def nothing(arguments, context):
        return {}

    return Tool(ToolSpec(name, "", parameters({})), run or nothing, category, more=more)


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="'a' already"):
        ToolExecutor([tool("a"), tool("b"), tool("a")])


def test_tools_are_found_by_name_in_their_order():
    executor = ToolExecutor([tool("b"), tool("a"), tool("c")])
    assert executor.get("a").name == "a"
    assert executor.get("x") is None
    assert [tool.name for tool in executor.offered()] == ["b", "a", "c"]


async def test_the_time_of_a_call_is_measured(autojump_clock):
    async def slow(arguments, context):
        await trio.sleep(0.3)
        return {}

    executor = ToolExecutor([tool("slow", slow)])
    assert (await executor.run(executor.get("slow"), {})).duration_ms == 300


async def test_a_cancellation_goes_on_to_the_caller():
    async def hang(arguments, context):
        await trio.sleep_forever()

    executor = ToolExecutor([tool("hang", hang)])
    with trio.CancelScope() as scope:
        scope.cancel()
        await executor.run(executor.get("hang"), {})
    assert scope.cancelled_caught


async def test_a_tool_may_have_a_deadline_of_its_own(autojump_clock):
    async def hang(arguments, context):
        await trio.sleep_forever()

    executor = ToolExecutor([tool("a", hang), tool("b", hang)], timeout=5, timeouts={"b": 90})
    for name, seconds in (("a", 5), ("b", 90)):
        begun = trio.current_time()
        assert f"longer than {seconds} s" in (await executor.run(executor.get(name), {})).content
        assert trio.current_time() - begun == seconds


async def test_a_result_that_is_too_long_is_cut_and_says_how_to_get_the_rest():
    async def flood(arguments, context):
        return "x" * 100_000

    executor = ToolExecutor([tool("flood", flood, more="Use offset.")])
    outcome = await executor.run(executor.get("flood"), {}, ToolContext(max_result=5_000))
    assert len(outcome.content) <= 5_000
    shown, _, notice = outcome.content.rpartition("\n")
    assert notice == f"[cut: {100_002 - len(shown):,} of 100,002 characters are missing here. Use offset.]"


async def test_an_error_is_cut_too():
    async def boom(arguments, context):
        raise ToolError("x" * 100_000)

    executor = ToolExecutor([tool("boom", boom)])
    assert len((await executor.run(executor.get("boom"), {}, ToolContext(max_result=5_000))).content) <= 5_000


async def test_a_result_that_fits_is_whole():
    async def run(arguments, context):
        return {"a": "x" * 4_000}

    executor = ToolExecutor([tool("a", run)])
    content = (await executor.run(executor.get("a"), {}, ToolContext(max_result=5_000))).content
    assert json.loads(content) == {"a": "x" * 4_000}
    assert cut_result(content, len(content), "") == content


# ------------------------------------------------------------------ secrets


def executor_for(result, *secrets):
    async def run(arguments, context):
        if isinstance(result, Exception):
            raise result
        return result

    return ToolExecutor([tool("a", run)], secrets=KnownSecrets(secrets))


async def run_for_content(executor, **context):
    return (await executor.run(executor.get("a"), {}, ToolContext(**context))).content


@pytest.mark.parametrize("result", [{"stdout": "key=sk-12345678\n"}, ToolError("refused: sk-12345678")])
async def test_a_known_secret_is_masked_in_results_and_errors(result):
    content = await run_for_content(executor_for(result, "sk-12345678"))
    assert "sk-1" not in content
    assert "***" in content


async def test_a_secret_that_a_reload_brings_is_masked_from_then_on():
    secrets = KnownSecrets()

    async def run(arguments, context):
        return "sk-12345678"

    executor = ToolExecutor([tool("a", run)], secrets=secrets)
    assert await run_for_content(executor) == '"sk-12345678"'
    secrets.add(["sk-12345678"])
    assert await run_for_content(executor) == '"***"'


async def test_a_secret_is_masked_as_json_writes_it():
    content = await run_for_content(executor_for({"a": 'x"y\\zé-12'}, 'x"y\\zé-12'))
    assert json.loads(content) == {"a": "***"}


async def test_a_secret_that_holds_another_one_leaves_no_rest():
    assert await run_for_content(executor_for("token-1-long", "token-1", "token-1-long")) == '"***"'


async def test_a_secret_is_masked_before_the_result_is_cut():
    secret = "s" * 2000
    content = await run_for_content(executor_for("x" * 4800 + secret + "y" * 2000, secret), max_result=5_000)
    assert "sss" not in content


async def test_what_is_too_short_to_be_a_secret_does_not_take_words_apart():
    assert await run_for_content(executor_for("a and b", "a", "", "and")) == '"a and b"'


async def test_each_call_is_a_line_of_the_log_without_its_arguments(tmp_path):
    async def run(arguments, context):
        raise ToolError("no such place")

    executor = ToolExecutor([tool("refuser", run)])
    configure_logging(tmp_path / "log", level="debug")
    try:
        await executor.run(executor.get("refuser"), {"path": "private"}, ToolContext())
    finally:
        stop_logging()
    [line] = [line for line in (tmp_path / "log").read_text().splitlines() if "refuser" in line]
    assert line.split(" ", 1)[1].startswith("debug   tools: tool call tool=refuser failed=True ms=")
    assert "private" not in line
