"""What is wrong with the arguments of a call is said so that a model can put it right."""

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.tools.executor import MAX_PROBLEMS, prepare_arguments

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "xs": {
            "type": "array",
            "items": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
        },
        "inner": {"type": "object", "properties": {"z": {}}, "additionalProperties": False},
    },
    "required": ["n"],
    "additionalProperties": False,
}


def problem_of(schema, arguments):
    return prepare_arguments(schema, arguments)[1]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "n is required"),
        ({"n": "1"}, 'n must be of type integer, found a string ("1")'),
        ({"n": True}, "n must be of type integer, found a boolean (true)"),
        ({"n": 0}, "n: 0 is less than the minimum of 1"),
        ({"n": 1, "kind": "c"}, 'kind must be one of "a", "b"; found "c"'),
        ({"n": 1, "other": 2}, "other: no such parameter (there are: n, kind, xs, inner)"),
        ({"n": 1, "xs": {}}, "xs must be of type array, found an object ({})"),
        ({"n": 1, "xs": [{"q": "x"}, {"q": 2}]}, "xs[1].q must be of type string, found a number (2)"),
        ({"n": 1, "xs": [{}]}, "xs[0].q is required"),
        ({"n": 1, "inner": {"y": 1}}, "inner.y: no such parameter (there are: z)"),
    ],
)
def test_wrong_arguments_are_named_with_their_path_and_what_is_allowed(arguments, problem):
    assert problem_of(SCHEMA, arguments) == problem


def test_right_arguments_pass():
    assert problem_of(SCHEMA, {"n": 10**30, "kind": "a", "xs": [{"q": "é"}]}) is None


def test_several_problems_are_told_at_once_but_not_a_hundred():
    assert problem_of(SCHEMA, {"kind": 1, "xs": 2}).count(";") >= 2
    told = problem_of(
        {"items": {"type": "string"}, "properties": {"xs": {"items": {"type": "string"}}}}, {"xs": list(range(100))}
    )
    assert told.count("must be") == MAX_PROBLEMS
    assert told.endswith("and more")


def test_what_was_found_is_not_repeated_at_length():
    assert len(problem_of(SCHEMA, {"n": "x" * 100_000})) < 200


def test_null_counts_as_absent_where_the_schema_has_no_use_for_it():
    schema = {
        "properties": {"a": {"type": "string"}, "b": {"type": ["string", "null"]}, "c": {}, "d": {"type": "null"}}
    }
    given, problem = prepare_arguments(schema, {"a": None, "b": None, "c": None, "d": None})
    assert given == {"b": None, "c": None, "d": None}
    assert problem is None


def test_text_that_is_no_unicode_is_checked_too():
    assert problem_of(SCHEMA, {"n": 1, "kind": "\udcff"}).startswith("kind must be one of")
    assert problem_of({"properties": {"path": {"type": "string"}}}, {"path": "\udcff"}) is None


def test_a_schema_that_points_to_a_server_is_refused_and_nothing_is_fetched():
    assert "broken" in problem_of({"$ref": "http://127.0.0.1:9/schema"}, {})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nope"},
        {"type": "object", "properties": 1},
        {"type": "object", "properties": {"a": 1}},
        {"properties": {"a": {"$ref": "#/missing"}}},
        {"pattern": "("},
    ],
)
def test_a_broken_schema_is_a_problem_not_an_exception(schema):
    assert "broken" in problem_of(schema, {"a": 1})


def test_a_pattern_that_would_run_for_ever_does_not():
    schema = {"properties": {"a": {"type": "string", "pattern": r"^(?=(a|aa)+$)(a|aa)+\1c$"}}}
    assert problem_of(schema, {"a": "a" * 5000 + "b"}) is not None


def test_endless_nesting_is_a_problem_not_an_exception():
    deep = value = {}
    for _ in range(5000):
        value["n"] = {}
        value = value["n"]
    assert "cannot be read" in problem_of(SCHEMA, {"n": deep})


# ------------------------------------------------------------------ any schema

TYPES = st.sampled_from(["string", "integer", "boolean", "number", "array", "object", "null", ["string", "null"]])
PROPERTY = st.fixed_dictionaries(
    {"type": TYPES}, optional={"description": st.just(""), "minimum": st.just(3), "enum": st.just(["a"])}
)
SCHEMAS = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("abc"), PROPERTY)},
    optional={
        "required": st.lists(st.sampled_from("abc"), unique=True),
        "additionalProperties": st.booleans(),
        "minProperties": st.just(1),
    },
)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(0, 5), st.floats(0, 5), st.sampled_from(["a", "b"]), st.just([]), st.just({})
)


@given(SCHEMAS, st.dictionaries(st.sampled_from("abcd"), VALUES))
def test_the_answer_is_that_of_the_validator(schema, arguments):
    given, problem = prepare_arguments(schema, arguments)
    assert (problem is None) == jsonschema_rs.is_valid(schema, given)
