"""The models as the supervision tree sees them: protocols of what `pegasus.models` has, which tests and benches replace."""

from __future__ import annotations

from typing import Protocol

from pegasus.messages import Address, ChannelInfo
from pegasus.models import (
    AudioModel,
    ChatChoices,
    Lane,
    LanguageModel,
    ModelRequest,
    PromptSize,
    TraitStore,
    UsageTracker,
)


class ConversationModels(Protocol):
    """The models of one conversation, or of all. `pegasus.models.ChatModels` and `ModelService` are the real ones."""

    def client(self, role: str = "default", lane: Lane = "work") -> LanguageModel:
        """Return a model that may be kept: it follows reloads and choices. Raises ModelConfigError."""

    def context_window(self, role: str = "default") -> int:
        """Return how many tokens fit into the model of a role."""

    async def measure(self, request: ModelRequest, share: float) -> PromptSize:
        """Return the size of a request beside the default model's window, most exactly near this share of it."""


class ModelSource(ConversationModels, Protocol):
    """Models by role or by `<provider>/<model>`. `pegasus.models.ModelService` is the real one."""

    @property
    def usage(self) -> UsageTracker | None:
        """Counts and limits calls; None: nothing does."""

    @property
    def traits(self) -> TraitStore:
        """Knowledge about each model's manners."""

    @property
    def chat_choices(self) -> ChatChoices:
        """Models that were chosen for single chats."""

    def audio(self, role: str) -> AudioModel | None:
        """Return the model that hears ("transcribe") or speaks ("speech"); None if the settings name none."""

    def for_chat(self, chat: Address) -> ConversationModels:
        """Return the models of a chat that has a conversation of its own."""

    async def usage_text(self, channel: ChannelInfo | None = None) -> str:
        """Return the answer to `/usage` in this chat."""
