"""The agent card: what this agent is called, where it is reached and what it can do, signed where the settings name a key.

The signature is a JSON Web Signature (RFC 7515) over the card in canonical form (RFC 8785). A card has texts, booleans, lists and
objects only, and no empty ones: `json` with sorted keys then writes exactly the canonical form. The public key is at `KEYS_PATH`,
which the signature names.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import attrs
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from pegasus import __version__
from pegasus.messages import Json

VERSION: Final = "1.0"
"""The version of the protocol."""
PATH: Final = "/a2a"
"""Path of both bindings."""
KEYS_PATH: Final = "/a2a/keys.json"
"""Path of the public key, a JSON Web Key Set."""
MEDIA_TYPES: Final = ("text/plain", "application/json")
"""Media types of answers."""
INPUT_TYPES: Final = ("text/plain", "application/json", "*/*")
"""Media types of messages: files of all types, which tasks can open."""
_DESCRIPTION: Final = (
    "A personal agent that works on its own computer: it searches, reads and writes files, runs commands in a sandbox, and remembers. "
    "A message becomes a task, which may ask back."
)


class CardKeyError(ValueError):
    """The key of the settings cannot be used. str() says why."""


@attrs.frozen(eq=False, repr=False)
class CardKey:
    """The key that cards are signed with: ECDSA on the curve P-256 (ES256)."""

    private: ec.EllipticCurvePrivateKey
    id: str
    """Name of the key: the hash of its public part, so that another key has another name."""

    @property
    def public(self) -> dict[str, Json]:
        """The public part, a JSON Web Key."""
        numbers = self.private.public_key().public_numbers()
        point: dict[str, Json] = {"x": _base64(numbers.x.to_bytes(32)), "y": _base64(numbers.y.to_bytes(32))}
        return {"kty": "EC", "crv": "P-256", **point, "kid": self.id, "use": "sig", "alg": "ES256"}

    def sign(self, card: Mapping[str, Json], url: str) -> dict[str, Json]:
        """Return the signature of a card without signatures. url: the address at which this server is reached."""
        header: dict[str, Json] = {"alg": "ES256", "typ": "JOSE", "kid": self.id, "jku": url + KEYS_PATH}
        protected = _base64(_canonical(header))
        content = f"{protected}.{_base64(_canonical(card))}".encode()
        # JWS has the two numbers one behind the other, and not in the form of X.509.
        r, s = decode_dss_signature(self.private.sign(content, ec.ECDSA(hashes.SHA256())))
        return {"protected": protected, "signature": _base64(r.to_bytes(32) + s.to_bytes(32))}


def load_key(file: Path) -> CardKey:
    """Return the key in a PEM file. Raises CardKeyError. Blocks."""
    try:
        private = serialization.load_pem_private_key(file.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise CardKeyError(f"a2a.signing_key: {file} cannot be read as a private key: {error}") from error
    if not isinstance(private, ec.EllipticCurvePrivateKey) or not isinstance(private.curve, ec.SECP256R1):
        raise CardKeyError(f"a2a.signing_key: found another kind of key in {file}, allowed: an EC key on P-256")
    public = private.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    return CardKey(private, sha256(public).hexdigest()[:16])


def make_card(name: str, url: str, skills: Sequence[Json] = (), key: CardKey | None = None) -> dict[str, Json]:
    """Return the card. name: of the agent. url: at which this server is reached. skills: beside the general one."""
    interfaces: list[Json] = [
        {"url": url + PATH, "protocolBinding": binding, "protocolVersion": VERSION}
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    general: dict[str, Json] = {
        "id": "work",
        "name": "Work in the background",
        "description": "Takes a piece of work in plain words, does it, and answers with text, data or files.",
        "tags": ["general", "research", "files", "commands"],
    }
    card: dict[str, Json] = {
        "name": name,
        "description": _DESCRIPTION,
        "version": __version__,
        "supportedInterfaces": interfaces,
        "capabilities": {"streaming": True, "pushNotifications": True, "extendedAgentCard": True},
        "securitySchemes": {"token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"token": {"list": ["message"]}}}],
        "defaultInputModes": list(INPUT_TYPES),
        "defaultOutputModes": list(MEDIA_TYPES),
        "skills": [general, *skills],
    }
    return {**card, "signatures": [key.sign(card, url)]} if key else card


def _canonical(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()
