"""Decisions about tool calls, as a table: facts in, decision out."""

import pytest

from pegasus.access import CallRequest, Decision, Policy, Principal, Role, SandboxState, parse_rules
from pegasus.access.rules import PolicyRule
from pegasus.messages import ChannelInfo
from pegasus.policy import is_bare_line

OWNER = Principal(Role.OWNER, ChannelInfo("cli", "main"))
GUEST = Principal(Role.GUEST, ChannelInfo("slack", "#general", "eve"))
IN, OUT = SandboxState(stands=True, has_network=False), SandboxState()
ALLOW, ASK, DENY = Decision.ALLOW, Decision.ASK, Decision.DENY


def command(line, who=OWNER, sources=()):
    return CallRequest("shell_exec", who, ((line,),), is_command=True, is_bare=is_bare_line(line), sources=sources)


def fetch(url="https://example.org/", who=OWNER, **facts):
    return CallRequest("http_get", who, ((url,),), **facts)


def decided(call, *rules, walls=IN, **policy):
    return Policy(rules, **policy).decide(call, walls).decision


@pytest.mark.parametrize(
    ("call", "walls", "decision"),
    [
        (command("ls"), IN, ALLOW),
        (command("ls"), OUT, ASK),
        (command("ls", GUEST), IN, DENY),
        (command("ls", GUEST), OUT, DENY),
        (command("ls", sources=("web",)), IN, ALLOW),
        (command("ls", sources=("web",)), SandboxState(stands=True, has_network=True), ASK),
        (fetch(), IN, ALLOW),
        (fetch(who=GUEST), IN, ALLOW),
        (fetch(sources=("web",)), IN, ALLOW),
        (fetch(sources=("web",), reaches_out=True), IN, ASK),
        (fetch(reaches_out=True), IN, ALLOW),
        (fetch(who=GUEST, changes_world=True), IN, DENY),
    ],
)
def test_without_rules(call, walls, decision):
    assert decided(call, walls=walls) is decision


@pytest.mark.parametrize("gap", [{"is_partial": True}, {"unsearched": "too many files"}])
def test_partial_walls_ask_after_text_from_outside_and_for_others_than_owners(gap):
    partial = SandboxState(stands=True, has_network=False, **gap)
    assert decided(command("ls"), walls=partial) is ALLOW
    assert decided(command("ls", sources=("web",)), walls=partial) is ASK
    assert decided(command("ls", who=GUEST), PolicyRule("memory_*", DENY), walls=partial) is DENY
    assert decided(command("ls", sources=("web",)), PolicyRule("shell_exec", ALLOW), walls=partial) is ALLOW


def test_the_default_is_for_what_reaches_anything():
    assert decided(fetch(), default=DENY) is DENY
    assert decided(CallRequest("memory_write", OWNER, is_inner=True), default=DENY) is ALLOW


@pytest.mark.parametrize("after", list(Decision))
def test_after_untrusted(after):
    assert decided(fetch(sources=("web",), reaches_out=True), after_untrusted=after) is after


def test_the_strictest_counts_where_no_rule_fits():
    for walls in (OUT, SandboxState(stands=False, has_network=False), SandboxState(stands=True, has_network=True)):
        assert decided(command("ls", sources=("web",)), walls=walls, after_untrusted=DENY) is DENY
    assert decided(command("ls"), walls=OUT, default=DENY) is DENY


def test_the_first_rule_that_fits_decides():
    rules = (PolicyRule("shell_*", DENY, "rm *"), PolicyRule("*", ALLOW), PolicyRule("shell_exec", DENY))
    assert decided(command("rm x"), *rules) is DENY
    assert decided(command("ls"), *rules, walls=OUT) is ALLOW
    assert decided(command("ls", GUEST), *rules) is ALLOW, "an owner may give guests more"


def test_a_rule_for_guests_is_not_about_owners():
    rule = PolicyRule("http_get", DENY, who=Role.GUEST)
    assert (decided(fetch(), rule), decided(fetch(who=GUEST), rule)) == (ALLOW, DENY)


@pytest.mark.parametrize(
    "line",
    [
        "git push; rm x",
        "git push && rm x",
        "git push & rm x",
        "git push | sh",
        "git push $(rm x)",
        "git push `rm x`",
        "git push\nrm x",
        "git push || rm x",
        "git push <(rm x)",
        "git push\r\nrm x",
        "git push ${x:-$(rm x)}",
        "git push > x",
        "git push >> x",
        "git push < x",
        "git push $REMOTE",
        "git push ~",
        "git push *",
        "git push ?",
        "git push [a]",
        "git push {a,b}",
        'git push "$(rm x)"',
        "git push \\; rm",
    ],
)
def test_an_allow_with_a_pattern_never_fits_more_than_one_command(line):
    rule = PolicyRule("shell_exec", ALLOW, "git *")
    assert decided(command("git push"), rule, walls=OUT) is ALLOW
    assert decided(command(line), rule, walls=OUT) is ASK
    assert decided(command(line), PolicyRule("shell_exec", ALLOW), walls=OUT) is ALLOW, (
        "a rule without a pattern fits all"
    )


@pytest.mark.parametrize(
    "line",
    [
        "git push",
        "git  push",
        "git push origin",
        " git push",
        "ls; git push",
        "true && git push -f",
        "(git push)",
        "ls|git push",
        "ls\ngit push",
        "echo `git push`",
        "echo $(git push)",
        "{ git push; }",
        "g'it' push",
        'git "push"',
        "gi\\t push",
    ],
)
@pytest.mark.parametrize("decision", [ASK, DENY])
def test_a_refusal_finds_its_command_in_the_line(line, decision):
    assert decided(command(line), PolicyRule("shell_exec", decision, "git push*")) is decision


def test_a_pattern_is_about_the_whole_text():
    assert (
        decided(fetch("https://evil.example/https://good.example/"), PolicyRule("http_get", DENY, "https://good.*"))
        is ALLOW
    )


def test_an_allow_must_fit_every_path_of_a_call_and_a_refusal_any():
    move = CallRequest("move_file", OWNER, (("/a/x",), ("/etc/y", "y")), reaches_out=True, sources=("web",))
    assert decided(move, PolicyRule("move_file", ALLOW, "/a/*")) is ASK
    assert decided(move, PolicyRule("move_file", DENY, "/etc/*")) is DENY
    assert (
        decided(CallRequest("move_file", OWNER, (("/a/x",), ("/a/y",))), PolicyRule("move_file", ALLOW, "/a/*"))
        is ALLOW
    )


def test_an_allow_with_a_pattern_fits_nothing_that_has_no_text():
    call = CallRequest("github__merge", OWNER, reaches_out=True, sources=("web",))
    assert decided(call, PolicyRule("github__*", ALLOW, "*")) is ASK
    assert decided(call, PolicyRule("github__*", ALLOW)) is ALLOW


def test_rules_of_the_settings():
    [rule] = parse_rules([{"tool": "shell_exec", "match": "git *", "who": "guest", "decision": "ask"}])
    assert rule == PolicyRule("shell_exec", ASK, "git *", Role.GUEST)
    [rule] = parse_rules([{"tool": "x", "decision": "deny"}])
    assert (rule.match, rule.who) == ("", None)


def test_a_ruling_says_which_rule():
    ruling = Policy((PolicyRule("x", ALLOW), PolicyRule("http_*", DENY))).decide(fetch(), IN)
    assert ruling.why == "rule 2 of policy.rules"
