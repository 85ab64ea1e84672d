"""Real apt on a scratch tree: nothing of this machine is read or changed but its programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpustrap.lab.standins import nvidia
from gpustrap.lab.standins.apt_repository import indexes, stanza
from gpustrap.lab.standins.deb import control_text, pack

# What the distribution's archive has and NVIDIA's packages depend on.
ARCHIVE = {"dkms": "3.0.11-1", "infiniband-diags": "44.0-2", "libibumad3": "44.0-2"}


def silent(_step: object) -> None:
    pass


@dataclass(frozen=True)
class Done:
    rc: int
    out: str
    err: str

    @property
    def installs(self) -> dict[str, str]:
        """Name -> version of what a simulation would install."""
        return dict(re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", self.out, re.MULTILINE))

    @property
    def removes(self) -> set[str]:
        return set(re.findall(r"^Remv (\S+) ", self.out, re.MULTILINE))


@dataclass(frozen=True)
class Apt:
    """One node's apt: a tree with its own configuration, sources, preferences and status."""

    root: Path

    def __call__(self, *argv: str) -> Done:
        # 3bf863cc's stand-in has a self-signature of SHA-1, as the real one has; apt of Debian 13 would refuse it.
        policy = {"APT_SEQUOIA_CRYPTO_POLICY": str(self.root / "policy.toml")}
        environment = {**os.environ, **policy, "APT_CONFIG": str(self.root / "apt.conf"), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120)
        return Done(done.returncode, done.stdout, done.stderr)

    def simulate(self, *packages: str, verb: str = "install", options: tuple[str, ...] = ()) -> Done:
        return self("apt-get", "-s", "-o", "Debug::NoLocking=1", *options, verb, *packages)

    def candidate(self, package: str) -> str:
        found = re.search(r"Candidate: (\S+)", self("apt-cache", "policy", package).out)
        return found[1] if found else ""

    def names(self) -> set[str]:
        return set(self("apt-cache", "pkgnames").out.split())

    def unpack(self, repository: Path, name: str, version: str, architecture: str = "amd64") -> None:
        """What installing a package does to files of apt's."""
        deb = repository / f"{name}_{version}_{architecture}.deb"
        subprocess.run(("dpkg-deb", "-x", str(deb), str(self.root)), check=True)

    def installed(self, repository: Path, installs: dict[str, str]) -> None:
        """Record packages as installed."""
        text = (self.root / "status").read_text()
        for name, version in installs.items():
            found = [*repository.glob(f"{name}_{version.partition(':')[2] or version}_*.deb")]
            fields = subprocess.run(
                ("dpkg-deb", "-f", str(found[0])), capture_output=True, text=True, check=True
            ).stdout
            text += f"{fields.rstrip()}\nStatus: install ok installed\n\n"
        (self.root / "status").write_text(text)


@pytest.fixture(scope="session")
def repositories(tmp_path_factory) -> Path:
    """All repositories, sound."""
    if not all(map(shutil.which, ("apt-get", "gpg", "dpkg-deb"))):
        pytest.skip("apt, dpkg and gpg of a Debian relative are needed")
    directory = tmp_path_factory.mktemp("nvidia")
    nvidia.build(directory, silent)
    return directory


@pytest.fixture(scope="session")
def cuda(repositories) -> Callable[[str], Path]:
    """Directory of a CUDA repository: ``cuda("ubuntu2404")``."""
    return lambda name: repositories / "compute/cuda/repos" / name / "x86_64"


@pytest.fixture(scope="session")
def archive(tmp_path_factory) -> Path:
    """What stands for the distribution's archive."""
    root = tmp_path_factory.mktemp("archive")
    stanzas = []
    for name, version in ARCHIVE.items():
        control = control_text({"Package": name, "Version": version, "Architecture": "all", "Description": "test"})
        deb = pack(control, {})
        (root / f"{name}.deb").write_bytes(deb)
        stanzas.append(stanza(control, f"./{name}.deb", deb))
    (root / "Packages").write_bytes(indexes(stanzas)["Packages"])
    return root


@pytest.fixture
def make_apt(tmp_path, archive) -> Callable[..., Apt]:
    """A tree: ``make_apt(directory, key=file)``; with ``update=False`` the lists stay empty."""
    count = iter(range(100))

    def make(directory: Path, *, key: Path | None = None, update: bool = True) -> Apt:
        root = tmp_path / f"apt{next(count)}"
        for part in ("etc/apt/preferences.d", "etc/apt/sources.list.d", "etc/apt/conf.d", "lists/partial", "cache"):
            (root / part).mkdir(parents=True)
        (root / "cache/archives/partial").mkdir(parents=True)
        (root / "status").touch()
        keyring = root / "key.asc"
        keyring.write_bytes((key or next(iter(sorted(directory.glob("*.pub"))))).read_bytes())
        (root / "etc/apt/sources.list.d/cuda.sources").write_text(
            f"Types: deb\nURIs: file:{directory}\nSuites: /\nArchitectures: amd64\nSigned-By: {keyring}\n"
        )
        (root / "etc/apt/sources.list.d/archive.list").write_text(f"deb [trusted=yes] file:{archive} /\n")
        settings = {
            "Dir": root,
            "Dir::State": root,
            "Dir::State::lists": root / "lists",
            "Dir::State::status": root / "status",
            "Dir::Cache": root / "cache",
            "Dir::Etc": root / "etc/apt",
            "Dir::Etc::parts": root / "etc/apt/conf.d",
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::trusted": "/dev/null",
            "Dir::Etc::trustedparts": "/dev/null",
            "APT::Architecture": "amd64",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
        }
        (root / "policy.toml").write_text("[hash_algorithms]\nsha1.second_preimage_resistance = 2100-01-01\n")
        (root / "apt.conf").write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
        apt = Apt(root)
        if update:
            done = apt("apt-get", "update")
            assert done.rc == 0, done.err
        return apt

    return make
