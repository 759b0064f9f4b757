"""The agent card: what this agent is called, where it is reached and what it can do, signed where the settings name a key.

The signature is a JSON Web Signature (RFC 7515) over the card in canonical form (RFC 8785). A card has texts, booleans, lists and
objects only, and no empty ones: `json` with sorted keys then writes exactly the canonical form. The public key is at `KEYS_PATH`,
which the signature names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import attrs
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from pegasus import __version__
from pegasus.es256 import encode_base64url, load_private_key, public_bytes, sign
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

    private: EllipticCurvePrivateKey
    id: str
    """Name of the key: the hash of its public part, so that another key has another name."""

    @property
    def public(self) -> dict[str, Json]:
        """The public part, a JSON Web Key."""
        numbers = self.private.public_key().public_numbers()
        point: dict[str, Json] = {
            name: encode_base64url(n.to_bytes(32)) for name, n in (("x", numbers.x), ("y", numbers.y))
        }
        return {"kty": "EC", "crv": "P-256", **point, "kid": self.id, "use": "sig", "alg": "ES256"}

    def sign(self, card: Mapping[str, Json], url: str) -> dict[str, Json]:
        """Return the signature of a card without signatures. url: the address at which this server is reached."""
        header: dict[str, Json] = {"alg": "ES256", "typ": "JOSE", "kid": self.id, "jku": url + KEYS_PATH}
        protected, _, signature = sign(self.private, _canonical(header), _canonical(card)).split(".")
        return {"protected": protected, "signature": signature}


def load_key(file: Path) -> CardKey:
    """Return the key in a PEM file. Raises CardKeyError. Blocks."""
    try:
        private = load_private_key(file.read_bytes())
    except (OSError, ValueError) as error:
        raise CardKeyError(f"a2a.signing_key: {file} cannot be read: {error}") from error
    return CardKey(private, sha256(public_bytes(private.public_key())).hexdigest()[:16])


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
