"""Makes small Debian packages in memory: fast enough for thousands, and the same bytes each time."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

from gpustrap.lab.standins.parts import lines

EPOCH = 1_790_000_000  # all files' time: September 2026
AR_MAGIC = b"!<arch>\n"


@dataclass(frozen=True, slots=True)
class File:
    """One file of a package.

    Attributes:
        content: What is in it.
        mode: Its permissions.
        link: Where it leads, if it is a symbolic link.
    """

    content: bytes = b""
    mode: int = 0o644
    link: str = ""


def control_text(fields: Mapping[str, str]) -> str:
    """The control file: the fields as given; empty ones are left out."""
    return lines(*fields.items())


def pack(control: str, files: Mapping[str, File], scripts: Mapping[str, str] | None = None) -> bytes:
    """A package.

    Args:
        control: Text of its control file.
        files: What it installs, by path without a leading slash. Those below ``etc/`` are configuration files.
        scripts: Maintainer scripts by name, e.g. ``postinst``.
    """
    conffiles = "".join(f"/{path}\n" for path in sorted(files) if path.startswith("etc/"))
    about = {"control": File(control.encode())}
    if conffiles:
        about["conffiles"] = File(conffiles.encode())
    about |= {name: File(text.encode(), 0o755) for name, text in (scripts or {}).items()}
    members = {"debian-binary": b"2.0\n", "control.tar.gz": _tar(about), "data.tar.gz": _tar(files)}
    return AR_MAGIC + b"".join(_member(name, data) for name, data in members.items())


def _member(name: str, data: bytes) -> bytes:
    header = f"{name:<16}{EPOCH:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode("ascii")
    return header + data + b"\n" * (len(data) % 2)


def _tar(files: Mapping[str, File]) -> bytes:
    """The files, and the directories above them."""
    directories = {"/".join(path.split("/")[:depth]) for path in files for depth in range(1, path.count("/") + 1)}
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted({"", *directories, *files}):
            entry = tarfile.TarInfo(f"./{path}")
            entry.mtime, entry.uname, entry.gname = EPOCH, "root", "root"
            if path in files and files[path].link:
                entry.type, entry.linkname = tarfile.SYMTYPE, files[path].link
                archive.addfile(entry)
            elif path in files:
                entry.size, entry.mode = len(files[path].content), files[path].mode
                archive.addfile(entry, io.BytesIO(files[path].content))
            else:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
    return gzip.compress(raw.getvalue(), compresslevel=6, mtime=0)
