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
from pegasus.models.bookkeeper import keep_books
from pegasus.models.books import Books
from pegasus.models.breaker import BreakerStatus
from pegasus.models.choosing import ModelSwitch, model_command
from pegasus.models.metering import Meter
from pegasus.models.pictures import EXTENSIONS, MOST_PICTURES, refused
from pegasus.models.prices import Prices
from pegasus.models.registry import Models
from pegasus.models.roles import OFFLINE, ModelConfigError, find_providers, problems, role_spec, split_spec
from pegasus.models.stops import unfinished
from pegasus.models.tokens import Counter, Gauge, TokenCounter
from pegasus.models.usage_report import amount_text, budget_text, report, usage_text

__all__ = [
    "EXTENSIONS",
    "MOST_PICTURES",
    "OFFLINE",
    "AssistantTurn",
    "Books",
    "BreakerStatus",
    "Counter",
    "Gauge",
    "Image",
    "Label",
    "LanguageModel",
    "Meter",
    "ModelConfigError",
    "ModelError",
    "ModelRequest",
    "ModelResponse",
    "ModelSwitch",
    "Models",
    "Prices",
    "TokenCounter",
    "ToolCall",
    "ToolResult",
    "ToolSpec",
    "Turn",
    "Usage",
    "UserTurn",
    "amount_text",
    "budget_text",
    "find_providers",
    "keep_books",
    "model_command",
    "problems",
    "refused",
    "report",
    "role_spec",
    "split_spec",
    "unfinished",
    "usage_text",
]
