"""Texts for programs that few agents are asked for: metrics, and the description of the API.

What writes them takes some megabytes (prometheus-client, a class for each form), so this file is imported at the first request of one.
"""

from pegasus.web.description import describe_api
from pegasus.web.routes.prometheus import format_metrics

__all__ = ["describe_api", "format_metrics"]
