"""Signatures by ES256 (ECDSA on the curve P-256), in the form of JSON Web Signatures (RFC 7515).

It imports `cryptography`, so what signs is imported when it is needed.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key


def encode_base64url(content: bytes) -> str:
    """Return base64url without padding."""
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """Return what base64url stands for, padded or not. Raises ValueError."""
    return urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))


def load_private_key(pem: bytes) -> EllipticCurvePrivateKey:
    """Return the key in a PEM file. Raises ValueError for anything but a private key of the curve P-256 without a password."""
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise ValueError(f"no private key: {error}") from None
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise ValueError("found another kind of key, allowed: an EC key on P-256")
    return key


def public_bytes(key: EllipticCurvePublicKey) -> bytes:
    """Return a point of the curve, uncompressed: 65 bytes."""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def sign(key: EllipticCurvePrivateKey, header: bytes, payload: bytes) -> str:
    """Return a signature in compact form: header, payload and signature in base64url, with dots between them."""
    content = f"{encode_base64url(header)}.{encode_base64url(payload)}"
    # The two numbers one behind the other, and not in the form of X.509.
    r, s = decode_dss_signature(key.sign(content.encode(), ECDSA(SHA256())))
    return f"{content}.{encode_base64url(r.to_bytes(32) + s.to_bytes(32))}"
