"""Docker's repository, simulated: the real layout, names and signatures around the distribution's own docker."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpustrap.lab import apt_host, state
from gpustrap.lab.standins.apt_repository import KEY_USER, indexes, release, signing_key, stanza
from gpustrap.lab.standins.parts import FILES, call, fill, lines, refusal, vendor, write
from gpustrap.model.progress import Progress, Step

CLI_FILES = ("usr/bin/docker", "usr/share/bash-completion", "usr/share/fish", "usr/share/zsh")
REPLACED = ("containerd", "docker-cli", "docker.io", "runc")
APT_REMEDY = "apt-get update   (must work on this machine first), then the same command again"


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite of the repository, e.g. debian 13 trixie, with the release its content is from."""

    id: str
    version: str
    codename: str
    content: str

    def full(self, version: str) -> str:
        """Docker's version format: ``5:29.7.2-1~debian.13~trixie``."""
        return f"{version}~{self.id}.{self.version}~{self.codename}"


def build(directory: Path, progress: Progress) -> None:
    """Make the whole repository below `directory`."""
    data = vendor("docker")
    suites = [Suite(**row) for row in data["suites"]]
    archive = apt_host.find_archive()
    if archive is None:
        raise refusal("no Debian archive is configured here, from which docker could be repackaged", remedy=APT_REMEDY)
    architecture = call("dpkg", "--print-architecture").decode().strip()
    with state.scratch() as place, ThreadPoolExecutor() as pool:

        def fetch(release: str) -> None:
            progress(Step("", f"downloading the docker of {release}, to be repackaged"))
            _download(archive.sources(release), data["content"][release], place / release)

        list(pool.map(fetch, data["content"]))
        jobs = [(suite, name) for suite in suites for name in data["packages"]]

        def pack(job: tuple[Suite, str]) -> None:
            suite, name = job
            pool_dir = directory / data["base"] / suite.id / f"dists/{suite.codename}/pool/{data['component']}"
            version = suite.full(data["packages"][name])
            _pack(name, version, place / suite.content, pool_dir / architecture, architecture)

        progress(Step("", "packaging docker's stand-ins"))
        list(pool.map(pack, jobs))
        _sign(directory, data, suites, architecture, place)


def variables(directory: Path, url: str) -> dict[str, object]:
    """The request variables of a site that uses it."""
    fingerprint = (directory / "fingerprint").read_text(encoding="ascii").strip()
    return {"gpustrap_docker_repository": url, "gpustrap_docker_key_fingerprints": [fingerprint]}


def _download(sources: str, packages: Iterable[str], target: Path) -> None:
    """Download and unpack packages of a release through this machine's apt, whatever release this machine has."""
    for part in ("state/lists/partial", "cache/archives/partial", "parts", "debs", "unpacked"):
        (target / part).mkdir(parents=True)
    write(target / "parts/release.sources", sources)
    write(target / "status", "")
    settings = {
        "Dir::State": target / "state",
        "Dir::State::status": target / "status",
        "Dir::Cache": target / "cache",
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": target / "parts",
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    call("apt-get", "-qq", *options, "update", remedy=APT_REMEDY)
    call("apt-get", "-qq", *options, "download", *packages, cwd=target / "debs", remedy=APT_REMEDY)
    for name in packages:
        [deb] = (target / "debs").glob(f"{name}_*.deb")
        call("dpkg-deb", "-R", str(deb), str(target / "unpacked" / name))


def _pack(name: str, version: str, content: Path, target: Path, architecture: str) -> None:
    """Make one package."""
    with TemporaryDirectory(prefix="gpustrap-deb-") as scratch:
        tree = Path(scratch)
        tree.chmod(0o755)
        MAKERS.get(name, _plugin)(tree, name, version, content)
        fields = dict(_control(name, version, content), Architecture=architecture)
        write(tree / "DEBIAN/control", lines(*fields.items()))
        target.mkdir(parents=True, exist_ok=True)
        out = target / f"{name}_{version.partition(':')[2] or version}_{architecture}.deb"
        # The daemons are large and stay on this machine: speed before size.
        call("dpkg-deb", "--root-owner-group", "-Zzstd", "-z1", "-b", str(tree), str(out))


def _engine(tree: Path, _name: str, _version: str, content: Path) -> None:
    """docker.io without the client."""
    _copy(content / "unpacked/docker.io", tree, lambda path: not path.startswith(CLI_FILES))


def _client(tree: Path, _name: str, _version: str, content: Path) -> None:
    """The client, which Debian 12 has in docker.io."""
    own = content / "unpacked/docker-cli"
    source = own if own.is_dir() else content / "unpacked/docker.io"
    _copy(source, tree, lambda path: path.startswith(CLI_FILES))


def _containerd(tree: Path, _name: str, _version: str, content: Path) -> None:
    """The real containerd.io brings its own runc."""
    _copy(content / "unpacked/runc", tree, lambda path: not path.startswith("DEBIAN"))
    _copy(content / "unpacked/containerd", tree, lambda _path: True)


def _plugin(tree: Path, name: str, version: str, _content: Path) -> None:
    """A plugin by name only."""
    text = fill((FILES / "plugin.sh").read_text(encoding="utf-8"), {"version": version})
    program = name.removesuffix("-plugin")
    write(tree / f"usr/libexec/docker/cli-plugins/{program}", text, mode=0o755)


MAKERS: dict[str, Callable[[Path, str, str, Path], None]] = {
    "docker-ce": _engine,
    "docker-ce-cli": _client,
    "containerd.io": _containerd,
}


def _copy(source: Path, tree: Path, wanted: Callable[[str], bool]) -> None:
    """Copy what is wanted of an unpacked package, with its maintainer scripts."""
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source).as_posix()
        if (path.is_dir() and not path.is_symlink()) or not wanted(relative):
            continue
        if relative in {"DEBIAN/control", "DEBIAN/md5sums"}:
            continue
        target = tree / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)


def _control(name: str, version: str, content: Path) -> dict[str, str]:
    """The control fields, in the shape of docker's own packages."""
    engine, containerd = (_depends(content / "unpacked" / p) for p in ("docker.io", "containerd"))
    runc = _depends(content / "unpacked/runc")
    own: dict[str, dict[str, str]] = {
        "docker-ce": {
            "Depends": ", ".join(["containerd.io", "docker-ce-cli", *engine]),
            "Conflicts": "docker.io",
            "Replaces": "docker.io",
            "Recommends": "docker-buildx-plugin, docker-compose-plugin",
        },
        "docker-ce-cli": {"Depends": "libc6", "Conflicts": "docker-cli", "Replaces": "docker-cli"},
        "containerd.io": {
            "Depends": ", ".join(dict.fromkeys([*containerd, *runc])),
            "Provides": "containerd, runc",
            "Conflicts": "containerd, runc",
            "Replaces": "containerd, runc",
        },
    }
    return {
        "Package": name,
        "Version": version,
        "Section": "admin",
        "Priority": "optional",
        "Maintainer": KEY_USER,
        **own.get(name, {}),
        "Description": f"{name}, simulated\n Stand-in of the gpustrap lab; the programs are the distribution's.",
    }


def _depends(package: Path) -> list[str]:
    """What a package of the distribution depends on, without those the repository replaces."""
    text = (package / "DEBIAN/control").read_text(encoding="utf-8")
    found = next((line[9:] for line in text.splitlines() if line.startswith("Depends: ")), "")
    return [part.strip() for part in found.split(",") if part.split()[0] not in REPLACED]


def _sign(directory: Path, data: dict[str, Any], suites: list[Suite], architecture: str, scratch: Path) -> None:
    """Write the indexes and sign them with a key whose private part is forgotten afterwards."""
    with signing_key(scratch / "gnupg") as key:
        for suite in suites:
            root = directory / data["base"] / suite.id
            write(root / "gpg", key.public)
            text = _indexes(root, data, suite, architecture)
            write(root / "dists" / suite.codename / "InRelease", key.clearsign(text))
    write(directory / "fingerprint", key.fingerprint + "\n")


def _indexes(root: Path, data: dict[str, Any], suite: Suite, architecture: str) -> bytes:
    """Packages and the Release file over them."""
    dist, component = root / "dists" / suite.codename, data["component"]
    stanzas = [
        stanza(call("dpkg-deb", "-f", str(deb)).decode(), deb.relative_to(root).as_posix(), deb.read_bytes())
        for deb in sorted((dist / "pool" / component / architecture).glob("*.deb"))
    ]
    files = indexes(stanzas, f"{component}/binary-{architecture}/Packages")
    for name, content in files.items():
        write(dist / name, content)
    fields = {
        "Origin": data["origin"],
        "Label": data["label"],
        "Suite": suite.codename,
        "Codename": suite.codename,
        "Date": "",
        "Architectures": architecture,
        "Components": component,
        "Description": "simulated: stand-in of the gpustrap lab",
    }
    text = release(fields, files)
    write(dist / "Release", text)
    return text
