"""Which primary keys does a vendor's key file hold? Computed by us from its packets. Standard library only.

apt trusts every key of a keyring, so a file is taken only if it holds exactly the pinned ones. Formats: RFC 9580
(and RFC 4880): section 4.2 packet headers, 5.5.4 fingerprints, 6.2 ASCII armour.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from typing import Any

MARKER, SIGNATURE, PUBLIC_KEY, TRUST, USER_ID, PUBLIC_SUBKEY, USER_ATTRIBUTE, PADDING = 10, 2, 6, 12, 13, 14, 17, 21
ALLOWED = frozenset([MARKER, SIGNATURE, PUBLIC_KEY, TRUST, USER_ID, PUBLIC_SUBKEY, USER_ATTRIBUTE, PADDING])
ARMOUR = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----[ \t]*\r?\n(?:[!-9;-~]+: [^\r\n]*\r?\n)*[ \t]*\r?\n"
    rb"([A-Za-z0-9+/=\s]+?)-----END PGP PUBLIC KEY BLOCK-----"
)


class BadKeyError(Exception):
    """The data is not a file of public keys, or not of the expected ones."""


def dearmour(data: bytes) -> bytes:
    """The packets of a key file, armoured or not."""
    if data[:1] and data[0] & 0x80:
        return data
    blocks = ARMOUR.findall(data)
    if not blocks or len(blocks) != data.count(b"-----BEGIN PGP"):
        raise BadKeyError("neither an OpenPGP public key nor an armoured one")
    return b"".join(_radix64(block) for block in blocks)


def _radix64(block: bytes) -> bytes:
    lines = block.split()
    if len(lines) > 1 and lines[-1].startswith(b"=") and len(lines[-1]) == 5:  # the optional CRC24
        lines = lines[:-1]
    try:
        return base64.b64decode(b"".join(lines), validate=True)
    except (binascii.Error, ValueError):
        raise BadKeyError("broken armour") from None


def packets(data: bytes) -> list[Any]:
    """(tag, body) of every packet; nothing is skipped, so nothing can hide."""
    found, at = [], 0
    while at < len(data):
        header = data[at]
        if not header & 0x80:
            raise BadKeyError("broken packet at byte {0}".format(at))
        if header & 0x40:
            tag, (length, at) = header & 0x3F, _new_length(data, at + 1)
        else:
            tag, (length, at) = header >> 2 & 0x0F, _old_length(data, at + 1, header & 3)
        if at + length > len(data):
            raise BadKeyError("the file is cut off")
        found.append((tag, data[at : at + length]))
        at += length
    return found


def _new_length(data: bytes, at: int) -> tuple[Any, ...]:
    first = _bytes(data, at, 1)[0]
    if first < 192:
        return first, at + 1
    if first < 224:
        return (first - 192 << 8) + _bytes(data, at + 1, 1)[0] + 192, at + 2
    if first == 255:
        return struct.unpack(">I", _bytes(data, at + 1, 4))[0], at + 5
    raise BadKeyError("partial lengths do not belong into a key file")


def _old_length(data: bytes, at: int, kind: int) -> tuple[Any, ...]:
    if kind == 3:
        raise BadKeyError("indeterminate lengths do not belong into a key file")
    size = 1 << kind
    return int.from_bytes(_bytes(data, at, size), "big"), at + size


def _bytes(data: bytes, at: int, count: int) -> bytes:
    if at + count > len(data):
        raise BadKeyError("the file is cut off")
    return data[at : at + count]


def fingerprint(body: bytes) -> str:
    """Upper-case hex fingerprint of a public-key packet: SHA-1 for version 4, SHA-256 for version 6."""
    version = _bytes(body, 0, 1)[0]
    if version == 4:
        return hashlib.sha1(b"\x99" + struct.pack(">H", len(body)) + body).hexdigest().upper()  # noqa: S324 - the standard's
    if version == 6:
        return hashlib.sha256(b"\x9b" + struct.pack(">I", len(body)) + body).hexdigest().upper()
    raise BadKeyError("a key of version {0}; apt takes versions 4 and 6".format(version))


def normal(text: str) -> str:
    """A fingerprint as people write it (spaces, lower case, 0x) in the form we compare."""
    return re.sub(r"\s|^0x", "", text.strip(), flags=re.IGNORECASE).upper()


def primary_keys(data: bytes) -> list[Any]:
    """Fingerprints of the primary keys in a key file, in order."""
    found = []
    for tag, body in packets(dearmour(data)):
        if tag not in ALLOWED:
            raise BadKeyError("packet of type {0} does not belong into a file of public keys".format(tag))
        if tag == PUBLIC_KEY:
            found.append(fingerprint(body))
    if not found:
        raise BadKeyError("no public key in it")
    return found


def expiry(data: bytes) -> int:
    """When the first of the primary keys expires, in seconds since 1970; 0 where none does.

    Told by its newest signature of its own: section 5.2.3.13, key expiration time.
    """
    moments = []
    key, made, newest, seconds = "", 0, -1, 0
    for tag, body in [*packets(dearmour(data)), (PUBLIC_KEY, b"")]:
        if tag == PUBLIC_KEY:
            if seconds:
                moments.append(made + seconds)
            key, made, newest, seconds = (fingerprint(body) if body else ""), int.from_bytes(body[1:5], "big"), -1, 0
        elif tag == SIGNATURE and key:
            about = _own_signature(body, key)
            if about and about[0] >= newest:
                newest, seconds = about
    return min(moments) if moments else 0


def _own_signature(body: bytes, key: str) -> tuple[Any, ...]:
    """(when it was made, after how many seconds the key expires) of a key's own signature; empty for any other."""
    wide = _bytes(body, 0, 1)[0] == 6
    if (not wide and body[0] != 4) or _bytes(body, 1, 1)[0] not in (0x10, 0x11, 0x12, 0x13, 0x1F):
        return ()
    size = 4 if wide else 2
    length = int.from_bytes(_bytes(body, 4, size), "big")
    hashed = _subpackets(_bytes(body, 4 + size, length))
    rest = 4 + size + length
    others = _subpackets(_bytes(body, rest + size, int.from_bytes(_bytes(body, rest, size), "big")))
    issuers = [value for kind, value in hashed + others if kind in (16, 33)]
    own = any(value.hex().upper() == key[-16:] or value[1:].hex().upper() == key for value in issuers)
    numbers = {kind: int.from_bytes(value, "big") for kind, value in hashed if kind in (2, 9)}
    return (numbers.get(2, 0), numbers.get(9, 0)) if own else ()


def _subpackets(data: bytes) -> list[Any]:
    """(type, value) of the subpackets of a signature."""
    found, at = [], 0
    while at < len(data):
        length, at = _subpacket_length(data, at)
        part = _bytes(data, at, length)
        if part:
            found.append((part[0] & 0x7F, part[1:]))
        at += length
    return found


def _subpacket_length(data: bytes, at: int) -> tuple[Any, ...]:
    first = _bytes(data, at, 1)[0]
    if 192 <= first < 255:
        return (first - 192 << 8) + _bytes(data, at + 1, 1)[0] + 192, at + 2
    return _new_length(data, at)


def keyring(data: bytes, pinned: list[Any]) -> bytes:
    """The binary keyring for apt, if `data` holds exactly the pinned primary keys.

    Raises:
        BadKeyError: Names the keys that are there and should not be, or the other way round.
    """
    found, wanted = primary_keys(data), [normal(text) for text in pinned]
    extra = sorted(set(found) - set(wanted))
    missing = sorted(set(wanted) - set(found))
    if extra or missing or not wanted:
        raise BadKeyError(
            "; ".join(
                [
                    "holds {0}".format(", ".join(found)),
                    "not pinned: {0}".format(", ".join(extra)) if extra else "",
                    "pinned but not there: {0}".format(", ".join(missing)) if missing else "",
                ]
            )
            .replace("; ; ", "; ")
            .rstrip("; ")
        )
    return dearmour(data)
