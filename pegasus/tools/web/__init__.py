"""Tools for the web: web_fetch, http_get, http_post, http_request, download and web_search.

    page           the tool web_fetch: a page as Markdown
    page_markdown  the program that makes Markdown of a page, in a process of its own
    http_tools     http_get, http_post and http_request
    search         web_search, by the service of the settings
    download       a file from an address
    http_client    one request with its redirects, and a bounded answer: all tools here use it
    http_exchange  what it does with the library httpx2, which is loaded by the first request
    addresses      the addresses that may be reached

Everything that comes from the web is written by strangers: results are labelled so, and each connection goes to an address that was
checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.tools.web.addresses import AddressGuard, with_network

if TYPE_CHECKING:
    from pegasus.tools.web.download import download_tool
    from pegasus.tools.web.http_client import FetchLimits, HttpAnswer, fetch
    from pegasus.tools.web.http_tools import fetch_tools
    from pegasus.tools.web.page import page_tool
    from pegasus.tools.web.search import web_search
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "AddressGuard",
    "FetchLimits",
    "HttpAnswer",
    "download_tool",
    "fetch",
    "fetch_tools",
    "page_tool",
    "web_search",
    "with_network",
]
