"""A push service that is as strict as those of browsers, and the browser behind it.

It takes a message only if its signature, its headers and its size are as RFC 8030, 8188, 8291 and 8292 want them, and it opens it with
the browser's keys.
"""

from __future__ import annotations

import json
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode

import attrs
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pegasus.testing.services.server import FakeService, ServiceResponse

CURVE = ec.SECP256R1()


def encoded(content):
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def decoded(text):
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def point(key):
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


@attrs.frozen
class Browser:
    """The keys of a subscription, and what its service worker reads."""

    name: str
    key: ec.EllipticCurvePrivateKey = attrs.field(factory=lambda: ec.generate_private_key(CURVE))
    secret: bytes = b"0123456789abcdef"

    def subscription(self, service):
        keys = {"p256dh": encoded(point(self.key.public_key())), "auth": encoded(self.secret)}
        return {"endpoint": f"{service.base_url}/push/{self.name}", "keys": keys}

    def read(self, body):
        """Open a message (RFC 8291, section 4)."""
        salt, size, length = body[:16], int.from_bytes(body[16:20], "big"), body[20]
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        assert length == 65
        assert len(sealed) <= size
        shared = self.key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(CURVE, sender))
        info = b"WebPush: info\0" + point(self.key.public_key()) + sender
        material = HKDF(SHA256(), 32, self.secret, info).derive(shared)
        key = HKDF(SHA256(), 16, salt, b"Content-Encoding: aes128gcm\0").derive(material)
        nonce = HKDF(SHA256(), 12, salt, b"Content-Encoding: nonce\0").derive(material)
        text = AESGCM(key).decrypt(nonce, sealed, None).rstrip(b"\0")
        assert text.endswith(b"\x02")
        return text[:-1]


class PushServer(FakeService):
    """The service. `taken`: the name of the browser, the headers and the message of each that was accepted."""

    def __init__(self):
        super().__init__()
        self.browsers = {}
        self.application_key = None
        self.gone = set()
        self.taken = []
        self.refused = []

    def browser(self, name):
        return self.browsers.setdefault(name, Browser(name))

    def told(self, name="phone"):
        return [message for browser, _, message in self.taken if browser == name]

    async def answer(self, request):
        name = request.path.removeprefix("/push/")
        if name in self.gone or name not in self.browsers:
            return ServiceResponse(410)
        try:
            self.check(request)
            message = json.loads(self.browsers[name].read(request.body))
        except Exception as error:
            self.refused.append(repr(error))
            return ServiceResponse(400, repr(error).encode())
        self.taken.append((name, request.headers, message))
        return ServiceResponse(201, headers={"location": f"{self.base_url}/message/{len(self.taken)}"})

    def check(self, request):
        headers = request.headers
        assert request.method == "POST"
        assert headers["content-encoding"] == "aes128gcm"
        assert len(request.body) <= 4096
        assert 0 <= int(headers["ttl"]) <= 28 * 86400
        assert headers["urgency"] in ("very-low", "low", "normal", "high")
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,32}", headers["topic"])
        scheme, _, rest = headers["authorization"].partition(" ")
        fields = dict(part.strip().split("=", 1) for part in rest.split(","))
        assert scheme == "vapid"
        assert fields["k"] == self.application_key, "another key than that of the subscription"
        head, claims, signature = fields["t"].split(".")
        assert json.loads(decoded(head)) == {"typ": "JWT", "alg": "ES256"}
        raw = decoded(signature)
        assert len(raw) == 64
        key = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, decoded(fields["k"]))
        numbers = (int.from_bytes(part, "big") for part in (raw[:32], raw[32:]))
        key.verify(encode_dss_signature(*numbers), f"{head}.{claims}".encode(), ec.ECDSA(SHA256()))
        said = json.loads(decoded(claims))
        assert said["aud"] == self.base_url
        assert time.time() < said["exp"] <= time.time() + 86400
        assert said["sub"].startswith(("mailto:", "https://"))
