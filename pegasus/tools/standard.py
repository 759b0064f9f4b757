"""All tools that tasks work with, those of MCP servers and of the task system itself aside."""

from __future__ import annotations

from collections.abc import Callable

from pegasus.memory import Memory
from pegasus.settings import ToolSettings
from pegasus.tools.base import Tool


def standard_tools(settings: ToolSettings, memory: Memory, clock: Callable[[], int]) -> tuple[Tool, ...]:
    """System, file, network, code, data and memory tools. clock: wall clock, ms since the epoch.

    Imports them, about 30 ms, so it is called when there are tasks and not before the daemon is ready.
    """
    from pegasus.tools.addresses import AddressGuard
    from pegasus.tools.data import data_tools
    from pegasus.tools.files import file_tools
    from pegasus.tools.memory import memory_tools
    from pegasus.tools.network import network_tools
    from pegasus.tools.shell import shell_tools
    from pegasus.tools.system import current_time, system_tools
    from pegasus.tools.web_search import web_search

    return (
        current_time(clock),
        *system_tools(),
        *file_tools(),
        *network_tools(AddressGuard(settings.allowed_hosts)),
        web_search(settings.web_search),
        *shell_tools(),
        *data_tools(),
        *memory_tools(memory),
    )
