"""What is in NVIDIA's apt repositories: the transcribed rows of ``vendor/nvidia*.yml``, made into packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from gpustrap.lab.standins.parts import vendor

TOPICS = ("drivers", "drivers_unsuffixed", "drivers_debian", "fabric", "cuda", "toolkit")
TOOLKIT = "container-toolkit"
Values = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """Packages that are made alike, as the files of data have them.

    Attributes:
        names: Their names, templates as all texts below.
        source: Where this was read.
        checked: When.
        confidence: ``verified`` or ``recalled``.
        summary: First line of their description.
        repositories: In which repositories; with ``per: toolkit`` those of the toolkit.
        branches: Of which driver branches; empty for all.
        per: What there is one of: each driver ``version``, ``upstream`` version, ``branch`` or ``toolkit``.
        version: Their version; empty for the driver's package version.
        versions: Versions of packages that follow neither a driver nor a toolkit.
        architecture: ``all``, or ``amd64`` for that of the repository.
        depends: Its dependencies.
        recommends: What is installed along unless apt is told otherwise.
        conflicts: What goes when they come.
        provides: Names they answer to.
        virtual: Names they provide, conflict with and replace.
        files: Path -> kind of content, see nvidia_files.py.
        scripts: Maintainer script -> kind, see there.
    """

    names: list[str]
    source: str
    checked: str
    confidence: Literal["verified", "recalled"]
    summary: str
    repositories: list[str] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)
    per: Literal["version", "upstream", "branch", "toolkit"] = "version"
    version: str = "{full}"
    versions: list[str] = field(default_factory=list)
    architecture: str = "amd64"
    depends: list[str] = field(default_factory=list)
    recommends: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    provides: list[str] = field(default_factory=list)
    virtual: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Package:
    """One package at one version in one repository.

    Attributes:
        name: Its name.
        version: Its version.
        architecture: Of dpkg.
        fields: Its control fields, in order.
        files: Path -> kind of content.
        scripts: Maintainer script -> kind.
        values: What its templates were filled from.
    """

    name: str
    version: str
    architecture: str
    fields: Values
    files: Values
    scripts: Values
    values: Values

    @property
    def filename(self) -> str:
        """Of the package file; an epoch is not in it."""
        return f"{self.name}_{self.version.partition(':')[2] or self.version}_{self.architecture}.deb"


@cache
def base() -> dict[str, Any]:
    """What is said of the repositories themselves."""
    return vendor("nvidia")


@cache
def rows() -> tuple[Row, ...]:
    """All rows; a misspelt key is an error."""
    return tuple(Row(**row) for topic in TOPICS for row in vendor(f"nvidia_{topic}")["packages"])


@dataclass(frozen=True, slots=True)
class Repository:
    """An apt repository of NVIDIA's.

    Attributes:
        name: How rows and faults name it.
        path: Below its base.
        key: Its key's file: of a CUDA repository in it, of the toolkit's below its base.
        source: Where this was read.
        checked: When.
        confidence: ``verified`` or ``recalled``.
        base: First part of its path, which a mirror keeps or not.
        like: The repository whose rows it has, too.
        architecture: Of its packages, as dpkg names it.
        drivers: Package versions of drivers, all that were read.
        toolkits: Releases of toolkits; empty for those that name the repository.
        lacks: Names that `like` has and it has not.
        origin: Of Release.
        label: Of Release.
    """

    name: str
    path: str
    key: str
    source: str
    checked: str
    confidence: Literal["verified", "recalled"]
    base: str
    origin: str
    label: str
    like: str = ""
    architecture: str = "amd64"
    drivers: list[str] = field(default_factory=list)
    toolkits: list[str] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)

    @property
    def place(self) -> str:
        """Its path below the host, or below ``nvidia/`` of the stand-ins."""
        return f"{self.base}/{self.path}"

    @property
    def key_place(self) -> str:
        """Where its key is, in the same way."""
        return f"{self.base if self.is_toolkits else self.place}/{self.key}"

    @property
    def is_toolkits(self) -> bool:
        """Whether it is one of the container toolkit's own."""
        return self.base == str(base()["toolkit_defaults"]["base"])

    @property
    def rows_of(self) -> str:
        """The name by which rows know it."""
        return self.like or self.name


@cache
def all_repositories() -> dict[str, Repository]:
    """Every repository by its name."""
    data = base()
    common = {name: data[name] for name in ("base", "origin", "label")}
    rows = [
        *({**common, **row} for row in data["repositories"]),
        *({**data["toolkit_defaults"], **row} for row in data["toolkit_repositories"]),
    ]
    return {row["name"]: Repository(**row) for row in rows}


def repositories(architecture: str = "amd64") -> tuple[str, ...]:
    """Names of the CUDA repositories for an architecture."""
    found = all_repositories().values()
    return tuple(one.name for one in found if one.architecture == architecture and not one.is_toolkits)


@cache
def packages(name: str) -> tuple[Package, ...]:
    """All that a repository holds, sorted."""
    repository = all_repositories()[name]
    found = {
        (package.name, package.version): package
        for row in rows()
        for values in _each(row, repository)
        for package in _made(row, {"repository": repository.rows_of, **values}, repository.architecture)
        if package.name not in repository.lacks
    }
    return tuple(found[key] for key in sorted(found))


def upstream(version: str) -> str:
    """``580.178.04-1ubuntu1`` -> ``580.178.04``."""
    return version.rpartition("-")[0]


def _each(row: Row, repository: Repository) -> Iterator[Values]:
    """What the templates of a row are filled from, once for each of its packages in a repository."""
    if row.per == "toolkit":
        yield from _toolkits(repository)
        return
    if repository.rows_of not in row.repositories:
        return
    if row.versions:
        yield from ({"full": version} for version in row.versions)
        return
    for full in repository.drivers:
        branch = full.partition(".")[0]
        if not row.branches or branch in row.branches:
            yield {"full": full, "upstream": upstream(full), "branch": branch}


def _toolkits(repository: Repository) -> Iterator[Values]:
    for toolkit in vendor("nvidia_cuda")["toolkits"]:
        if repository.rows_of not in toolkit["repositories"]:
            continue
        for release, component in toolkit["releases"].items():
            if repository.toolkits and release not in repository.toolkits:
                continue
            major, minor, _build = release.split(".")
            yield {
                "major": major,
                "minor": minor,
                "release": release,
                "component": component,
                "driver": toolkit["driver"],
                "full": f"{release}-1",
            }


def _made(row: Row, values: Values, architecture: str) -> Iterator[Package]:
    version = row.version.format(**values)
    own = architecture if row.architecture == "amd64" else row.architecture
    for template in row.names:
        name = template.format(**values)
        yield Package(
            name,
            version,
            own,
            _fields(row, (name, version, own), values),
            {path.format(**values): kind for path, kind in row.files.items()},
            row.scripts,
            values,
        )


def _fields(row: Row, identity: tuple[str, str, str], values: Values) -> dict[str, str]:
    name, version, architecture = identity

    def filled(*templates: str) -> str:
        return ", ".join(template.format(**values) for template in templates)

    return {
        "Package": name,
        "Version": version,
        "Architecture": architecture,
        "Maintainer": str(base()["maintainer"]),
        "Section": "devel",
        "Priority": "optional",
        "Depends": filled(*row.depends),
        "Recommends": filled(*row.recommends),
        "Provides": filled(*row.virtual, *row.provides),
        "Conflicts": filled(*row.virtual, *row.conflicts),
        "Replaces": filled(*row.virtual),
        "Description": f"{filled(row.summary)}\n simulated: stand-in of the gpustrap lab",
    }
