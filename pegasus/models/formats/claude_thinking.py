"""Thinking of Claude: which parameters a model takes, and how much it may think.

There are two ways (https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking,
https://platform.claude.com/docs/en/build-with-claude/extended-thinking,
https://platform.claude.com/docs/en/build-with-claude/effort):

* Adaptive, from Claude 4.6 on and the only way from Opus 4.7 on: the model decides when and how much it thinks, also between tool
  calls. `output_config.effort` guides it. These models do not think unless they are asked to, so they are always asked.
* A budget in tokens, for the models before: only where an effort is set, because they would spend it on every answer. A header lets
  them think between tool calls.

Models with other names (behind a gateway, of another maker) get nothing unless an effort is set, then a budget. Refusals correct what
is wrong here, see `ThinkingSwitch`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pegasus.messages import Json
from pegasus.models.base import AssistantTurn, ModelRequest

BUDGETS: Final = {"low": 2_048, "medium": 8_192, "high": 24_576}
"""Tokens of thinking by effort, for models with a budget. The length of an answer grows by as much (`ModelCall.max_tokens`)."""
_LEAST_BUDGET: Final = 1_024
"""Tokens. The API refuses smaller budgets."""
_LEAST_ANSWER: Final = 1_024
"""Tokens that stay for the answer when its length is limited."""
_CLAUDE: Final = r"claude-(?:(?:opus|sonnet|haiku|fable|mythos)-)?(\d+)(?:-(\d{1,2})(?!\d))?"
_FIRST_ADAPTIVE, _FIRST_THINKING = (4, 6), (3, 7)
"""Versions of Claude that took adaptive thinking, and thinking at all, as the first ones."""
_INTERLEAVED: Final = {"anthropic-beta": "interleaved-thinking-2025-05-14"}


def claude_version(model: str) -> tuple[int, int] | None:
    """Return the version in a model's name: (4, 6) for "claude-sonnet-4-6", (5, 0) for "anthropic.claude-fable-5"; None for others."""
    found = re.search(_CLAUDE, model.lower())
    return (int(found[1]), int(found[2] or 0)) if found else None


def thinking_way(model: str) -> str:
    """Return "adaptive", "budget" or "" (none) for a model."""
    version = claude_version(model)
    if version is None:
        return "budget"
    if version >= _FIRST_ADAPTIVE:
        return "adaptive"
    return "budget" if version >= _FIRST_THINKING else ""


class ThinkingSwitch:
    """Decision about thinking for one model, which learns from refusals."""

    def __init__(self, model: str) -> None:
        self._way = thinking_way(model)
        self._is_old_claude = self._way == "budget" and (claude_version(model) or (0, 0)) >= (4, 0)
        self._refused: set[str] = set()
        """Ways that were refused."""
        self._takes_effort = True

    def fields(self, request: ModelRequest) -> dict[str, Json]:
        """Return the fields of a request that concern thinking.

        Thinking excludes a tool that the model must call, and a temperature. With a budget, an answer that is still calling tools must
        have begun with thinking: where it did not (it is another model's), this answer goes on without.
        """
        effort = request.options.effort
        if not self._way or request.tool_choice not in ("auto", "none"):
            return {}
        if self._way == "adaptive":
            config: dict[str, Json] = {"output_config": {"effort": effort}} if effort and self._takes_effort else {}
            return {"thinking": {"type": "adaptive", "display": "summarized"}, **config}
        budget = min(BUDGETS.get(effort, 0), request.max_tokens - _LEAST_ANSWER)
        if budget < _LEAST_BUDGET or _continues_without_thinking(request):
            return {}
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        """Return the headers of a request: older models must be allowed to think between calls."""
        return _INTERLEAVED if self._is_old_claude and request.tools and self.fields(request) else {}

    def learn(self, message: str, request: ModelRequest) -> bool:
        """Learn from a refusal. Return True if the request is another one now. message: the provider's.

        A way that is refused gives room to the other one, and then to none.
        """
        sent = self.fields(request)
        if "output_config" in sent and re.search(r"effort|output_config", message):
            self._takes_effort = False
        elif "thinking" in sent and re.search(r"thinking|budget_tokens", message):
            self._refused.add(self._way)
            others = {"adaptive": "budget", "budget": "adaptive"}
            other = others[self._way]
            self._way = other if other not in self._refused else ""
        else:
            return False
        return True


def _continues_without_thinking(request: ModelRequest) -> bool:
    """Return True if the answer before made calls without thinking blocks of this API."""
    turns = [turn for turn in request.turns if isinstance(turn, AssistantTurn)]
    return bool(turns) and bool(turns[-1].calls) and turns[-1].thinking_of != "anthropic"
