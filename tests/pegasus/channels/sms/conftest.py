"""The whole agent in virtual time with the SMS adapter, and a fake Twilio in memory."""

from __future__ import annotations

from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from pegasus.channels.sms import SmsAdapter
from pegasus.messages import Address
from pegasus.settings import AgentSettings, Settings, SmsSettings
from pegasus.testing.scripted import ScriptedModel, call, say
from pegasus.testing.services.twilio import FakeTwilio
from pegasus.testing.world import open_world, wall_clock

OWNER, FRIEND, STRANGER = "+15550101", "+15550102", "+15550666"
PUBLIC_URL = "https://agent.example.com"


def answering(text="re: {}"):
    """A model that answers each message with a text, in the conversation that it came from."""

    def answer(request):
        if "could not be delivered" in request.turns[-1].text:
            return say("")
        line = request.turns[-1].text.split("[channel: ")[-1]
        head, _, said = line.partition("]\n")
        number = head.split("id: ")[1].split(" |")[0].strip()
        answer.count += 1
        words = text.format(said.split("\n")[-1]) if isinstance(text, str) else text[(answer.count - 1) % len(text)]
        return say("", call("reply", f"c{answer.count}", channelType="sms", channelId=number, text=words))

    answer.count = 0
    return ScriptedModel(answer)


class SmsStage:
    """A world, its Twilio and its adapter."""

    def __init__(self, world, twilio, adapter, model):
        self.world, self.twilio, self.adapter, self.model = world, twilio, adapter, model

    async def text(self, sender, text, files=(), **keys):
        """Let somebody write; return the status that Twilio gets."""
        return (await self.adapter.receive(self.twilio.receive_sms(sender, text, files, **keys))).status

    async def idle(self):
        """Wait until everything that was said is answered, also what waits for further parts, and the answers had time to go out."""
        for _ in range(2):  # pictures are read in real time
            await self.world.idle()
            await trio.sleep(40)

    def user_lines(self, guest=None):
        """What people have said, as it stands in the owner's session, or in that of a guest's number."""
        chat = None if guest is None else Address("sms", guest)
        return [line["content"] for line in self.world.session(chat) if line["role"] == "user"]


@pytest.fixture
def play():
    """`async with play() as stage`: the agent with SMS. The same Twilio may be given to the next one."""

    @asynccontextmanager
    async def open_stage(model=None, twilio=None, *, disk=None, public_url=PUBLIC_URL, **keys):
        twilio, model = twilio or FakeTwilio(PUBLIC_URL, wall_clock), model or answering()
        section = SmsSettings(
            enabled=True,
            account_sid=twilio.account_sid,
            auth_token=keys.pop("auth_token", twilio.auth_token),
            base_url=twilio.base_url,
            **{"from_number": twilio.number, "access": "pairing", "allow_from": (FRIEND,), **keys},
        )
        settings = Settings(
            agent=AgentSettings(owners=("cli:*", f"sms:{OWNER}")), channels={**Settings().channels, "sms": section}
        )
        made = []

        def services(context):
            context = attrs.evolve(context, transport=twilio.transport(), public_url=public_url)
            made.append(SmsAdapter(section, context))
            return made

        async with open_world(model, settings=settings, disk=disk, services=services) as world:
            yield SmsStage(world, twilio, made[0], model)

    return open_stage
