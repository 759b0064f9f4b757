"""Rules for names and docstrings that keep the code searchable and readable; CONTRIBUTING.md explains them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path for package in ("pegasus", "actors") for path in (ROOT / package).rglob("*.py"))
RIDDLES = {"What", "Who", "Whom", "Whose", "Which", "Whatever", "Whoever", "It", "They", "How", "Where", "Whether"}
"""First words of a docstring that describes a thing by asking about it, instead of naming it."""
LONGEST_FILE = 500
MOST_LATE_IMPORTS = 40

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def nodes() -> Iterator[tuple[str, ast.AST]]:
    """Every node of every file, with the file's path."""
    for path in FILES:
        name = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            yield name, node


def test_a_docstring_begins_with_a_verb_or_a_noun():
    found = []
    for path, node in nodes():
        docstring = ast.get_docstring(node) if isinstance(node, Documented) else None
        if docstring and docstring.split()[0].strip(",:;") in RIDDLES:
            found.append(f"{path}:{getattr(node, 'lineno', 1)}: {docstring.splitlines()[0]}")
    assert found == []


def test_a_class_name_is_unique():
    places = defaultdict(set)
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            places[node.name].add(path)
    assert {name: sorted(paths) for name, paths in places.items() if len(paths) > 1} == {}


def test_a_file_is_small_enough_to_be_read_at_once():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_imports_stand_at_the_top():
    """Only heavy libraries are imported late, where they are used first."""
    late = {
        f"{path}:{inner.lineno}"
        for path, node in nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    }
    assert len(late) < MOST_LATE_IMPORTS, sorted(late)
