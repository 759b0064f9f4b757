"""Numbers for Prometheus: `GET /metrics`, made of the same answers as `/api/status`, `/api/usage` and `/api/tree`.

Open where the server is reached over loopback under a loopback name; with the scope "read" elsewhere. A proxy that passes its own name
on therefore needs a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from pegasus.gateway import Caller
from pegasus.messages import Json
from pegasus.policy import READ
from pegasus.web.operations import Operation
from pegasus.web.requests import ApiRequest, failures_as_errors
from pegasus.web.routes.events import EventFeed

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsRoutes:
    """The handler of metrics."""

    def __init__(self, feed: EventFeed) -> None:
        self._feed = feed

    async def show(self, request: ApiRequest) -> Response:
        """Return the metrics."""
        from pegasus.web.prometheus import format_metrics

        rules, client = request.rules, request.http.client
        if not (client is not None and rules.is_local(request.fields, client.host)):
            visitor = rules.identify(request.fields, "GET")
            ApiRequest(request.http, request.services, rules, visitor).require(READ)
        answers: list[Mapping[str, Json]] = []
        with failures_as_errors():
            for name in ("status", "usage", "tree"):
                method = request.services.methods.get(name)
                answer = await method(Caller("api", "metrics"), {}) if method is not None else {}
                answers.append(answer if isinstance(answer, Mapping) else {})
        text = format_metrics(answers[0], answers[1], answers[2], self._feed.readers)
        return Response(text, headers={"cache-control": "no-store", "content-type": CONTENT_TYPE})


def metrics_operations(feed: EventFeed) -> tuple[Operation, ...]:
    """Return the operation of this file."""
    return (Operation("GET", "/metrics", MetricsRoutes(feed).show, "Metrics for Prometheus", None),)
