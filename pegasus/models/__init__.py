"""Language models: one call in, text and tool calls out, whichever provider it is.

`ModelService` is made from the settings and hands out a `ModelClient` for each role; everything else follows from there:

    base.py             the vocabulary: turns, request, response, errors, the `LanguageModel` protocol
    service.py          `ModelService`: clients by role, reloads, `/model`; what is made from the settings
    roles.py            from settings to models: `PROVIDERS`, roles, `/model`
    client.py           one call: `ModelClient`, `TextRelay` for streamed text, and its middleware; more of it in
                        fallback.py and usage_tracker.py
    http_model.py       a call over HTTP: connection, attempts, pauses, deadline, events
    wire_format.py      interface of a provider's format; anthropic.py and openai.py implement it
    tokens.py           sizes of prompts: estimate, exact counts
    stand_in.py         fixed rules that answer where there is no model

To add a provider, see `PROVIDERS` and `docs/user/models.md`.

A call by a task or the Main Agent looks like this. It either returns or raises ModelError, whose text can be shown to people:

    model = service.client("default")
    response = await model.generate(ModelRequest("You are …", (UserTurn(text="hello"),), label=Label("default")))
    response.text, response.calls, response.usage

Cancelling a call closes its connection; the provider may count the tokens all the same. A call keeps no state on disk except its usage
record, so a crash loses the answer, and the caller asks again with the same request.

No SDK is imported before its provider is used: importing one takes long, and a fresh installation may use none.
`pegasus.models` imports no room above storage and settings.
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
from pegasus.models.catalog import PriceList
from pegasus.models.client import Lane, ModelClient
from pegasus.models.fallback import BreakerStatus
from pegasus.models.pictures import EXTENSIONS, MOST_PICTURES, picture_problem
from pegasus.models.roles import (
    OFFLINE,
    ModelConfigError,
    ModelSwitch,
    find_providers,
    model_command,
    problems,
    role_spec,
    split_spec,
)
from pegasus.models.service import ModelService
from pegasus.models.tokens import TokenCounter
from pegasus.models.usage_report import amount_text, budget_text
from pegasus.models.usage_tracker import UsageTracker, usage_keeper
from pegasus.models.wire_format import unfinished

__all__ = [
    "EXTENSIONS",
    "MOST_PICTURES",
    "OFFLINE",
    "AssistantTurn",
    "BreakerStatus",
    "Image",
    "Label",
    "Lane",
    "LanguageModel",
    "ModelClient",
    "ModelConfigError",
    "ModelError",
    "ModelRequest",
    "ModelResponse",
    "ModelService",
    "ModelSwitch",
    "PriceList",
    "TokenCounter",
    "ToolCall",
    "ToolResult",
    "ToolSpec",
    "Turn",
    "Usage",
    "UsageTracker",
    "UserTurn",
    "amount_text",
    "budget_text",
    "find_providers",
    "model_command",
    "picture_problem",
    "problems",
    "role_spec",
    "split_spec",
    "unfinished",
    "usage_keeper",
]
