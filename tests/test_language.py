"""Rules for names and docstrings that keep the code searchable and readable; CONTRIBUTING.md explains them."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path for package in ("pegasus", "actors") for path in (ROOT / package).rglob("*.py"))
RIDDLES = {
    "What",
    "Who",
    "Whom",
    "Whose",
    "Which",
    "Whatever",
    "Whoever",
    "It",
    "They",
    "How",
    "Where",
    "Whether",
    "Why",
}
"""First words of a docstring that describes a thing by asking about it, instead of naming it."""
REMEDY = "name the thing instead: “Reason of the refusal” or “True if it has ended”, not “Why it was refused” or “What was refused”"
LONGEST_FILE = 800

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.fixture(scope="module", autouse=True)
def trees_of_these_tests() -> Iterator[None]:
    """Each file is parsed once, and its tree is gone with the last of these tests."""
    yield
    tree.cache_clear()


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def nodes() -> Iterator[tuple[str, ast.AST]]:
    """Every node of every file, with the file's path."""
    for path in FILES:
        name = str(path.relative_to(ROOT))
        for node in ast.walk(tree(path)):
            yield name, node


def test_a_docstring_begins_with_a_verb_or_a_noun():
    found = []
    for path, node in nodes():
        docstring = ast.get_docstring(node) if isinstance(node, Documented) else None
        if docstring and docstring.split()[0].strip(",:;") in RIDDLES:
            found.append(f"{path}:{getattr(node, 'lineno', 1)}: {docstring.splitlines()[0]}")
    assert found == [], REMEDY


def test_an_attribute_is_described_by_a_noun_or_a_condition():
    """Require texts such as "Reason of the refusal" or "True if it has ended", not "Why it was refused"."""
    found = []
    for path, node in nodes():
        body = getattr(node, "body", None)
        for statement, after in pairwise(body if isinstance(body, list) else []):
            match statement, after:
                case ast.Assign() | ast.AnnAssign(), ast.Expr(ast.Constant(str(text))):
                    if text.split()[0].strip(",:;") in RIDDLES:
                        found.append(f"{path}:{after.lineno}: {text.splitlines()[0]}")
    assert found == [], REMEDY


def test_a_class_name_is_unique():
    places = defaultdict(set)
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            places[node.name].add(path)
    assert {name: sorted(paths) for name, paths in places.items() if len(paths) > 1} == {}


def test_a_file_is_small_enough_to_be_read_at_once():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


# Docstrings of packages

COLUMN = re.compile(r"^ *((?:[a-z_]+(?:\.py|/)?, )*[a-z_]+(?:\.py|/)?) {2,}\S", re.MULTILINE)
"""A line of a list: a module or some, then what it is for, in a column of its own."""
ITEM = re.compile(r"^ *\* ((?:`[a-z_]+`, )*`[a-z_]+`):", re.MULTILINE)
"""The same as an item with a bullet; a sentence may follow."""
MENTION = re.compile(r"`([a-z_]+)(?:\.py|/)?`|\b(?<!/)([a-z_]+)\.py\b")
"""A name in backticks, or a file."""
ORDERS = {"each uses only those before it": 1, "Imports go downward in this list": -1}
"""Promises of a docstring about the order of its list."""


@attrs.frozen
class Package:
    """A package with the modules and packages in it, and those that its docstring names."""

    path: Path
    docstring: str

    def __str__(self) -> str:
        return ".".join(self.path.relative_to(ROOT).parts)

    @property
    def modules(self) -> set[str]:
        inside = {path.stem for path in self.path.glob("*.py")} - {"__init__"}
        return inside | {path.parent.name for path in self.path.glob("*/__init__.py")}

    @property
    def listed(self) -> list[str]:
        """Names at the beginning of a line of a list, in their order."""
        matches = sorted([*COLUMN.finditer(self.docstring), *ITEM.finditer(self.docstring)], key=re.Match.start)
        return [name for match in matches for name in re.findall(r"([a-z_]+)(?:\.py)?", match[1])]

    @property
    def named(self) -> set[str]:
        """Names in backticks, files, and those at the beginning of lines."""
        mentions = MENTION.findall(self.docstring.replace(f"`{self}.", "`"))
        return {name for pair in mentions for name in pair if name} | set(self.listed)

    def imports(self, module: str) -> set[str]:
        """Modules of the package that a module of it imports."""
        file = self.path / f"{module}.py"
        nodes = ast.walk(tree(file)) if file.exists() else ()
        found = [node for node in nodes if isinstance(node, ast.ImportFrom)]
        imported = {f"{node.module}.{alias.name}" for node in found for alias in node.names}
        return {name.removeprefix(f"{self}.").split(".")[0] for name in imported if name.startswith(f"{self}.")}


def listing_packages() -> list[Package]:
    """Packages whose docstring names at least half of their modules: it is a list, and readers take it for complete."""
    files = [path for path in FILES if path.name == "__init__.py"]
    packages = [Package(path.parent, ast.get_docstring(tree(path)) or "") for path in files]
    return [package for package in packages if 2 * len(package.named & package.modules) >= len(package.modules) > 0]


def test_a_list_of_modules_is_complete():
    missing = {str(package): sorted(package.modules - package.named) for package in listing_packages()}
    assert {path: names for path, names in missing.items() if names} == {}


def test_a_list_of_modules_names_none_that_is_gone():
    """Each line of a list is about a module. Another name in backticks is a module, too, or is in the code of the package."""
    modules = {path.stem for path in FILES} | {path.parent.name for path in FILES}
    gone = {}
    for package in listing_packages():
        code = {word for path in package.path.rglob("*.py") for word in words(path)}
        not_listed = package.named - modules - code
        gone[str(package)] = sorted((set(package.listed) - package.modules) | not_listed)
    assert {path: names for path, names in gone.items() if names} == {}


def words(path: Path) -> set[str]:
    """Names, attributes and texts in the code of a file, without its docstrings and comments."""
    values = (
        getattr(node, field, None) for node in ast.walk(tree(path)) for field in ("id", "attr", "name", "arg", "value")
    )
    return {value for value in values if isinstance(value, str)}


def test_a_list_of_modules_has_the_order_that_it_promises():
    wrong = []
    for package in listing_packages():
        for direction in (ORDERS[promise] for promise in ORDERS if promise in " ".join(package.docstring.split())):
            order = package.listed[::direction]
            for place, module in enumerate(order):
                late = package.imports(module) & set(order[place + 1 :])
                wrong += [f"{package}: {module} imports {other}" for other in sorted(late)]
    assert wrong == []
