"""NVIDIA's dnf repositories as metadata: what dnf resolves from, with module streams. There is nothing to download."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import yaml

from gpustrap.lab.standins.parts import vendor, write

EPOCH = "3"
MODULE = "nvidia-driver"
DISTRIBUTION = "distribution"  # what stands for the distribution and EPEL
FLAGS = {"=": "EQ", ">=": "GE"}
NAMESPACES = {
    "xmlns": "http://linux.duke.edu/metadata/common",
    "xmlns:rpm": "http://linux.duke.edu/metadata/rpm",
}


@dataclass(frozen=True, slots=True)
class Rpm:
    """One package at one version.

    Attributes:
        name: Its name.
        epoch: ``0`` for none.
        version: Without release.
        release: With the distribution, where it has it.
        architecture: As rpm names it.
        requires: ``name``, or ``name OP [epoch:]version``.
        provides: In the same form.
        conflicts: In the same form.
        streams: Of the module, that it is part of.
    """

    name: str
    version: str
    release: str
    architecture: str
    epoch: str = "0"
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()

    @property
    def nevra(self) -> str:
        """As modules name it: ``name-epoch:version-release.architecture``."""
        return f"{self.name}-{self.epoch}:{self.version}-{self.release}.{self.architecture}"


@dataclass(frozen=True, slots=True)
class Row:
    """Packages that are made alike, as the file of data has them. Without `versions` there is one of each driver.

    Attributes:
        names: Their names.
        source: Where this was read.
        checked: When.
        confidence: ``verified`` or ``recalled``.
        repositories: Which; empty for all.
        branches: Of which driver branches; empty for all.
        architecture: ``noarch``, or empty for the repository's.
        fabric: Whether it is without epoch, distribution and stream.
        versions: Versions with release, of packages that follow no driver.
        streams: Names of streams that it is in, or with a dash in front the ends of those; empty for all.
        requires: What it needs, a template over ``version``.
        provides: What it also answers to.
        conflicts: What cannot be beside it.
    """

    names: list[str]
    source: str
    checked: str
    confidence: str
    repositories: list[str] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)
    architecture: str = ""
    fabric: bool = False
    versions: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    requires: list[str] = field(default_factory=list)
    provides: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DnfRepository:
    """A repository.

    Attributes:
        name: How rows name it.
        path: Below its base.
        key: Its key's file, in it.
        source: Where this was read.
        checked: When.
        confidence: ``verified`` or ``recalled``.
        architecture: Of its packages.
        like: The repository that it has the packages of.
        dist: End of a release, e.g. ``el9``.
        drivers: Versions of drivers, all that were read.
        default_stream: Of the module; empty without modules.
        streams: Of the module.
        toolkits: Releases of toolkits.
    """

    name: str
    path: str
    key: str
    source: str
    checked: str
    confidence: str
    architecture: str = "x86_64"
    like: str = ""
    dist: str = ""
    drivers: list[str] = field(default_factory=list)
    default_stream: str = ""
    streams: list[str] = field(default_factory=list)
    toolkits: list[str] = field(default_factory=list)

    @property
    def content(self) -> DnfRepository:
        """The repository whose rows it has."""
        return repositories()[self.like or self.name]


@cache
def data() -> dict[str, Any]:
    """The transcribed data."""
    return vendor("nvidia_rpm")


@cache
def repositories() -> dict[str, DnfRepository]:
    """All repositories by name."""
    return {row["name"]: DnfRepository(**row) for row in data()["repositories"]}


@cache
def rows() -> tuple[Row, ...]:
    """All rows; a misspelt key is an error."""
    return tuple(Row(**row) for row in data()["packages"])


@cache
def packages(name: str) -> tuple[Rpm, ...]:
    """All that a repository holds."""
    own = repositories()[name]
    found = [rpm for row in rows() for rpm in _made(row, own)]
    for release in own.content.toolkits:
        major, minor, _build = release.split(".")
        found.append(Rpm(f"cuda-toolkit-{major}-{minor}", release, "1", own.architecture))
    return tuple(found)


def distribution() -> tuple[Rpm, ...]:
    """What stands for the distribution and EPEL."""
    words = (word.rsplit("-", 2) for word in data()["distribution"])
    return tuple(Rpm(name, version, release, "noarch") for name, version, release in words)


def _made(row: Row, own: DnfRepository) -> Iterator[Rpm]:
    content, machine = own.content, row.architecture or own.architecture
    if row.repositories and content.name not in row.repositories:
        return
    for full in row.versions:
        version, release = full.split("-")
        yield from (Rpm(name, version, release, machine) for name in row.names)
    for version in () if row.versions else content.drivers:
        branch = version.partition(".")[0]
        if row.branches and branch not in row.branches:
            continue
        release, epoch = ("1", "0") if row.fabric else (f"1.{content.dist}", EPOCH)
        for name in row.names:
            yield Rpm(
                name,
                version,
                release,
                machine,
                epoch,
                requires=_filled(row.requires, version),
                provides=_filled(row.provides, version),
                conflicts=_filled(row.conflicts, version),
                streams=() if row.fabric else tuple(s for s in content.streams if _has(s, branch, row.streams)),
            )


def _filled(templates: list[str], version: str) -> tuple[str, ...]:
    return tuple(template.format(version=version) for template in templates)


def _has(stream: str, branch: str, wanted: list[str]) -> bool:
    """Whether a stream has the packages of a branch that are in these streams."""
    own, _, _ending = stream.partition("-")
    if own.isdecimal() and own != branch:
        return False
    return not wanted or stream in wanted or (own.isdecimal() and stream.removeprefix(own) in wanted)


def _write(directory: Path, held: tuple[Rpm, ...], own: DnfRepository | None = None) -> None:
    """Write ``repodata/`` of a repository."""
    files = {"primary": _primary(held)}
    if own and own.streams:
        files["modules"] = _modules(held, own)
    root = ET.Element("repomd", {"xmlns": "http://linux.duke.edu/metadata/repo"})
    ET.SubElement(root, "revision").text = "1"
    for kind, content in files.items():
        ending = "xml" if kind == "primary" else "yaml"
        packed = gzip.compress(content, mtime=0)
        path = f"repodata/{kind}.{ending}.gz"
        write(directory / path, packed)
        entry = ET.SubElement(root, "data", {"type": kind})
        ET.SubElement(entry, "checksum", {"type": "sha256"}).text = hashlib.sha256(packed).hexdigest()
        ET.SubElement(entry, "open-checksum", {"type": "sha256"}).text = hashlib.sha256(content).hexdigest()
        ET.SubElement(entry, "location", {"href": path})
        ET.SubElement(entry, "timestamp").text = "1"
        ET.SubElement(entry, "size").text = str(len(packed))
        ET.SubElement(entry, "open-size").text = str(len(content))
    write(directory / "repodata/repomd.xml", ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _primary(held: tuple[Rpm, ...]) -> bytes:
    root = ET.Element("metadata", {**NAMESPACES, "packages": str(len(held))})
    for rpm in held:
        package = ET.SubElement(root, "package", {"type": "rpm"})
        ET.SubElement(package, "name").text = rpm.name
        ET.SubElement(package, "arch").text = rpm.architecture
        ET.SubElement(package, "version", {"epoch": rpm.epoch, "ver": rpm.version, "rel": rpm.release})
        digest = hashlib.sha256(rpm.nevra.encode()).hexdigest()
        ET.SubElement(package, "checksum", {"type": "sha256", "pkgid": "YES"}).text = digest
        ET.SubElement(package, "summary").text = "simulated: stand-in of the gpustrap lab"
        ET.SubElement(package, "description").text = "Metadata alone; there is nothing to download."
        ET.SubElement(package, "time", {"file": "1", "build": "1"})
        ET.SubElement(package, "size", {"package": "1", "installed": "1", "archive": "1"})
        ET.SubElement(package, "location", {"href": f"{rpm.name}-{rpm.version}-{rpm.release}.{rpm.architecture}.rpm"})
        form = ET.SubElement(package, "format")
        own = f"{rpm.name} = {rpm.epoch}:{rpm.version}-{rpm.release}"
        relations = {"provides": (own, *rpm.provides), "requires": rpm.requires, "conflicts": rpm.conflicts}
        for kind, words in relations.items():
            if words:
                part = ET.SubElement(form, f"rpm:{kind}")
                for word in words:
                    ET.SubElement(part, "rpm:entry", _relation(word))
    content: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return content


def _relation(word: str) -> dict[str, str]:
    name, _, rest = word.partition(" ")
    if not rest:
        return {"name": name}
    found = re.fullmatch(r"(>?=) (?:(\d+):)?([^-]+)(?:-(.+))?", rest)
    if found is None:
        raise ValueError(f"no relation: {word}")
    operator, epoch, version, release = found.groups()
    entry = {"name": name, "flags": FLAGS[operator], "epoch": epoch or "0", "ver": version}
    return {**entry, "rel": release} if release else entry


def _modules(held: tuple[Rpm, ...], own: DnfRepository) -> bytes:
    """The module's documents: one for each stream, and which is the default."""
    documents: list[dict[str, Any]] = []
    for number, stream in enumerate(own.streams, start=1):
        mine = [rpm for rpm in held if stream in rpm.streams]
        documents.append(
            {
                "document": "modulemd",
                "version": 2,
                "data": {
                    "name": MODULE,
                    "stream": stream,
                    "version": number,
                    "context": "simulated",
                    "arch": own.architecture,
                    "summary": f"Nvidia driver for {stream} branch",
                    "description": "simulated: stand-in of the gpustrap lab",
                    "license": {"module": ["MIT"]},
                    "profiles": {"default": {"rpms": sorted({rpm.name for rpm in mine})}},
                    "artifacts": {"rpms": sorted({rpm.nevra for rpm in mine})},
                },
            }
        )
    profiles = {stream: ["default"] for stream in own.streams}
    defaults = {"module": MODULE, "stream": own.default_stream, "profiles": profiles}
    documents.append({"document": "modulemd-defaults", "version": 1, "data": defaults})
    text: str = yaml.safe_dump_all(documents, explicit_start=True, explicit_end=True, sort_keys=False)
    return text.encode("utf-8")


def build(directory: Path) -> None:
    """All dnf repositories of NVIDIA's below `directory`, each at its path, and ``distribution/``."""
    for name, own in repositories().items():
        _write(directory / data()["base"] / own.path, packages(name), own.content)
    _write(directory / DISTRIBUTION, distribution())
