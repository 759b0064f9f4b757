"""Late imports: a start loads what a daemon without clients needs, and nothing else. This is how to leave a module for later.

A module that is not needed before the ready line is imported by an import statement in the function that uses it first. The statement
is as any other to mypy and to import-linter, and Python makes it safe in threads; a second run of it costs less than a
microsecond. If the module is reached through the `__init__` of its package, that must not import it either: its names stand below
`if TYPE_CHECKING:` there, and `late_names` finds them.

What the first message needs is then imported in the background, right after the ready line (`AgentWorld.run`), so that no
message waits for it. `tests/test_late_imports.py` has the list of what must not be loaded at the ready line.

Measured by `./scripts/bench start`: nearly all of a start is imports, half of it the methods that attrs compiles for each class. So
what counts is how many classes are made.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType


def late_names(package: str) -> Callable[[str], object]:
    """Return the `__getattr__` of a package: it imports a module when somebody asks the package for one of the module's names.

        if TYPE_CHECKING:
            from pegasus.models.answers import find_calls, pieces_of
        else:
            __getattr__ = late_names(__name__)

    Who imports such a name at the top of a file imports its module there and then.
    Scientific Python's SPEC 1 reads a stub in the same way.
    """

    def find(name: str) -> object:
        """Return a name of a module that may not have been imported yet."""
        module = late_modules(package).get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(module), name)
        setattr(import_module(package), name, found)  # who asks again does not come here
        return found

    return find


@cache
def late_modules(package: str) -> Mapping[str, str]:
    """Return the module of each name that a package imports below `if TYPE_CHECKING:`, by its source; that takes 0.2 ms."""
    body = ast.parse(Path(str(import_module(package).__file__)).read_bytes()).body
    blocks = [node.body for node in body if isinstance(node, ast.If)]
    statements = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module) for node in statements for name in node.names}


def import_names(package: ModuleType) -> None:
    """Import all modules of a package that have names in it. Blocking: called in a thread, before somebody waits for these names."""
    for name in package.__all__:
        getattr(package, name)
