"""Encryption of a push message, and the signature by which a push service knows who sends it.

A browser's subscription names a push service of the browser's maker. What is sent there can be read by the browser alone
(RFC 8291, on the coding aes128gcm of RFC 8188): each message has a key of its own, agreed between a new key pair and that of the
browser. The service sees the address, the size and the headers.

The service takes messages only from whoever has made the subscription (VAPID, RFC 8292). That is the pair of keys of this home. A
subscription is bound to it, so it is made once and kept.

`cryptography` is imported here and nowhere else in the package, so this module is imported when the first browser asks for the key.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import Final
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDH,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pegasus.es256 import decode_base64url, encode_base64url, load_private_key, public_bytes, sign
from pegasus.host import HomeError, write_private
from pegasus.messages import Json
from pegasus.wire import encode_json

RECORD: Final = 4096
"""Size of a record of the coding. A message is a single one, since push services need not take more bytes."""
LARGEST: Final = RECORD - 86 - 17
"""Bytes of a text at most: a body has a head of 86 bytes, an end mark, and a tag of 16 bytes."""
SIGNED_SECONDS: Final = 12 * 3600
"""Seconds that a signature counts. Services take 24 hours at most."""
_END: Final = b"\x02"
"""Mark behind the text of the last record."""
_making: Final = Lock()
"""Held while the key of a home is read or made, so that two threads do not make two."""


def read_point(text: str) -> EllipticCurvePublicKey:
    """Return the key of a browser. Raises ValueError for anything but a point of the curve P-256."""
    return EllipticCurvePublicKey.from_encoded_point(SECP256R1(), decode_base64url(text))


def read_secret(text: str) -> bytes:
    """Return the secret of a browser. Raises ValueError for anything but 16 bytes in base64url."""
    secret = decode_base64url(text)
    if len(secret) != 16:
        raise ValueError(f"found {len(secret)} bytes, allowed: 16")
    return secret


def encrypt(
    text: bytes,
    browser: EllipticCurvePublicKey,
    secret: bytes,
    *,
    own: EllipticCurvePrivateKey | None = None,
    salt: bytes | None = None,
) -> bytes:
    """Return the body of a push message, of LARGEST bytes of text at most.

    browser, secret: the keys `p256dh` and `auth` of the subscription. own, salt: made anew for each message; tests give those of the
    RFC's example.
    """
    own = own or generate_private_key(SECP256R1())
    salt = salt or os.urandom(16)
    sender = public_bytes(own.public_key())
    shared = _derive(own.exchange(ECDH(), browser), secret, b"WebPush: info\0" + public_bytes(browser) + sender, 32)
    key = _derive(shared, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(shared, salt, b"Content-Encoding: nonce\0", 12)
    head = salt + RECORD.to_bytes(4, "big") + len(sender).to_bytes(1, "big") + sender
    return head + AESGCM(key).encrypt(nonce, text + _END, None)


def _derive(material: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(material)


class VapidKey:
    """The pair of keys of a home."""

    def __init__(self, private: EllipticCurvePrivateKey) -> None:
        self._private = private
        self.public = encode_base64url(public_bytes(private.public_key()))
        """The public one as browsers want it (`applicationServerKey`)."""

    def authorization(self, endpoint: str, now: int, contact: str) -> str:
        """Return the value of the header Authorization for a message to this address.

        now: wall clock, ms. contact: where the push service reaches whoever sends, an address of mail or of a page.
        """
        place = urlsplit(endpoint)
        claims: dict[str, Json] = {
            "aud": f"{place.scheme}://{place.netloc}",
            "exp": now // 1000 + SIGNED_SECONDS,
            "sub": contact,
        }
        header, payload = (encode_json(part).encode() for part in ({"typ": "JWT", "alg": "ES256"}, claims))
        return f"vapid t={sign(self._private, header, payload)}, k={self.public}"


def ensure_key(path: Path) -> VapidKey:
    """Return the key of the home, which is made (0600) if it is not there. Blocks.

    Raises HomeError for a file that cannot be read or made, and for one that holds no such key.
    """
    with _making:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            private = generate_private_key(SECP256R1())
            content = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            write_private(path, content.decode())
        except OSError as error:
            raise HomeError(f"{path}: cannot be read ({error.strerror or error}); it must be yours") from None
    try:
        return VapidKey(load_private_key(content))
    except ValueError:
        text = "found no private key of the curve P-256; delete the file, and browsers subscribe again to a new one"
        raise HomeError(f"{path}: {text}") from None
