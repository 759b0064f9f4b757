"""Language models: one call in, text and tool calls out, whoever the provider is.

One file per provider, the table of roles, the registry that hands out models; no SDK is imported before it is needed.
"""

from pegasus.models.base import (
    AssistantTurn,
    Image,
    Label,
    LanguageModel,
    ModelError,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolResult,
    ToolSpec,
    Turn,
    Usage,
    UserTurn,
)
from pegasus.models.registry import Models
from pegasus.models.roles import ModelConfigError
from pegasus.models.stops import unfinished

__all__ = [
    "AssistantTurn",
    "Image",
    "Label",
    "LanguageModel",
    "ModelConfigError",
    "ModelError",
    "ModelRequest",
    "ModelResponse",
    "Models",
    "ToolCall",
    "ToolResult",
    "ToolSpec",
    "Turn",
    "Usage",
    "UserTurn",
    "unfinished",
]
