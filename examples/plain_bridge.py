"""A bridge for a plain messenger, and a beginning for your own: the service's calls are all that is in it.

    pegasus token add plain --type plain --bridge
    SERVICE_URL=http://127.0.0.1:8000 SERVICE_TOKEN=… PEGASUS_TOKEN=… python examples/plain_bridge.py

The service has three calls. `GET /updates?after=N` waits for messages and returns those behind number N. `POST /messages` sends one;
with a `key` that it has seen it sends nothing again. `POST /typing` shows that somebody writes. `python -m pegasus.testing bridge`
plays this service unless it is told to play another one.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator

import httpx2

from pegasus.bridge import Incoming, Messenger, Outgoing, Undeliverable, variables

HELD = 30
"""Seconds that the service holds a call for updates while nothing happens."""


class PlainMessenger(Messenger):
    type = "plain"
    delivery = "exactly-once"  # the service recognises keys
    most_characters = 500

    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=httpx2.Timeout(10, read=HELD + 10))

    async def listen(self, cursor: str) -> AsyncGenerator[Incoming, None]:
        """Yield what people write. The next call says which messages the agent has."""
        after = int(cursor or 0)
        while True:
            answer = await self.http.get("/updates", params={"after": after, "seconds": HELD})
            for update in answer.raise_for_status().json()["updates"]:
                after = update["number"]
                yield Incoming(
                    update["text"],
                    update["room"],
                    update["person"],
                    id=str(after),
                    cursor=str(after),
                    is_group=update["people"] > 2,
                    is_mentioned="@pegasus" in update["text"],
                    files=tuple((f["name"], f["mime"], base64.b64decode(f["data"])) for f in update["files"]),
                )

    async def send(self, reply: Outgoing) -> None:
        """Send a part of a reply."""
        answer = await self.http.post(
            "/messages",
            json={
                "room": reply.channel_id,
                "text": reply.text,
                "key": reply.key,
                "files": [{"name": n, "mime": m, "data": base64.b64encode(d).decode()} for n, m, d in reply.files],
                "buttons": [{"label": label, "text": text} for label, text in reply.buttons],
            },
        )
        if answer.status_code in (403, 404):
            raise Undeliverable(answer.text)
        answer.raise_for_status()

    async def show_typing(self, channel_id: str, is_active: bool) -> None:
        """Show that the agent thinks."""
        await self.http.post("/typing", json={"room": channel_id, "active": is_active})


if __name__ == "__main__":
    settings = variables("SERVICE_URL", "SERVICE_TOKEN", "PEGASUS_TOKEN")
    PlainMessenger(settings["SERVICE_URL"], settings["SERVICE_TOKEN"]).run()
