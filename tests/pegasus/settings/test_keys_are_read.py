"""No key is declared that nothing reads: it would be accepted, reported as in effect, and do nothing."""

import ast
from pathlib import Path

import pegasus
from pegasus.models.usage.tracker import SCOPES
from pegasus.settings import MODEL_ROLES, Settings
from pegasus.settings.keys import Key, keys_of

DECLARATIONS = "settings/sections.py"
READ_BY_NAME = {f"models.{role}" for role in MODEL_ROLES} | {
    f"budget.{scope.name}_{unit}" for scope in SCOPES for unit in ("cost", "tokens")
}
"""Keys that the product reads with `getattr`, because it does the same with each of them."""


def declared(cls=Settings, path=""):
    for name, key in keys_of(cls).items():
        if isinstance(key, Key):
            yield path + name
        else:
            yield from declared(key.cls, f"{path}{name}.")


def attributes_read():
    root = Path(pegasus.__file__).parent
    return {
        node.attr
        for file in root.rglob("*.py")
        if file != root / DECLARATIONS
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
    }


def test_each_declared_key_is_read():
    read = attributes_read()
    keys = set(declared())
    assert keys >= READ_BY_NAME
    assert {key for key in keys - READ_BY_NAME if key.rpartition(".")[2] not in read} == set()
