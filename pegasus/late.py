"""Late imports: a start loads what a daemon without clients needs, and nothing else. This is how to leave a module for later.

A module that is not needed before the ready line is imported by an import statement in the function that uses it first. The statement
is as any other to mypy and to import-linter, and Python makes it safe in threads; a second run of it costs less than a
microsecond. If the module is reached through the `__init__` of its package, that must not import it either: its names are given to
`late_names` there.

What the first message needs is then imported in the background, right after the ready line (`AgentWorld.run`), so that no
message waits for it. `tests/test_late_imports.py` has the list of what must not be loaded at the ready line.

Measured by `./scripts/bench start`: nearly all of a start is imports, half of it the methods that attrs compiles for each class. So
what counts is how many classes are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType


def late_names(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package: it imports a module when somebody asks the package for one of the module's names.

        if TYPE_CHECKING:
            from pegasus.models.answers import find_calls, pieces_of
        else:
            __getattr__ = late_names(__name__, {"answers": ("find_calls", "pieces_of")})

    modules: names of the package by the module below it that has them. Who imports such a name at the top of a file imports its
    module there and then.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> object:
        """Return a name of a module that may not have been imported yet."""
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find


def import_names(package: ModuleType) -> None:
    """Import all modules of a package that have names in it. Blocking: called in a thread, before somebody waits for these names."""
    for name in package.__all__:
        getattr(package, name)
