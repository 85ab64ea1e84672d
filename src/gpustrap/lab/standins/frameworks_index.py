"""Wheels, and the pages of an index that offers them: PEP 503 and 691, hashes, metadata beside each file (PEP 658)."""

from __future__ import annotations

import hashlib
import html
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.parser import Parser
from pathlib import Path

from gpustrap.lab.standins.parts import write

PAGE, JSON_PAGE = "index.html", "index.v1.json"
MOMENT = (2026, 12, 1, 0, 0, 0)  # the same bytes, and so the same hashes, on every machine


@dataclass(frozen=True, slots=True)
class Package:
    """A release of a package for one kind of Python and machine.

    Attributes:
        version: With its local part, ``2.14.0+cu130``.
        tag: Python, ABI and platform of its wheel; empty for a source distribution.
        requires: What it takes with it.
        extras: What each extra takes besides.
        requires_python: ``>=3.11,<3.15``; empty for all.
        files: Of the wheel.
    """

    name: str
    version: str
    tag: str = "py3-none-any"
    requires: tuple[str, ...] = ()
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    requires_python: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """Name of its file."""
        start = f"{re.sub(r'[-_.]+', '_', self.name)}-{self.version}"
        return f"{start}-{self.tag}.whl" if self.tag else f"{start}.tar.gz"

    def metadata(self) -> bytes:
        """Its core metadata."""
        lines = ["Metadata-Version: 2.1", f"Name: {self.name}", f"Version: {self.version}"]
        lines += ["Summary: simulated: a stand-in of the gpustrap lab"]
        lines += [f"Requires-Python: {self.requires_python}"] if self.requires_python else []
        lines += [f"Requires-Dist: {text}" for text in self.requires]
        for extra, texts in self.extras.items():
            lines += [f"Provides-Extra: {extra}", *(f"Requires-Dist: {text} ; extra == '{extra}'" for text in texts)]
        return "".join(f"{line}\n" for line in lines).encode()

    def pack(self) -> bytes:
        """Its file."""
        return self._wheel() if self.tag else self._source()

    def _wheel(self) -> bytes:
        info = f"{re.sub(r'[-_.]+', '_', self.name)}-{self.version}.dist-info"
        python, abi, platforms = self.tag.split("-")
        tags = "".join(f"Tag: {python}-{abi}-{platform}\n" for platform in platforms.split("."))
        content = {
            **self.files,
            f"{info}/METADATA": self.metadata(),
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: gpustrap lab\nRoot-Is-Purelib: true\n{tags}".encode(),
        }
        rows = [f"{name},sha256={_urlsafe(data)},{len(data)}\n" for name, data in content.items()]
        content[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, data in content.items():
                member = zipfile.ZipInfo(name, MOMENT)
                member.external_attr, member.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
                archive.writestr(member, data)
        return buffer.getvalue()

    def _source(self) -> bytes:
        """It has metadata, and nothing that builds it: whoever needs it built fails, as with the real one."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
            member = tarfile.TarInfo(f"{self.name}-{self.version}/PKG-INFO")
            data = self.metadata().replace(b"Metadata-Version: 2.1", b"Metadata-Version: 2.2")
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
        return buffer.getvalue()


def _urlsafe(data: bytes) -> str:
    from base64 import urlsafe_b64encode  # noqa: PLC0415 - for this line alone

    return urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def normal(name: str) -> str:
    """A package's name as an index has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def put(directory: Path, packages: Iterable[Package]) -> None:
    """Write packages and the pages of their index below a directory; files that are there stay in it."""
    for package in packages:
        place = directory / normal(package.name)
        write(place / package.file, package.pack())
        if package.tag:
            write(place / f"{package.file}.metadata", package.metadata())
    pages(directory)


def pages(directory: Path) -> None:
    """Write the pages of an index from the files that are there."""
    names = sorted(path.name for path in directory.iterdir() if path.is_dir())
    for name in names:
        _project(directory / name)
    links = "".join(f'<a href="{name}/">{name}</a><br>\n' for name in names)
    write(directory / PAGE, f"<!DOCTYPE html>\n<html><body>\n{links}</body></html>\n")
    found = {"meta": {"api-version": "1.1"}, "projects": [{"name": name} for name in names]}
    write(directory / JSON_PAGE, json.dumps(found))


def _project(directory: Path) -> None:
    files, links = [], ""
    for path in sorted(path for path in directory.iterdir() if path.suffix in {".whl", ".gz"}):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        row: dict[str, object] = {"filename": path.name, "url": path.name, "hashes": {"sha256": digest}}
        row["size"] = path.stat().st_size
        more = ""
        beside = path.with_name(f"{path.name}.metadata")
        if beside.exists():
            metadata = beside.read_bytes()
            sum_of_it = hashlib.sha256(metadata).hexdigest()
            python = Parser().parsestr(metadata.decode())["Requires-Python"]
            row["core-metadata"] = {"sha256": sum_of_it}
            more = f' data-core-metadata="sha256={sum_of_it}"'
            if python:
                row["requires-python"] = python
                more += f' data-requires-python="{html.escape(python)}"'
        files.append(row)
        links += f'<a href="{path.name.replace("+", "%2B")}#sha256={digest}"{more}>{path.name}</a><br>\n'
        row["url"] = path.name.replace("+", "%2B")
    write(directory / PAGE, f"<!DOCTYPE html>\n<html><body>\n{links}</body></html>\n")
    versions = sorted({str(row["filename"]).split("-")[1].removesuffix(".tar.gz") for row in files})
    found = {"meta": {"api-version": "1.1"}, "name": directory.name, "versions": versions, "files": files}
    write(directory / JSON_PAGE, json.dumps(found))
