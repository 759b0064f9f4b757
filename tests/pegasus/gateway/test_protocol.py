from tests.pegasus.gateway.world import WEB, world


async def test_a_message_is_accepted_once_it_is_with_the_journal():
    async with world() as gate, gate.client() as client:
        await client.send(type="message", id="m-1", text="hi")
        assert await client.get() == {"type": "accepted", "id": "m-1"}
        ((message, lane),) = gate.journal.accepted
        assert (message.text, message.channel, message.id, lane) == ("hi", WEB, "m-1", "main")


async def test_a_reply_reaches_the_client_of_its_address():
    async with world() as gate, gate.client() as client:
        await gate.say(WEB, "hello")
        assert await client.get() == {
            "type": "reply",
            "seq": 1,
            "text": "hello",
            "channel": {"type": "web", "channelId": "c1"},
        }
