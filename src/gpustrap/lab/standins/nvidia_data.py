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
        architecture: Of dpkg.
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


def repositories() -> tuple[str, ...]:
    """Names of the CUDA repositories."""
    return tuple(row["name"] for row in base()["repositories"])


def packages(repository: str) -> tuple[Package, ...]:
    """All that a repository holds, sorted; `repository` is one of `repositories` or ``container-toolkit``."""
    found = {
        (package.name, package.version): package
        for row in rows()
        for values in _each(row, repository)
        for package in _made(row, {"repository": repository, **values})
    }
    return tuple(found[key] for key in sorted(found))


def upstream(version: str) -> str:
    """``580.178.04-1ubuntu1`` -> ``580.178.04``."""
    return version.rpartition("-")[0]


def _drivers(repository: str) -> list[str]:
    return next((list(row["drivers"]) for row in base()["repositories"] if row["name"] == repository), [])


def _each(row: Row, repository: str) -> Iterator[Values]:
    """What the templates of a row are filled from, once for each of its packages in a repository."""
    if row.per == "toolkit":
        yield from _toolkits(repository)
        return
    if repository not in row.repositories:
        return
    if row.versions:
        yield from ({"full": version} for version in row.versions)
        return
    for full in _drivers(repository):
        branch = full.partition(".")[0]
        if not row.branches or branch in row.branches:
            yield {"full": full, "upstream": upstream(full), "branch": branch}


def _toolkits(repository: str) -> Iterator[Values]:
    for toolkit in vendor("nvidia_cuda")["toolkits"]:
        if repository not in toolkit["repositories"]:
            continue
        for release, component in toolkit["releases"].items():
            major, minor, _build = release.split(".")
            yield {
                "major": major,
                "minor": minor,
                "release": release,
                "component": component,
                "driver": toolkit["driver"],
                "full": f"{release}-1",
            }


def _made(row: Row, values: Values) -> Iterator[Package]:
    version = row.version.format(**values)
    for template in row.names:
        name = template.format(**values)
        yield Package(
            name,
            version,
            row.architecture,
            _fields(row, name, version, values),
            {path.format(**values): kind for path, kind in row.files.items()},
            row.scripts,
            values,
        )


def _fields(row: Row, name: str, version: str, values: Values) -> dict[str, str]:
    def filled(*templates: str) -> str:
        return ", ".join(template.format(**values) for template in templates)

    return {
        "Package": name,
        "Version": version,
        "Architecture": row.architecture,
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
