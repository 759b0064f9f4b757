"""The signature of Twilio's requests (https://www.twilio.com/docs/usage/security#validating-requests).

Twilio signs the address that it requests, followed by each form parameter with its value, sorted by name, with HMAC-SHA1 and the
auth token. The address may be signed with or without its port, so both forms are tried, as in Twilio's own clients.

Behind a proxy the address that arrives is not the one that Twilio has requested. So where `http.public_url` is set, the path and
query are taken from the request and the rest from there.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterator, Sequence
from urllib.parse import SplitResult, urlsplit

Form = Sequence[tuple[str, str]]
"""Parameters of a form, in the order in which they came; a name may come twice."""


def sign_request(auth_token: str, url: str, form: Form) -> str:
    """Return the signature that Twilio gives a request: `sign_request(token, "https://…/twilio", [("From", "+15550100")])`."""
    signed = url + "".join(name + value for name, value in sorted(set(form)))
    digest = hmac.digest(auth_token.encode(), signed.encode("utf-8", "surrogatepass"), "sha1")
    return base64.b64encode(digest).decode()


def is_signed(auth_token: str, url: str, form: Form, signature: str) -> bool:
    """Return whether Twilio has signed this request. An empty token or signature is never right."""
    if not auth_token or not signature:
        return False
    given = signature.encode("utf-8", "surrogateescape")
    return any(
        hmac.compare_digest(sign_request(auth_token, form_of_url, form).encode(), given) for form_of_url in _forms(url)
    )


def signed_address(public_url: str, requested: str, path: str) -> str:
    """Return the address that Twilio has requested. requested: as it arrived here. path: of the request, without its query.

    >>> signed_address("https://agent.example.com/", "http://127.0.0.1:7718/channels/sms/twilio?a=1", "/channels/sms/twilio")
    'https://agent.example.com/channels/sms/twilio?a=1'
    """
    if not public_url:
        return requested
    _, mark, query = requested.partition("?")
    return public_url.rstrip("/") + path + mark + query


def _forms(url: str) -> Iterator[str]:
    """Yield the address as it is, without its port, and with the usual port."""
    yield url
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return
    if port is not None:
        yield _with_place(parts, parts.netloc.rpartition(":")[0])
    elif parts.scheme in ("http", "https"):
        yield _with_place(parts, f"{parts.netloc}:{443 if parts.scheme == 'https' else 80}")


def _with_place(parts: SplitResult, place: str) -> str:
    return parts._replace(netloc=place).geturl()
