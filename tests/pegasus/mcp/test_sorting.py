"""Kinds of tools: the owner's lists, the annotations of a trusted server, and names that speak of destruction."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.mcp.listing import extra_tools, read_tools
from pegasus.mcp.server import McpServer
from pegasus.mcp.sorting import ToolHints, is_destructive_name, read_hints, sort_tool
from pegasus.outside import Untrusted
from pegasus.policy import ToolKind
from pegasus.settings import McpServerSettings
from pegasus.tools import Effect, Reach, ToolContext

READ, FETCH, ACT, DESTROY = ToolKind.PRIVATE_READER, ToolKind.OPEN_READER, ToolKind.ACT, ToolKind.DESTRUCTIVE


def server(**keys) -> McpServerSettings:
    return McpServerSettings(command="lab", **keys)


def kind(name="look", settings=None, **annotations) -> ToolKind:
    return sort_tool(name, read_hints({"annotations": annotations}), settings or server(trust="hints"))


def test_an_untrusted_server_has_acts_only_whatever_it_says():
    assert kind(settings=server(), readOnlyHint=True, openWorldHint=False) is ACT
    assert kind(settings=server()) is ACT


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"readOnlyHint": True, "openWorldHint": False}, READ),
        ({"readOnlyHint": True}, FETCH),
        ({"readOnlyHint": True, "openWorldHint": True}, FETCH),
        ({"readOnlyHint": False, "destructiveHint": False}, ACT),
        ({"destructiveHint": False}, ACT),
        ({"destructiveHint": True}, DESTROY),
        ({"readOnlyHint": False}, DESTROY),
        ({}, DESTROY),
        ({"readOnlyHint": True, "openWorldHint": False, "destructiveHint": True}, DESTROY),
    ],
)
def test_a_trusted_server_is_taken_at_its_word(annotations, expected):
    assert kind(**annotations) is expected


@pytest.mark.parametrize("nonsense", ["true", 1, 0, None, [], {}, [True], "false", 1e999])
def test_an_annotation_of_another_type_says_nothing(nonsense):
    assert kind(readOnlyHint=nonsense, openWorldHint=False) is DESTROY
    assert kind(readOnlyHint=True, openWorldHint=nonsense) is FETCH
    assert kind(destructiveHint=nonsense) is DESTROY


@pytest.mark.parametrize("annotations", [None, "readOnlyHint", ["readOnlyHint"], 7, True])
def test_annotations_that_are_no_object_say_nothing(annotations):
    assert read_hints({"annotations": annotations}) == ToolHints()


def test_the_lists_of_the_owner_stand_above_the_server():
    lists = server(trust="hints", reads=("get_*", "list"), fetches=("search",), acts=("get_out",), asks=("get_in",))
    assert kind("get_mail", lists) is READ
    assert kind("list", lists, destructiveHint=True) is READ
    assert kind("listing", lists) is DESTROY
    assert kind("search", lists, readOnlyHint=True, openWorldHint=False) is FETCH
    assert kind("get_out", lists, readOnlyHint=True, openWorldHint=False) is ACT
    assert kind("get_in", lists, readOnlyHint=True, openWorldHint=False) is DESTROY


def test_the_more_careful_of_two_lists_counts():
    assert kind("x", server(reads=("x",), fetches=("x",))) is FETCH
    assert kind("x", server(reads=("x",), acts=("*",))) is ACT
    assert kind("x", server(reads=("x",), acts=("x",), asks=("*",))) is DESTROY


@pytest.mark.parametrize(
    "name",
    [
        "delete",
        "delete_file",
        "fileDelete",
        "file-delete",
        "DELETE_ALL",
        "deletefile",
        "bulk.remove",
        "purgeCache",
        "cancel_order",
        "factory reset",
        "revoke",
        "update_password",
        "grantAccess",
        "share_public",
        "SharePublicLink",
        "share-public",
        "del\u200bete_file",
        "ｄｅｌｅｔｅ",
    ],
)
def test_a_name_that_speaks_of_destruction_is_believed_from_everybody(name):
    reading = {"readOnlyHint": True, "openWorldHint": False}
    assert kind(name, **reading) is DESTROY
    assert kind(name, server(), **reading) is DESTROY
    assert kind(name, server(acts=(name,))) is DESTROY


def test_only_the_whole_name_makes_a_reader_of_a_tool_that_seems_to_destroy():
    assert kind("get_password_age", server(reads=("get_*",))) is DESTROY
    assert kind("get_password_age", server(reads=("get_password_age",))) is READ
    assert kind("get_password_age", server(fetches=("get_password_age",))) is FETCH


@pytest.mark.parametrize("name", ["get_mail\u200b", "\u202eget_mail", "get_mail\n", "get_\U000e0041mail"])
def test_a_name_that_only_looks_like_another_gets_its_care_and_not_its_freedom(name):
    assert kind(name, server(reads=("get_mail",))) is ACT
    assert kind(name, server(asks=("get_mail",))) is DESTROY
    assert kind(name, server(acts=("get_mail",), trust="hints"), readOnlyHint=True) is ACT


@pytest.mark.parametrize("name", ["get_balance", "send_mail", "share", "public", "read_file", "", "💥", "\ud800"])
def test_other_names_say_nothing(name):
    assert not is_destructive_name(name)


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.text(), st.lists)), st.text())
def test_no_entry_of_a_list_breaks_the_sorting(annotations, name):
    found = sort_tool(name, read_hints({"annotations": annotations}), server(trust="hints"))
    assert found in (READ, FETCH, ACT, DESTROY)


def test_resources_and_prompts_of_a_trusted_server_read_what_others_may_see():
    for extra in extra_tools("lab", has_resources=True, prompts=[{"name": "p"}]):
        assert sort_tool(extra.own_name, extra.hints, server(trust="hints")) is FETCH
        assert sort_tool(extra.own_name, extra.hints, server()) is ACT


async def made(settings: McpServerSettings, *entries):
    lab = McpServer("lab", settings, ToolContext(), Path())
    lab._listed = await read_tools("lab", [{"inputSchema": {"type": "object"}, **entry} for entry in entries])
    lab._make_tools({})
    return lab


async def test_a_tool_knows_its_kind_and_its_server():
    lab = await made(server(reads=("look",)), {"name": "look"}, {"name": "do"})
    assert [(tool.name, tool.kind, tool.server) for tool in lab.tools] == [
        ("lab__look", READ, "lab"),
        ("lab__do", ACT, "lab"),
    ]
    assert {tool.source for tool in lab.tools} == {Untrusted.MCP}, (
        "whatever its kind, what it returns is text from outside"
    )


async def test_no_call_of_a_server_is_made_twice_whatever_it_says():
    """After a crash nobody knows what the first one did; the annotations count for questions only."""
    hints = {"readOnlyHint": True, "openWorldHint": False, "idempotentHint": True, "destructiveHint": False}
    lab = await made(server(trust="hints", reads=("look",)), {"name": "look", "annotations": hints}, {"name": "do"})
    assert [tool.effect for tool in lab.tools] == [Effect.ONCE, Effect.ONCE]
    assert [tool.reach for tool in lab.tools] == [Reach.OUTSIDE, Reach.OUTSIDE]


@pytest.mark.parametrize(
    ("settings", "entry"),
    [
        (server(args=("-x",)), {"name": "look"}),
        (McpServerSettings(command="other"), {"name": "look"}),
        (McpServerSettings(url="https://x.example"), {"name": "look"}),
        (server(), {"name": "look", "description": "Changed."}),
        (server(), {"name": "look", "annotations": {"destructiveHint": False}}),
        (server(), {"name": "look", "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}}}}),
    ],
)
async def test_a_grant_does_not_cover_a_tool_that_has_changed(settings, entry):
    [before] = (await made(server(), {"name": "look"})).tools
    [after] = (await made(settings, entry)).tools
    assert before.name == after.name
    assert before.fingerprint != after.fingerprint


async def test_a_grant_outlives_other_settings_and_the_order_of_the_list():
    [before] = (await made(server(), {"name": "look"})).tools
    settings = server(timeout=5.0, env={"KEY": "x"}, trust="hints", acts=("look",))
    _, after = (await made(settings, {"name": "new"}, {"annotations": {}, "name": "look"})).tools
    assert before.fingerprint == after.fingerprint


async def test_tools_are_sorted_anew_without_a_new_connection():
    lab = await made(server(), {"name": "look"}, {"name": "do"})
    look, do = lab.tools
    changes = []
    lab._on_change = lambda: changes.append(lab.tools)
    lab.sort_anew(attrs.evolve(lab.settings, reads=("look",)))
    assert [tool.kind for tool in lab.tools] == [READ, ACT]
    assert lab.tools[1] is do
    assert lab.tools[0] is not look
    assert len(changes) == 1


@pytest.mark.parametrize("keys", [{"trust": "hints"}, {"reads": ("x",)}, {"asks": ("x",)}])
async def test_a_server_that_somebody_has_sorted_gives_no_advice(keys):
    [tool] = (await made(server(**keys), {"name": "look"})).tools
    assert tool.advice() == ""


async def test_the_advice_about_a_server_that_nobody_has_sorted_is_given_once(monkeypatch):
    monkeypatch.setenv("PEGASUS_COMMAND", "./scripts/run")
    look, do = (await made(server(), {"name": "look"}, {"name": "do"})).tools
    assert "`./scripts/run mcp add lab`" in look.advice()
    assert look.advice() == do.advice() == ""
