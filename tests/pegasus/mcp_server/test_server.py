"""Requests whose clients do not wait for the answer."""

import pytest
import trio
import trio.lowlevel

from pegasus.mcp_server.server import TokenServer


class NeverAnswers:
    """Sessions in which two calls have one id, so that the first is answered by nobody."""

    async def handle_request(self, scope, receive, send):
        await trio.sleep_forever()


@pytest.mark.parametrize("body", [b'{"id":1}', b'{"id":1,"_meta":{"progressToken":1}}'])
async def test_nothing_is_left_of_a_request_whose_client_has_gone(body, autojump_clock):
    server = TokenServer.__new__(TokenServer)
    server._manager = NeverAnswers()
    left = []
    async with trio.open_nursery() as server._nursery:
        with trio.move_on_after(1):
            await server.answer({"headers": [(b"mcp-session-id", b"x")]}, body, None)
        await trio.testing.wait_all_tasks_blocked()
        left = list(server._nursery.child_tasks)
        server._nursery.cancel_scope.cancel()
    # The SDK looks after streams itself.
    assert bool(left) is (b"progressToken" in body)


class Accepts:
    """Sessions that say of a notification that it is accepted, and then work on it."""

    worked = False

    async def handle_request(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 202})
        await trio.lowlevel.checkpoint()
        self.worked = True


async def test_a_notification_that_was_accepted_is_worked_on_although_its_client_has_gone(autojump_clock):
    server = TokenServer.__new__(TokenServer)
    server._manager = Accepts()
    body = b'{"method":"notifications/cancelled","params":{"requestId":1}}'

    async def take(message):
        """The client hangs up as soon as it has read this."""
        scope.cancel()

    async with trio.open_nursery() as server._nursery:
        with trio.CancelScope() as scope:
            await server.answer({"headers": [(b"mcp-session-id", b"x")]}, body, take)
    assert server._manager.worked
