"""`/openapi.json`: valid, complete, and the same names as the handlers have."""

import re
from pathlib import Path

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from pegasus.web import answers, bodies, forms
from pegasus.web.app import WebApplication
from tests.pegasus.web.world import world

REFERENCE = "#/components/schemas/"


async def described():
    async with world() as there, there.client() as client:
        return (await client.get("/openapi.json")).json()


@pytest.fixture
def operations(monkeypatch):
    """The operations of the server, gathered when it is built."""
    found = []
    init = WebApplication.__init__

    def note(self, services, rules, operations):
        found.extend(operations)
        init(self, services, rules, operations)

    monkeypatch.setattr(WebApplication, "__init__", note)
    return found


async def test_the_description_is_valid():
    OpenAPIV31SpecValidator(await described()).validate()


async def test_each_operation_says_what_it_takes_and_answers(operations):
    document = await described()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["responses"].keys() - {"default"}, where
            assert all(parameter["schema"].get("type") for parameter in operation.get("parameters", ())), where
            successes = [each for status, each in operation["responses"].items() if status[0] in "123"]
            assert any("content" in each for each in successes) or path in ("/ws", "/login"), where
    named = {f"{each.method} {each.path}" for each in operations}
    assert forms.FORMS.keys() <= named
    assert {name for name in named - forms.FORMS.keys() if "/channels/" not in name} == set()


async def test_a_wrong_method_is_told_the_described_ones():
    async with world() as there, there.client() as client:
        for path, methods in (await described())["paths"].items():
            response = await client.request("PATCH", re.sub(r"\{\w+\}", "x", path))
            allowed = set(response.headers["allow"].split(", ")) - {"HEAD"}
            assert (response.status_code, allowed) == (405, {method.upper() for method in methods}), path


async def test_examples_are_what_the_schemas_say(operations):
    document = await described()
    schemas = document["components"]["schemas"]
    shown = 0
    for name, schema in schemas.items():
        for example in schema.get("examples", ()):
            jsonschema.validate(example, {"$ref": f"{REFERENCE}{name}", "components": {"schemas": schemas}})
            shown += 1
    assert shown == len(forms.EXAMPLES) + 1  # and the error
    bodies = [
        operation["requestBody"]["content"]
        for methods in document["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    ]
    of_json = [content["application/json"]["schema"] for content in bodies if "application/json" in content]
    assert all("examples" in schemas[schema["$ref"].removeprefix(REFERENCE)] for schema in of_json if schema)


def test_what_is_described_is_used():
    """A class that no route has any more would stay for ever."""
    source = "".join(file.read_text() for file in Path(forms.__file__).parent.rglob("*.py"))
    for module in (answers, bodies):
        names = [name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__]
        assert [name for name in names if len(re.findall(rf"\b{name}\b", source)) < 2] == []
