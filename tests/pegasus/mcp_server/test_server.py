"""Requests whose clients do not wait for the answer."""

import pytest
import trio

from pegasus.mcp_server.server import TokenServer


class NeverAnswers:
    """Sessions in which two calls have one id, so that the first is answered by nobody."""

    async def handle_request(self, scope, receive, send):
        await trio.sleep_forever()


@pytest.mark.parametrize("body", [b"{}", b'{"_meta":{"progressToken":1}}'])
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
