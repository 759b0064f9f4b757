"""The facts about a call, and what the gate makes of them."""

import os

import attrs
import pytest
import trio

from actors import Child, open_supervisor
from pegasus.access import (
    Approval,
    ApprovalError,
    ApprovalState,
    CallRequest,
    Decision,
    FindApproval,
    Policy,
    Principal,
    Role,
    SandboxState,
    SeekApproval,
    WithdrawApprovals,
    parse_rules,
)
from pegasus.access.rules import PolicyRule
from pegasus.messages import ChannelInfo, OwnerQuestion
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.settings import LiveValue
from pegasus.storage import StorageError
from pegasus.tools import Effect, PolicyGate, Reach, Tool, ToolContext, ToolExecutor, parameters
from pegasus.tools.base import CallQuestions, ToolOutcome
from pegasus.tools.files import file_tools
from pegasus.tools.gate import MOST_LINKS, describe_call

OWNER = Principal(Role.OWNER, ChannelInfo("cli", "main"))


def tool(name, category, effect=Effect.ONCE):
    return Tool(ToolSpec(name, name, {"type": "object"}), None, category, effect)


@pytest.fixture
def context(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return ToolContext(principal=OWNER, workspace=workspace, allowed_paths=(tmp_path,), task_id="t1", key="t1/c1")


@pytest.mark.parametrize(
    ("name", "arguments", "targets"),
    [
        ("shell_exec", {"command": "ls -l"}, (("ls -l",),)),
        ("run_python", {"code": "print(1)"}, (("print(1)",),)),
        ("command_start", {"command": "sh"}, (("sh",),)),
        ("command_input", {"commandId": "c1", "text": "rm x\n"}, (("rm x\n",),)),
    ],
)
def test_what_runs_code_is_a_command(context, name, arguments, targets):
    call = describe_call(tool(name, "code"), arguments, context)
    assert (call.is_command, call.targets) == (True, targets)


def test_looking_at_a_command_is_none(context):
    call = describe_call(tool("command_output", "code", Effect.IDEMPOTENT), {"commandId": "c1"}, context)
    assert not call.is_command


def test_a_path_is_named_where_it_leads(context, tmp_path):
    (context.workspace / "link").symlink_to(tmp_path)
    for path, real, leaves in (
        ("a.txt", context.workspace / "a.txt", False),
        ("link/a.txt", tmp_path / "a.txt", True),
        ("../a.txt", tmp_path / "a.txt", True),
        (str(context.workspace / "b"), context.workspace / "b", False),
    ):
        call = describe_call(tool("write_file", "file"), {"path": path}, context)
        assert call.targets[0][0] == str(real)
        assert (call.reaches_out, call.changes_world, call.stays_inside) == (leaves, leaves, not leaves)
    assert describe_call(tool("write_file", "file"), {"path": "a.txt"}, context).targets == (
        (str(context.workspace / "a.txt"), "a.txt"),
    )


@pytest.mark.parametrize(
    ("name", "arguments", "is_bare"),
    [
        ("shell_exec", {"command": "git status"}, True),
        ("shell_exec", {"command": "git status", "cwd": "."}, True),
        ("shell_exec", {"command": "git status", "cwd": "WORKSPACE", "env": {}}, True),
        ("shell_exec", {"command": "git status", "timeout": 5}, True),
        ("command_start", {"command": "git status"}, True),
        ("shell_exec", {"command": "git status", "cwd": "sub"}, False),
        ("shell_exec", {"command": "git status", "cwd": "./sub/.."}, False),
        ("shell_exec", {"command": "git status", "env": {"LD_PRELOAD": "x.so"}}, False),
        ("command_start", {"command": "git status", "env": {"PATH": "."}}, False),
        ("shell_exec", {"command": "git status > x"}, False),
        ("run_python", {"code": "x = f'{f()}'"}, False),
        ("command_input", {"commandId": "c1", "text": "git status\n"}, False),
    ],
)
def test_a_command_is_bare_if_nothing_beside_its_line_changes_it(context, name, arguments, is_bare):
    (context.workspace / "sub").mkdir()
    if arguments.get("cwd") == "WORKSPACE":
        arguments = {**arguments, "cwd": str(context.workspace)}
    assert describe_call(tool(name, "code"), arguments, context).is_bare is is_bare
    with_variable = attrs.evolve(context, env={"GIT_CONFIG_COUNT": "1"})
    assert not describe_call(tool(name, "code"), arguments, with_variable).is_bare


def test_reading_changes_nothing(context):
    call = describe_call(tool("read_file", "file", Effect.PURE), {"path": "/etc/hosts"}, context)
    assert (call.reaches_out, call.changes_world, call.stays_inside) == (False, False, False)


def test_moving_out_of_the_workspace_leaves_it(context):
    move = tool("move_file", "file")
    assert describe_call(move, {"source": "a", "target": "../b"}, context).reaches_out
    assert describe_call(move, {"source": "../a", "target": "b"}, context).reaches_out
    assert not describe_call(move, {"source": "a", "target": "b"}, context).reaches_out


@pytest.mark.parametrize(
    ("name", "arguments", "carries", "changes"),
    [
        ("http_get", {"url": "https://seen.example/"}, False, False),
        ("http_get", {"url": "https://made.up.example/?q=secret"}, True, False),
        ("http_get", {"url": "https://seen.example/", "headers": {"x": "secret"}}, True, False),
        ("http_post", {"url": "https://seen.example/"}, True, True),
        ("http_request", {"url": "https://seen.example/", "method": "delete"}, True, True),
        ("http_request", {"url": "https://seen.example/", "method": "head"}, False, False),
        ("http_request", {"url": "https://seen.example/", "method": "GET", "body": "secret"}, True, False),
        ("web_search", {"query": "otters"}, False, False),
    ],
)
def test_an_address_that_was_read_carries_nothing_out(context, name, arguments, carries, changes):
    context = attrs.evolve(context, has_seen=lambda text: text == "https://seen.example/")
    call = describe_call(tool(name, "network"), arguments, context)
    assert (call.reaches_out, call.changes_world) == (carries, changes)


@pytest.mark.parametrize(
    ("url", "is_known"),
    [
        ("https://docs.example/guide/start", True),
        ("https://docs.example", True),
        ("https://docs.example/", True),
        ("http://other.example/", True),
        ("https://docs.example/next/page?n=2", True),
        ("https://docs.example/n%C3%A4chste", True),
        ("https://docs.example/n%c3%a4chste", False),
        ("https://docs.example/g%75ide/start", False),
        ("https://docs.example/guide%2Fstart", False),
        ("https://docs.example/a", False),
        ("https://docs.example/guide/other", False),
        ("https://docs.example/guide/start?q=secret", False),
        ("https://secret.docs.example/", False),
        ("https://secret@docs.example/", False),
        ("https://docs.example:secret/", False),
        ("https://[secret", False),
        ("https://other.example/next/page?n=3", False),
    ],
)
def test_an_address_is_known_as_a_whole_or_by_host_and_path(context, url, is_known):
    read = 'Look at https://docs.example/guide/start and other.example. <a href="/next/page?n=2">a</a> https://docs.example/nächste'
    context = attrs.evolve(context, has_seen=read.__contains__)
    assert describe_call(tool("http_get", "network"), {"url": url}, context).reaches_out is not is_known


def test_after_text_from_outside_few_links_of_a_host_are_followed(context):
    """Each choice among the links of a page tells its host something."""
    fetch = tool("http_get", "network")
    urls = [f"https://docs.example/page-{n}" for n in range(MOST_LINKS + 1)]
    made = [fetch.value_call({"url": url}) for url in urls[:-1]]
    seen = attrs.evolve(context, has_seen=lambda text: True, earlier=lambda: made)
    read = attrs.evolve(seen, outside=(Untrusted.WEB,))
    assert describe_call(fetch, {"url": urls[-1]}, read).reaches_out
    assert not describe_call(fetch, {"url": urls[0]}, read).reaches_out
    assert not describe_call(fetch, {"url": "https://other.example/page"}, read).reaches_out
    assert not describe_call(fetch, {"url": urls[-1]}, seen).reaches_out


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/x",
        "HTTPS://EVIL.example/x",
        "https://evil.example:443/x",
        "https://evil.example./x",
        "https://me@evil.example/x",
        "https://evil.example/%78",
        "https://evil．example/x",
    ],
)
def test_a_refusal_finds_an_address_however_it_is_written(context, url):
    call = describe_call(tool("http_get", "network"), {"url": url}, context)
    rule = {"tool": "http_get", "match": "https://evil.example/x", "decision": "deny"}
    assert Policy(parse_rules([rule])).decide(call, SandboxState(stands=True)).decision is Decision.DENY


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("https://good.example/a", True),
        ("https://good.example/a%20b", True),
        ("https://good.example@evil.example/", False),
        ("https://good.example:pass@evil.example/", False),
    ],
)
def test_an_allow_fits_an_address_in_all_its_forms(context, url, is_allowed):
    call = describe_call(tool("http_post", "network"), {"url": url}, attrs.evolve(context, outside=(Untrusted.WEB,)))
    rule = {"tool": "http_post", "match": "https://good.example*", "decision": "allow"}
    decided = Policy(parse_rules([rule])).decide(call, SandboxState(stands=True)).decision
    assert (decided is Decision.ALLOW) is is_allowed


def test_tools_of_other_programs_reach_out(context):
    acts = describe_call(tool("github__merge", "mcp"), {}, context)
    looks = describe_call(attrs.evolve(tool("look", "custom"), reach=Reach.INSIDE), {}, context)
    inner = describe_call(attrs.evolve(tool("memory_write", "memory"), reach=Reach.INSIDE), {}, context)
    assert (acts.reaches_out, acts.changes_world, looks.reaches_out, inner.is_inner) == (True, True, False, True)


def executor(policy, *tools):
    walls = SandboxState(stands=True, has_network=False)
    return ToolExecutor(tools, gate=PolicyGate(LiveValue(policy), LiveValue(walls), None))


async def test_a_refusal_is_an_error_for_the_model(context):
    async def run(arguments, context):
        raise AssertionError("it was run")

    spec = ToolSpec("touch", "Touch.", parameters({"x": {"type": "string"}}, "x"))
    box = executor(Policy([PolicyRule("touch", Decision.DENY)]), Tool(spec, run))
    outcome = await box.run(box.get("touch"), {"x": "1"}, context)
    assert outcome.failed
    assert outcome.content.startswith("Error: touch is not allowed here: rule 1 of policy.rules.")


async def test_wrong_arguments_are_named_before_anybody_is_asked(context):
    spec = ToolSpec("touch", "Touch.", parameters({"x": {"type": "string"}}, "x"))
    box = executor(Policy([PolicyRule("touch", Decision.ASK)]), Tool(spec, None))
    assert "x is required" in (await box.run(box.get("touch"), {}, context)).content


@pytest.mark.parametrize("error", [ApprovalError("too many wait"), StorageError("the disk is full"), None])
async def test_while_nobody_can_be_asked_nothing_is_made(context, error):
    """The keeper refuses, its disk does, or it is not there."""

    async def refuse(inbox):
        inbox.started()
        async for message in inbox:
            message.reply.fail(error)

    async with open_supervisor([Child("keeper", refuse)] if error else []) as root:
        walls = SandboxState(stands=True, has_network=False)
        gate = PolicyGate(LiveValue(Policy([PolicyRule("touch", Decision.ASK)])), LiveValue(walls), root.ref("keeper"))
        box = ToolExecutor([tool("touch", "custom")], gate=gate)
        outcome = await box.run(box.get("touch"), {}, context)
    assert outcome.failed
    assert not outcome.approval
    assert "who cannot be asked now" in outcome.content


async def test_what_was_granted_may_be_made_without_a_task(context):
    """The Main Agent waits for nobody, and an owner who has granted a tool for good is not asked."""
    seen = []

    async def grant(inbox):
        inbox.started()
        async for message in inbox:
            seen.append(message.may_ask)
            message.reply.send(Approval("", message.request, 0, 0, ApprovalState.ALLOWED))

    async def run(arguments, context):
        return "made"

    async with open_supervisor([Child("keeper", grant)]) as root:
        policy = LiveValue(Policy([PolicyRule("touch", Decision.ASK)]))
        gate = PolicyGate(policy, LiveValue(SandboxState()), root.ref("keeper"))
        box = ToolExecutor([attrs.evolve(tool("touch", "custom"), run=run)], gate=gate)
        outcome = await box.run(box.get("touch"), {}, attrs.evolve(context, task_id="", key=""))
    assert (outcome.content, seen) == ('"made"', [False])


async def test_only_a_task_waits_for_an_owner(context):
    """What was granted may be made all the same, so the keeper is asked, but for no question; it need not be there."""

    async def grant_nothing(inbox):
        inbox.started()
        async for message in inbox:
            assert not message.may_ask
            message.reply.send(Approval("", message.request, 0, 0, ApprovalState.WITHDRAWN))

    for keepers in ([Child("keeper", grant_nothing)], []):
        async with open_supervisor(keepers) as root:
            policy = LiveValue(Policy([PolicyRule("touch", Decision.ASK)]))
            gate = PolicyGate(policy, LiveValue(SandboxState()), root.ref("keeper"))
            box = ToolExecutor([tool("touch", "custom")], gate=gate)
            for other in (attrs.evolve(context, task_id=""), attrs.evolve(context, role="reflection")):
                outcome = await box.run(box.get("touch"), {}, other)
                assert "Only a task can wait" in outcome.content
                assert not outcome.approval


class Swapped:
    """A gate that looks at a path, after which somebody else replaces a folder by a link."""

    def __init__(self, gate, swap):
        self._gate, self._swap = gate, swap

    async def check(self, *call):
        checked = await self._gate.check(*call)
        self._swap()
        return checked


async def test_a_link_that_is_swapped_between_check_and_use_leads_nowhere(context, tmp_path):
    """The owner allowed writing all over tmp_path, but what was read from outside may write in the workspace only."""
    (context.workspace / "sub").mkdir()

    def swap():
        os.rmdir(context.workspace / "sub")
        (context.workspace / "sub").symlink_to(tmp_path)

    policy, walls = Policy(after_untrusted=Decision.DENY), SandboxState(stands=True, has_network=False)
    gate = PolicyGate(LiveValue(policy), LiveValue(walls), None)
    box = ToolExecutor(file_tools(), gate=Swapped(gate, swap))
    tainted = attrs.evolve(context, outside=("web",))
    outcome = await box.run(box.get("write_file"), {"path": "sub/x", "content": "1"}, tainted)
    assert outcome.failed
    assert not (tmp_path / "x").exists()


async def test_the_call_that_is_described_is_the_one_that_is_made(context):
    """Nulls that are left out before the call are left out before the decision too."""
    seen = []

    class Watch:
        async def check(self, tool, arguments, context):
            seen.append(arguments)
            return ToolOutcome("Error: no", failed=True)

    spec = ToolSpec("touch", "Touch.", parameters({"x": {"type": "string"}, "y": {"type": "string"}}, "x"))
    box = ToolExecutor([Tool(spec, None)], gate=Watch())
    await box.run(box.get("touch"), {"x": "1", "y": None}, context)
    assert seen == [{"x": "1"}]


def test_a_request_without_facts_is_harmless():
    assert Policy().decide(CallRequest("x", OWNER), SandboxState()).decision is Decision.ALLOW


@pytest.mark.parametrize(
    "name", ["AGENTS.md", "agents.MD", "./SOUL.md", "sub/../USER.md", "HEARTBEAT.md", "memory/MEMORY.md", "link"]
)
def test_a_file_that_prompts_repeat_is_more_than_a_file_of_the_workspace(context, name):
    """Otherwise a page could give orders to every conversation to come."""
    (context.workspace / "sub").mkdir()
    (context.workspace / "link").symlink_to("IDENTITY.md")
    write = describe_call(tool("write_file", "file"), {"path": name}, context)
    move = describe_call(tool("move_file", "file"), {"from": "notes.txt", "to": name}, context)
    for call in (write, move):
        assert (call.reaches_out, call.changes_world, call.stays_inside) == (True, True, False)
    look = describe_call(tool("read_file", "file", Effect.PURE), {"path": name}, context)
    assert (look.reaches_out, look.changes_world) == (False, False)
    deeper = describe_call(tool("write_file", "file"), {"path": "sub/AGENTS.md"}, context)
    assert deeper.stays_inside


async def test_an_empty_path_is_refused_with_the_reason(context):
    for file_tool in file_tools():
        given = dict.fromkeys(file_tool.spec.parameters["required"] if file_tool.name != "list_files" else ["path"], "")
        outcome = await executor(Policy(), file_tool).run(file_tool, given, context)
        assert outcome.failed
        assert "cannot be used as a path" in outcome.content or file_tool.name in ("edit_file", "grep_files")


def test_both_ends_of_a_move_count(context, tmp_path):
    call = describe_call(tool("move_file", "file"), {"from": "a", "to": str(tmp_path / "b")}, context)
    assert (call.reaches_out, call.stays_inside) == (True, False)


@pytest.mark.parametrize("role", [Role.OWNER, Role.GUEST])
async def test_the_notes_of_owners_conversations_are_closed_to_work_for_a_guest(context, role):
    (context.workspace / "memory").mkdir()
    (context.workspace / "memory" / "HISTORY.md").write_text("Ann's secret")
    (context.workspace / "memory.md").write_text("a file like others")
    context = attrs.evolve(
        context, allowed_paths=(context.workspace,), principal=Principal(role, ChannelInfo("web", "c1"))
    )
    tools = {tool.name: tool for tool in file_tools()}
    tool_executor = executor(Policy(), *tools.values())

    async def run(name, **arguments):
        return await tool_executor.run(tools[name], arguments, context)

    for name, arguments in (
        ("read_file", {"path": "memory/HISTORY.md"}),
        ("read_file", {"path": "./memory/../memory/HISTORY.md"}),
        ("grep_files", {"pattern": "secret"}),
        ("grep_files", {"pattern": "secret", "path": "memory"}),
    ):
        assert ("Ann's secret" in (await run(name, **arguments)).content) is (role is Role.OWNER)
    assert "a file like others" in (await run("grep_files", pattern="like others")).content


@pytest.mark.parametrize(
    "name",
    [".git/hooks/pre-commit", ".GIT/config", "sub/.vscode/tasks.json", ".git/commondir", "link/pre-push", "editor"],
)
def test_a_file_that_programs_run_by_themselves_is_more_than_a_file_of_the_workspace(context, name):
    (context.workspace / "link").symlink_to(".git/hooks")
    (context.workspace / "editor").symlink_to(".vscode")
    write = describe_call(tool("write_file", "file"), {"path": name}, context)
    move = describe_call(tool("move_file", "file"), {"from": "notes.txt", "to": name}, context)
    for call in (write, move):
        assert (call.reaches_out, call.changes_world, call.stays_inside) == (True, True, False)
    look = describe_call(tool("read_file", "file", Effect.PURE), {"path": name}, context)
    assert (look.reaches_out, look.changes_world) == (False, False)


def test_a_folder_is_judged_by_what_it_holds_under_its_new_name(context):
    """A repository that the model has made may be harmless where it is, and must not take the place of one that people use."""
    (context.workspace / "made/.git/hooks").mkdir(parents=True)
    (context.workspace / "bare/hooks").mkdir(parents=True)
    (context.workspace / "plain/src").mkdir(parents=True)
    (context.workspace / ".vscode").symlink_to("plain")
    for source, target, asks in (
        ("made", "project", True),
        ("bare", ".git/modules/sub", True),
        ("bare", "project.git", True),
        ("plain", ".vscode", True),
        ("plain", "project", False),
        ("bare", "project", False),
    ):
        call = describe_call(tool("move_file", "file"), {"from": source, "to": target}, context)
        assert call.reaches_out is asks, (source, target)


def test_a_link_to_a_prompt_file_or_in_its_place_is_that_file(context):
    (context.workspace / "AGENTS.md").symlink_to("docs.md")
    call = describe_call(tool("move_file", "file"), {"from": "notes.txt", "to": "AGENTS.md"}, context)
    assert call.reaches_out


async def test_a_question_whose_call_has_ended_while_it_was_written_is_withdrawn(autojump_clock):
    """The deadline of a call may come in that moment; the task goes on, and nobody would wait for an answer."""
    withdrawn, asked = [], []

    async def keeper(inbox):
        async for message in inbox:
            match message:
                case SeekApproval(reply, request):
                    await trio.sleep(1)  # the disk
                    asked.append(Approval("a-1", request, 0, 1))
                    reply.send(asked[0])
                case FindApproval(reply, key):
                    reply.send(next((each for each in asked if each.request.first.key == key), None))
                case WithdrawApprovals(task_ids, id):
                    withdrawn.append((task_ids, id))

    async with open_supervisor(name="services") as root:
        approvals = await root.start_child(Child("keeper", keeper))
        questions = CallQuestions(approvals, "book", {}, "t1/c1", "t1", OWNER)
        with trio.move_on_after(0.5) as scope:
            await questions.ask(OwnerQuestion("MCP server hotel", "Which room?"), 1)
        assert scope.cancelled_caught
        await trio.sleep(1)
        assert withdrawn == [(("t1",), "a-1")]
