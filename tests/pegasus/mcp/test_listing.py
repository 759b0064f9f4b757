"""Names, descriptions and schemas of a server's tools, as models and providers are shown them."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.mcp.listing import (
    ANYTHING,
    LARGEST_SCHEMA,
    LONGEST_DESCRIPTION,
    LONGEST_TOOL_NAME,
    read_schema,
    read_tools,
    tool_name,
)
from pegasus.models import ToolSpec
from pegasus.tools import is_valid_schema


def listed(name="a", **entry):
    return {"name": name, "inputSchema": {"type": "object"}, **entry}


def test_a_name_has_the_characters_that_providers_take():
    assert tool_name("files", "read.file/now ü") == "files__read_file_now__"


def test_a_long_name_is_cut_and_stays_unique():
    names = {tool_name("s", "x" * 100 + end) for end in ("a", "b")}
    assert len(names) == 2
    assert all(len(name) == LONGEST_TOOL_NAME for name in names)


async def test_names_that_become_the_same_are_told_apart():
    tools = await read_tools("s", [listed("a.b"), listed("a b"), listed("a.b")])
    assert [tool.own_name for tool in tools] == ["a.b", "a b"]
    assert len({tool.spec.name for tool in tools}) == 2


async def test_the_first_entry_of_a_name_counts():
    """A second one could say other things of the same tool."""
    [tool] = await read_tools("s", [listed("a", description="First."), listed("a", description="Second.")])
    assert tool.spec == ToolSpec("s__a", "Tool of the MCP server s. First.", tool.spec.parameters)


async def test_a_description_is_one_clean_line_of_the_server():
    words = "[channel: cli | id: main]\nDo\u202e this\u200b now! " + "x" * 5000
    [tool] = await read_tools("s", [listed(description=words)])
    assert tool.spec.description.startswith("Tool of the MCP server s. [channel: cli | id: main] Do this now! x")
    assert tool.spec.description.isprintable()
    assert len(tool.spec.description) < LONGEST_DESCRIPTION + 50


async def test_entries_that_are_none_are_left_out():
    entries = [None, 7, "x", {}, {"name": ""}, {"name": 3}, {"name": "x" * 300}, listed("good", description=7)]
    assert [tool.own_name for tool in await read_tools("s", entries)] == ["good"]


@pytest.mark.parametrize(
    "schema",
    [
        None,
        "text",
        {"type": "array"},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {f"p{n}": {"type": "string", "enum": ["y" * 50]} for n in range(500)}},
    ],
)
def test_a_schema_that_cannot_be_used_takes_anything(schema):
    assert read_schema(schema) == ANYTHING


@pytest.mark.parametrize(
    "properties",
    [
        {f"p{n}": {"type": "string", "description": "many words"} for n in range(60_000)},
        {"x": {"enum": [f"value {n}" for n in range(400_000)]}},
        {"x": {"default": "y" * 5_000_000}},
    ],
)
def test_a_huge_schema_is_not_looked_at(properties, monkeypatch):
    """Reading all of it would keep the event loop from everybody else for seconds."""
    looked = []
    monkeypatch.setattr("pegasus.mcp.listing.sanitize_for_prompt", lambda text: looked.append(text) or text)
    assert len(json.dumps(read_schema({"type": "object", "properties": properties}))) < 100
    assert looked == []


def test_a_sound_schema_is_kept():
    schema = {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "where"}, "kind": {"enum": ["a", "b"]}},
        "required": ["path"],
        "additionalProperties": False,
    }
    assert read_schema(schema) == schema


def test_what_providers_refuse_at_the_top_is_left_out():
    schema = {"type": "object", "properties": {"x": {"type": "string"}}, "anyOf": [{"required": ["x"]}], "$schema": "x"}
    assert read_schema(schema) == {"type": "object", "properties": {"x": {"type": "string"}}}


def test_of_a_broken_schema_the_types_are_kept():
    schema = {
        "type": "object",
        "properties": {"x": {"type": "nonsense"}, "y": {"type": "integer"}},
        "required": ["y", 3],
    }
    assert read_schema(schema) == {
        "type": "object",
        "properties": {"x": {}, "y": {"type": "integer"}},
        "required": ["y"],
    }


@pytest.mark.parametrize("name", ["x" * 65, "first name", "$filter", "größe", "a\u200bb", ""])
def test_parameters_whose_names_a_provider_refuses_are_left_out(name):
    """Such a name would have every request refused that the tool is part of, of all conversations."""
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"}, "x-y.z": {"type": "integer"}},
        "required": [name, "x-y.z"],
        "additionalProperties": False,
    }
    kept = {"type": "object", "properties": {"x-y.z": {"type": "integer"}}, "required": ["x-y.z"]}
    assert read_schema(schema) == kept, "the model may give it nevertheless"
    assert read_schema({"type": "object", "properties": {name: {}}}) == ANYTHING


def test_a_reference_to_another_document_is_not_kept():
    schema = {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1/x"}}}
    assert "$ref" not in json.dumps(read_schema(schema))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)
KEYS = st.sampled_from(["type", "properties", "required", "items", "$ref", "enum", "description", "anyOf", "x"])


OBJECTS = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={"properties": st.dictionaries(st.text(), st.dictionaries(KEYS, JSON)), "required": JSON, "$defs": JSON},
)


@given(JSON | OBJECTS)
def test_whatever_comes_the_schema_is_one_that_providers_take(schema):
    found = read_schema(schema)
    assert found["type"] == "object"
    assert all(re.fullmatch("[a-zA-Z0-9_.-]{1,64}", name) for name in found["properties"])
    assert is_valid_schema(found)
    assert len(json.dumps(found, ensure_ascii=False)) <= 2 * LARGEST_SCHEMA
