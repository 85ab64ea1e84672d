"""A container image made of the node's own files: its shell and the libraries that the shell needs."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

from .node import Node

# "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)", or the loader alone: "/lib64/ld-linux-x86-64.so.2 (0x…)"
_LIBRARY = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)


class NoRootfsError(Exception):
    """The node's shell or a library of it could not be read."""


def libraries(ldd: str) -> list[str]:
    """The files that a program needs, from what ``ldd`` printed; empty for a static one."""
    return _LIBRARY.findall(ldd)


def archive(node: Node, token: str) -> bytes:
    """A tar of ``/bin/sh``, its libraries and ``/token``; about 2 MiB.

    Raises:
        NoRootfsError: Something of it cannot be read.
    """
    listed = node.run("ldd", "/bin/sh")
    if not listed.ok and "not a dynamic executable" not in listed.words:
        raise NoRootfsError(listed.words)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        try:
            for name in ["/bin/sh", *libraries(listed.out)]:
                _add(tar, name, node.path(name).read_bytes(), 0o755)
        except OSError as error:
            raise NoRootfsError(str(error)) from error
        _add(tar, "/token", f"{token}\n".encode(), 0o644)
    return stream.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    member = tarfile.TarInfo(str(Path(name).relative_to("/")))
    member.size, member.mode = len(content), mode
    tar.addfile(member, io.BytesIO(content))
