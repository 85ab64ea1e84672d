"""As much of ASN.1 as it takes to say who signed a module: names and serial numbers of certificates."""

from __future__ import annotations

from typing import Iterator, NamedTuple

SEQUENCE, SET, INTEGER, OID = 0x30, 0x31, 0x02, 0x06
CONTEXT_0 = 0xA0
KEY_ID = 0x80  # [0] IMPLICIT OCTET STRING: the subject key identifier in place of issuer and serial number
COMMON_NAME = b"\x55\x04\x03"


class Element(NamedTuple):
    """One element of DER: its tag and its content."""

    tag: int
    content: bytes


def elements(data: bytes) -> Iterator[Element]:
    """The elements that lie one after the other; ends where the rest makes no sense."""
    at = 0
    while at + 2 <= len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + length > len(data):
            return
        yield Element(tag, data[at : at + length])
        at += length


def _first(data: bytes, tag: int) -> bytes:
    return next((e.content for e in elements(data) if e.tag == tag), b"")


def common_name(name: bytes) -> str:
    """The common name in the content of a Name; empty where it has none."""
    for relative in elements(name):
        for pair in elements(relative.content):
            parts = list(elements(pair.content))
            if len(parts) > 1 and parts[0] == (OID, COMMON_NAME):
                return parts[1].content.decode("utf-8", "replace")
    return ""


def signer_of_pkcs7(signature: bytes) -> tuple[str, str]:
    """Common name and serial number (or key identifier) of the one signer of a detached PKCS#7 signature.

    The kernel's sign-file writes it without certificates and with a single signer. What is none gives empty texts.
    """
    signed_data = _first(_first(_first(signature, SEQUENCE), CONTEXT_0), SEQUENCE)
    sets = [e.content for e in elements(signed_data) if e.tag == SET]
    info = list(elements(_first(sets[-1], SEQUENCE))) if sets else []
    if len(info) < 2:
        return "", ""
    whom = info[1]
    if whom.tag == KEY_ID:
        return "key " + whom.content.hex(), whom.content.hex()
    parts = list(elements(whom.content))
    if len(parts) < 2:
        return "", ""
    return common_name(parts[0].content), _serial(parts[1].content)


def certificate(der: bytes) -> tuple[str, str]:
    """Subject's common name and serial number of a certificate; empty texts where it is none."""
    fields = [e for e in elements(_first(_first(der, SEQUENCE), SEQUENCE)) if e.tag != CONTEXT_0]
    if len(fields) < 5 or fields[0].tag != INTEGER:
        return "", ""
    return common_name(fields[4].content), _serial(fields[0].content)


def _serial(content: bytes) -> str:
    """As modinfo prints it: a leading zero only says that the number is not negative."""
    return content.lstrip(b"\0").hex()
