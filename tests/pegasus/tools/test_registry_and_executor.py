"""The tools there are, and how they are run."""

import json

import pytest
import trio

from pegasus.models.base import ToolSpec
from pegasus.tools import Tool, ToolContext, ToolError, ToolExecutor, ToolRegistry, cut_result, parameters


def tool(name, run=None, category="custom", more="Ask for less."):
    async def nothing(arguments, context):
        return {}

    return Tool(ToolSpec(name, "", parameters({})), run or nothing, category, more=more)


def test_a_name_is_given_once():
    registry = ToolRegistry([tool("a")])
    with pytest.raises(ValueError, match="'a' already"):
        registry.register(tool("a"))


def test_of_many_with_a_double_none_is_registered():
    registry = ToolRegistry([tool("a")])
    for some in ([tool("b"), tool("a")], [tool("b"), tool("b")]):
        with pytest.raises(ValueError, match="already"):
            registry.register_many(some)
    assert [one.name for one in registry.all()] == ["a"]


def test_tools_are_found_by_name_and_category_in_their_order():
    registry = ToolRegistry([tool("b", category="file"), tool("a", category="data"), tool("c", category="file")])
    assert registry.has("a")
    assert registry.get("a").name == "a"
    assert registry.get("x") is None
    assert not registry.has("x")
    assert [one.name for one in registry.by_category("file")] == ["b", "c"]
    assert [spec.name for spec in registry.specs()] == ["b", "a", "c"]
    registry.remove("b")
    assert [one.name for one in registry.all()] == ["a", "c"]


async def test_calls_are_counted_with_failures_and_average_duration(autojump_clock):
    async def slow(arguments, context):
        await trio.sleep(0.3)
        return {}

    async def refuse(arguments, context):
        raise ToolError("no")

    executor = ToolExecutor(ToolRegistry([tool("slow", slow, "file"), tool("refuse", refuse, "data")]))
    assert (await executor.run(executor.get("slow"), {})).duration_ms == 300
    await executor.run(executor.get("slow"), {"wrong": 1})
    await executor.run(executor.get("refuse"), {})
    stats = executor.registry.stats()
    assert stats["total"] == 2
    assert stats["byCategory"] == {"file": 1, "data": 1}
    assert stats["callStats"]["slow"] == {"count": 2, "failures": 1, "avgDuration": 150.0}
    assert stats["callStats"]["refuse"]["failures"] == 1


async def test_a_cancelled_call_is_counted_and_the_cancellation_goes_on():
    async def hang(arguments, context):
        await trio.sleep_forever()

    executor = ToolExecutor(ToolRegistry([tool("hang", hang)]))
    with trio.CancelScope() as scope:
        scope.cancel()
        await executor.run(executor.get("hang"), {})
    assert scope.cancelled_caught
    assert executor.registry.stats()["callStats"]["hang"]["failures"] == 1


async def test_a_tool_may_have_a_deadline_of_its_own(autojump_clock):
    async def hang(arguments, context):
        await trio.sleep_forever()

    executor = ToolExecutor(ToolRegistry([tool("a", hang), tool("b", hang)]), timeout=5, timeouts={"b": 90})
    for name, seconds in (("a", 5), ("b", 90)):
        begun = trio.current_time()
        assert f"longer than {seconds} s" in (await executor.run(executor.get(name), {})).content
        assert trio.current_time() - begun == seconds


async def test_a_result_that_is_too_long_is_cut_and_says_how_to_get_the_rest():
    async def flood(arguments, context):
        return "x" * 100_000

    executor = ToolExecutor(ToolRegistry([tool("flood", flood, more="Use offset.")]))
    outcome = await executor.run(executor.get("flood"), {}, ToolContext(max_result=5_000))
    assert len(outcome.content) <= 5_000
    shown, _, notice = outcome.content.rpartition("\n")
    assert notice == f"[cut: {100_002 - len(shown):,} of 100,002 characters are missing here. Use offset.]"


async def test_an_error_is_cut_too():
    async def boom(arguments, context):
        raise ToolError("x" * 100_000)

    executor = ToolExecutor(ToolRegistry([tool("boom", boom)]))
    assert len((await executor.run(executor.get("boom"), {}, ToolContext(max_result=5_000))).content) <= 5_000


async def test_a_result_that_fits_is_whole():
    async def run(arguments, context):
        return {"a": "x" * 4_000}

    executor = ToolExecutor(ToolRegistry([tool("a", run)]))
    content = (await executor.run(executor.get("a"), {}, ToolContext(max_result=5_000))).content
    assert json.loads(content) == {"a": "x" * 4_000}
    assert cut_result(content, len(content), "") == content


# ------------------------------------------------------------------ secrets


def executor_for(result, *secrets):
    async def run(arguments, context):
        if isinstance(result, Exception):
            raise result
        return result

    return ToolExecutor(ToolRegistry([tool("a", run)]), secrets=secrets)


async def run_for_content(executor, **context):
    return (await executor.run(executor.get("a"), {}, ToolContext(**context))).content


@pytest.mark.parametrize("result", [{"stdout": "key=sk-12345678\n"}, ToolError("refused: sk-12345678")])
async def test_a_known_secret_is_masked_in_results_and_errors(result):
    content = await run_for_content(executor_for(result, "sk-12345678"))
    assert "sk-1" not in content
    assert "***" in content


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
