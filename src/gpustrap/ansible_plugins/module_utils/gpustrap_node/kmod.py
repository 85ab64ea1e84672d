"""What a kernel module's own file says: the ELF section that modinfo reads, and who signed it.

The file is the truth that the next boot meets; dkms and dpkg only remember what they once did. Read without modinfo,
which minimal systems lack and which loads nothing but also reads no recorded tree.
"""

from __future__ import annotations

import gzip
import lzma
import re
import struct
import zlib
from typing import Callable, NamedTuple

from .der import signer_of_pkcs7
from .host import Host

ELF64 = b"\x7fELF\x02"
SECTION = ".modinfo"
MARK = b"~Module signature appended~\n"  # include/linux/module_signature.h
TRAILER = 12  # struct module_signature, before the mark
UNPACKED_LIMIT = 512 * 1024 * 1024  # the largest nvidia.ko known has about 100 MiB

Reader = Callable[[int, int], bytes]


class Module(NamedTuple):
    """Of one module file.

    Attributes:
        version: Empty where it names none.
        license: ``NVIDIA`` for the proprietary module, ``Dual MIT/GPL`` for the open one.
        vermagic: Kernel release and build options it was built for.
        signer: Common name of the key it is signed with; empty where it is not signed.
        key: Serial number of that key's certificate, in hexadecimal digits.
    """

    version: str
    license: str
    vermagic: str
    signer: str
    key: str


def read_module(host: Host, path: str) -> Module | None:
    """A module's file; None where it is none, or (with a note) packed in a way that cannot be read here."""
    if path.endswith(".zst"):  # older Pythons cannot unpack it
        return _by_modinfo(host, path)
    if path.endswith((".xz", ".gz")):
        data = _unpacked(host, path)
        if data is None:
            return None
        return parse_module(lambda offset, size: data[offset : offset + size], len(data))
    status = host.stat(path)
    if status is None:
        return None
    return parse_module(lambda offset, size: host.read_at(path, offset, size), status.st_size)


def parse_module(read: Reader, size: int) -> Module | None:
    """The module behind a reader of bytes at offsets; None where it is no 64-bit ELF with that section."""
    try:
        section = _section(read)
    except struct.error:
        return None
    if section is None:
        return None
    pairs = (entry.decode("utf-8", "replace").partition("=") for entry in section.split(b"\0") if entry)
    values: dict[str, str] = {}
    for key, _equals, value in pairs:
        values.setdefault(key, value)
    signer, key = _signature(read, size)
    return Module(values.get("version", ""), values.get("license", ""), values.get("vermagic", ""), signer, key)


def _section(read: Reader) -> bytes | None:
    """The bytes of ``.modinfo``."""
    head = read(0, 64)
    if not head.startswith(ELF64):
        return None
    order = ">" if head[5] == 2 else "<"
    (table,) = struct.unpack_from(order + "Q", head, 0x28)
    entry, count, names_at = struct.unpack_from(order + "HHH", head, 0x3A)
    headers = read(table, entry * count)

    def place(number: int) -> tuple[int, int]:
        offset, length = struct.unpack_from(order + "QQ", headers, number * entry + 0x18)
        return offset, length

    names = read(*place(names_at))
    for number in range(count):
        (at,) = struct.unpack_from(order + "I", headers, number * entry)
        if names[at : names.find(b"\0", at)] == SECTION.encode():
            return read(*place(number))
    return None


def _signature(read: Reader, size: int) -> tuple[str, str]:
    """Signer and key of the signature at the end of the file; two empty texts where there is none."""
    end = size - len(MARK)
    if end < TRAILER or read(end, len(MARK)) != MARK:
        return "", ""
    trailer = read(end - TRAILER, TRAILER)
    (length,) = struct.unpack_from(">I", trailer, 8)
    return signer_of_pkcs7(read(end - TRAILER - length, length))


def _unpacked(host: Host, path: str) -> bytes | None:
    packed = host.read_bytes(path)
    if packed is None:
        return None
    try:
        if path.endswith(".gz"):
            return gzip.decompress(packed)
        return lzma.LZMADecompressor().decompress(packed, UNPACKED_LIMIT)
    except (lzma.LZMAError, OSError, EOFError, zlib.error, ValueError):
        host.note("%s: cannot be unpacked" % path)
        return None


def _by_modinfo(host: Host, path: str) -> Module | None:
    """The same by modinfo."""
    answer = host.run(["modinfo", path])
    if answer is None or answer.rc != 0:
        host.note("%s: cannot be read here" % path)
        return None
    return parse_modinfo(answer.stdout)


def parse_modinfo(text: str) -> Module:
    """What modinfo prints."""

    def value(name: str) -> str:
        found = re.search(r"^%s:[ \t]+(.+)$" % name, text, re.MULTILINE)
        return found.group(1).strip() if found else ""

    key = value("sig_key").replace(":", "").lower()
    return Module(value("version"), value("license"), value("vermagic"), value("signer"), key)
