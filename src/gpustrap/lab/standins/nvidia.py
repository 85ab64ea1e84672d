"""NVIDIA's apt repositories, simulated: the real layout, names, versions and dependencies around tiny packages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from gpustrap.lab import state
from gpustrap.lab.standins import nvidia_keys as keys
from gpustrap.lab.standins import nvidia_rpm
from gpustrap.lab.standins.apt_repository import Key, indexes, release, stanza
from gpustrap.lab.standins.deb import control_text, pack
from gpustrap.lab.standins.nvidia_data import TOOLKIT, Repository, all_repositories, base, packages
from gpustrap.lab.standins.nvidia_files import Site, files, scripts
from gpustrap.lab.standins.parts import call, write
from gpustrap.model.progress import Progress, Step

HOST = "https://developer.download.nvidia.com"
# Below the directory of the stand-ins; never served, see standins.build.
KEYS = ".keys"
FINGERPRINTS = "fingerprints.json"
INDEX = "Packages"
INDEX_FILES = (INDEX, f"{INDEX}.gz", "Release", "Release.gpg", "InRelease")


def build(directory: Path, progress: Progress, only: Callable[[Repository], bool] = lambda _one: True) -> None:
    """Make the repositories below `directory`, with the keys that sign them.

    Args:
        directory: Where ``compute/cuda/repos`` and ``libnvidia-container`` are put.
        progress: Told what is being done.
        only: Which repositories.
    """
    progress(Step("", "packaging the stand-ins of NVIDIA's repositories (simulated)"))
    wanted = [one for one in all_repositories().values() if only(one)]
    rows = {row["name"]: row for row in base()["keys"]}
    names = sorted({one.key for one in wanted})
    with state.scratch() as scratch, ExitStack() as stack:

        def make(name: str) -> str:
            sha1 = bool(rows[name].get("sha1"))
            return keys.make(_kept(directory, name), scratch / f"made-{name}", sha1=sha1)

        with ThreadPoolExecutor() as pool:  # an RSA key takes some seconds
            made = dict(zip(names, pool.map(make, names), strict=True))
        for name in names:
            key = stack.enter_context(keys.kept(_kept(directory, name), scratch / name))
            keyring = call(*key.gpg, "--export", key.fingerprint)
            for one in (one for one in wanted if one.key == name):
                _repository(directory, one, key, keyring)
    nvidia_rpm.build(directory)
    write(directory / FINGERPRINTS, json.dumps({one.name: made[one.key] for one in wanted}, indent=1) + "\n")


def variables(directory: Path, url: str) -> dict[str, object]:
    """The request variables of a site that uses it: those of mirrors of NVIDIA's repositories."""
    known: Mapping[str, str] = json.loads((directory / FINGERPRINTS).read_text(encoding="ascii"))
    own = [one for one in all_repositories().values() if one.name in known and one.architecture == "amd64"]
    root = url.rstrip("/")
    return {
        "gpustrap_nvidia_repository": f"{root}/{base()['base']}",
        "gpustrap_nvidia_key_fingerprints": {one.name: [known[one.name]] for one in own if not one.is_toolkits},
        "gpustrap_container_toolkit_repository": f"{root}/{base()['toolkit_defaults']['base']}",
        "gpustrap_container_toolkit_key_fingerprints": [known[TOOLKIT]],
    }


def kept_key(directory: Path, repository: Repository) -> Path:
    """Where the key of a repository is kept, without a suffix."""
    return _kept(directory, repository.key)


def _kept(directory: Path, name: str) -> Path:
    return directory / KEYS / name.removesuffix(".pub")


def _repository(directory: Path, repository: Repository, key: Key, keyring: bytes) -> None:
    """One flat repository: packages and indexes side by side."""
    root = directory / repository.place
    site = Site(f"{HOST}/{repository.place}", keyring)
    stanzas = []
    for package in packages(repository.name):
        control = control_text(package.fields)
        deb = pack(control, files(package, site), scripts(package))
        stanzas.append(stanza(control, f"./{package.filename}", deb))
        write(root / package.filename, deb)
    write_indexes(root, repository, stanzas, key)
    write(directory / repository.key_place, key.public)


def write_indexes(
    root: Path, repository: Repository, stanzas: list[str], key: Key, moment: float | None = None, *, lie: bool = False
) -> None:
    """The indexes of a repository, and their signatures.

    Args:
        root: Its directory.
        repository: Which.
        stanzas: Its packages.
        key: Signs.
        moment: The date of Release; now, where it is None.
        lie: Give other checksums of ``Packages`` than it has.
    """
    found = indexes(stanzas)
    said = {name: content[::-1] for name, content in found.items()} if lie else found
    text = release(_about(repository), said, moment=moment)
    signed = {"Release": text, "Release.gpg": key.detach(text), "InRelease": key.clearsign(text)}
    for name, content in {**found, **signed}.items():
        write(root / name, content)


def _about(repository: Repository) -> dict[str, str]:
    """Fields of Release; a flat repository has no suite, codename or components."""
    return {
        "Origin": repository.origin,
        "Label": repository.label,
        "Architectures": repository.architecture,
        "Date": "",
        "Description": "simulated: stand-in of the gpustrap lab",
    }
