"""Tools: everything the agent can do besides speaking.

`base` defines what a tool is, and how a call asks an owner while it runs. `executor` holds the tools by name and runs them: there
arguments are checked and deadlines enforced. `gate` asks the policy before each call, and `named_files` finds the files that a command
names. `places` has the folders in which work is at home: the only one that a guest's can reach, and that of an owner's chat.
`client_tools` are those that a connected program carries out for its conversation, `in_client` the files and commands among them.
`kept_changes` holds what was in files before tools changed them, as `path_snapshots`, and `diffs` shows the difference. Each
category has its own file or folder: `files/`, `web/`, `shell` (commands; `pegasus.sandbox` runs them, in their
`command_variables`) and `background` (commands that go on running), both with `walls` around them, `basic`, `memory`, `persona`
and `media`. `standard` puts together what an installation has, and what a model with a small context window is shown of it.
`text` knows encodings.

A new tool is a `Tool` value; `docs/tools.md` has a complete example. Tools know nothing of tasks or
conversations.

The model's arguments and everything that comes from the web are not trusted. Three checks are therefore not
left to the tools: arguments fit their schema before a tool sees them, paths are resolved against the allowed
folders (`files.paths`), and connections go to public addresses only (`web.addresses`). What a tool raises as
ToolError is a result that the model can read; anything else is a defect.

One call goes through these steps, in this order: `ToolExecutor.run` checks the arguments, the gate asks the policy, the
tool runs below its deadline, secrets in the result are masked, and what is too long is cut. Nothing outside of the
program is touched before the tool runs, so a refused call has had no effect.

A tool that is called by the model gets a `ToolContext` with the rights of the person whom the call is made for. Nothing
in it comes from the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.tools.base import (
    AwaitsOwner,
    CallQuestions,
    Effect,
    LabelledResult,
    PlannedCall,
    Reach,
    ResultWithImages,
    Tool,
    ToolContext,
    ToolError,
    ToolOutcome,
    as_tool_error,
    parameters,
)
from pegasus.tools.basic import current_time
from pegasus.tools.client_tools import NAMES as CLIENT_TOOLS
from pegasus.tools.client_tools import ClientTools
from pegasus.tools.command_variables import command_environment, passed_on
from pegasus.tools.executor import ToolExecutor, is_valid_schema, prepare_arguments
from pegasus.tools.gate import Gate, PolicyGate, earlier_calls, sending
from pegasus.tools.kept_changes import COMMAND, FileChange, KeptChanges
from pegasus.tools.media import save_attachment_tool, speak_tool
from pegasus.tools.memory import found_json, memory_tools
from pegasus.tools.persona import persona_tool
from pegasus.tools.places import in_folder, own_place, read_rules, size_of
from pegasus.tools.standard import (
    ALL_TASK_TOOLS,
    MAIN_AGENT_TOOLS,
    MIN_RESULT,
    REFLECTION_TOOLS,
    base_context,
    lean_task_specs,
    result_limit,
    standard_tools,
)
from pegasus.tools.walls import hidden_path, may_be_walls
from pegasus.tools.web import AddressGuard, with_network

if TYPE_CHECKING:
    from pegasus.tools.diffs import diff_block
    from pegasus.tools.files import UndoRefused, read_content, save_incoming, take_back
    from pegasus.tools.web import FetchLimits, HttpAnswer, fetch
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "ALL_TASK_TOOLS",
    "CLIENT_TOOLS",
    "COMMAND",
    "MAIN_AGENT_TOOLS",
    "MIN_RESULT",
    "REFLECTION_TOOLS",
    "AddressGuard",
    "AwaitsOwner",
    "CallQuestions",
    "ClientTools",
    "Effect",
    "FetchLimits",
    "FileChange",
    "Gate",
    "HttpAnswer",
    "KeptChanges",
    "LabelledResult",
    "PlannedCall",
    "PolicyGate",
    "Reach",
    "ResultWithImages",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolExecutor",
    "ToolOutcome",
    "UndoRefused",
    "as_tool_error",
    "base_context",
    "command_environment",
    "current_time",
    "diff_block",
    "earlier_calls",
    "fetch",
    "found_json",
    "hidden_path",
    "in_folder",
    "is_valid_schema",
    "lean_task_specs",
    "may_be_walls",
    "memory_tools",
    "own_place",
    "parameters",
    "passed_on",
    "persona_tool",
    "prepare_arguments",
    "read_content",
    "read_rules",
    "result_limit",
    "save_attachment_tool",
    "save_incoming",
    "sending",
    "size_of",
    "speak_tool",
    "standard_tools",
    "take_back",
    "with_network",
]
