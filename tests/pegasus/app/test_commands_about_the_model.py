"""/speech and /model in the first moments of an agent without a key, while a local model is still being looked for."""

import random
from types import SimpleNamespace

import pytest

from pegasus.access import Principal, Role
from pegasus.app import ChatCommands
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.models import ModelService
from pegasus.settings import LiveValue, ModelSettings, ProviderSettings, Settings
from pegasus.testing.provider import open_provider
from pegasus.testing.provider.ollama import OllamaHost


@pytest.mark.parametrize("command", ["/speech", "/speech direct", "/model"])
async def test_the_local_model_is_named_although_nobody_has_asked_it_yet(command):
    async with open_provider(ollama=OllamaHost()) as server:
        elsewhere = {name: ProviderSettings(base_url="http://127.0.0.1:1") for name in ("llamacpp", "lmstudio")}
        accounts = {**elsewhere, "ollama": ProviderSettings(base_url=server.url)}
        models = ModelService(ModelSettings(), accounts, rng=random.Random(1))
        environment = SimpleNamespace(
            models=models,
            settings=Settings(),
            owners=LiveValue(("cli:*",)),
            switch=None,
            clock=lambda: 0,
            persona=None,
            has_chats=False,
        )
        agent = SimpleNamespace(model=models.client("default", "conversation"), work=None)
        answers = ChatCommands(
            SimpleNamespace(
                environment=environment,
                main_agent=agent,
                persona_changes=None,
                approvals=SimpleNamespace(answer_command=None, list_command=None),
            )
        ).answers()
        message = InboundMessage(command, ChannelInfo("cli", "main"), "m1")
        text = await answers[command.split()[0]](message, Principal(Role.OWNER, message.channel))
        assert "ollama/test-model" in text
        assert "stand-in" not in text
        if command == "/speech direct":
            assert models.traits.get("ollama/test-model").speech == "direct"
        await models.aclose()
