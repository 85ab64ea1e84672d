"""NVIDIA's apt repositories, simulated: the real layout, names, versions and dependencies around tiny packages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from gpustrap.lab.standins.apt_repository import Key, indexes, release, signing_key, stanza
from gpustrap.lab.standins.deb import control_text, pack
from gpustrap.lab.standins.nvidia_data import TOOLKIT, Package, base, packages, repositories
from gpustrap.lab.standins.nvidia_files import Site, files, scripts
from gpustrap.lab.standins.parts import call, write
from gpustrap.model.progress import Progress, Step

HOST = "https://developer.download.nvidia.com"
DAY = 86_400
INDEX = "Packages"
EXPIRED_SINCE = ("--faked-system-time", "20240101T000000!")
KeyFault = Literal["", "expired", "rotated", "sha1", "sha1-signature"]


@dataclass(frozen=True, slots=True)
class Faults:
    """What is wrong with the repositories, for tests.

    Attributes:
        key: ``expired``: it was valid when it signed. ``rotated``: another one signs, and is published, than sites were
            told. ``sha1``: its self-signature is SHA-1, as that of 3bf863cc is. ``sha1-signature``: the indexes'.
        wrong_sums: Packages whose checksum in the index is not theirs; ``Packages`` for the index itself.
        vanished: Versions that are gone, ``name=version`` or ``name`` for all of them.
        future: Days by which the date of Release is ahead.
    """

    key: KeyFault = ""
    wrong_sums: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()
    future: int = 0


NONE = Faults()


def build(
    directory: Path, progress: Progress, faults: Faults = NONE, only: Sequence[str] = (*repositories(), TOOLKIT)
) -> None:
    """Make the repositories below `directory`.

    Args:
        directory: Where ``compute/cuda/repos`` and ``libnvidia-container`` are put.
        progress: Told what is being done.
        faults: What shall be wrong with them.
        only: Which repositories.
    """
    progress(Step("", "packaging the stand-ins of NVIDIA's repositories (simulated)"))
    with (
        TemporaryDirectory(prefix="gpustrap-standins-") as scratch,
        _keys(Path(scratch), faults.key) as (told, signing),
    ):
        keyring = call(*signing.gpg, "--export", signing.fingerprint)
        for row in base()["repositories"]:
            if row["name"] in only:
                place = f"{base()['base']}/{row['path']}"
                _repository(directory / place, row, Site(f"{HOST}/{place}", keyring), faults, signing)
                write(directory / place / row["key"], signing.public)
        if TOOLKIT in only:
            row = {"name": TOOLKIT, **base()["toolkit_repository"]}
            place = f"{row['base']}/{row['path']}"
            _repository(directory / place, row, Site("", keyring), faults, signing)
            write(directory / row["base"] / row["key"], signing.public)
        write(directory / "fingerprint", told.fingerprint + "\n")


def variables(directory: Path, url: str) -> dict[str, object]:
    """The request variables of a site that uses it: those of a mirror of the CUDA repositories."""
    fingerprint = (directory / "fingerprint").read_text(encoding="ascii").strip()
    return {
        "gpustrap_nvidia_repository": f"{url.rstrip('/')}/{base()['base']}",
        "gpustrap_nvidia_key_fingerprints": [fingerprint],
    }


@contextmanager
def _keys(scratch: Path, fault: KeyFault) -> Iterator[tuple[Key, Key]]:
    """The key that sites are told of, and the one that signs."""
    if fault == "rotated":
        with signing_key(scratch / "old") as old, signing_key(scratch / "new") as new:
            yield old, new
        return
    options: dict[str, tuple[str, ...]] = {
        "expired": EXPIRED_SINCE,
        "sha1": ("--cert-digest-algo", "SHA1"),
        "sha1-signature": ("--digest-algo", "SHA1"),
    }
    # EdDSA of gpg refuses SHA-1; RSA is what NVIDIA's keys are.
    algorithm = "rsa2048" if fault.startswith("sha1") else "ed25519"
    expires = "1m" if fault == "expired" else "never"
    with signing_key(scratch / "key", algorithm=algorithm, expires=expires, options=options.get(fault, ())) as key:
        yield key, key


def _repository(root: Path, row: dict[str, Any], site: Site, faults: Faults, key: Key) -> None:
    """One flat repository: packages and indexes side by side."""
    stanzas = []
    for package in packages(row["name"]):
        if _gone(package, faults.vanished):
            continue
        control = control_text(package.fields)
        deb = pack(control, files(package, site), scripts(package))
        stanzas.append(stanza(control, f"./{package.filename}", deb))
        write(root / package.filename, _flipped(deb) if package.name in faults.wrong_sums else deb)
    found = indexes(stanzas)
    text = release(_about(row), found, moment=time.time() + faults.future * DAY)
    for name, content in found.items():
        write(root / name, _flipped(content) if INDEX in faults.wrong_sums else content)
    write(root / "Release", text)
    write(root / "Release.gpg", key.detach(text))
    write(root / "InRelease", key.clearsign(text))


def _about(row: dict[str, Any]) -> dict[str, str]:
    """Fields of Release; a flat repository has no suite, codename or components."""
    data = base()
    return {
        "Origin": row.get("origin", data["origin"]),
        "Label": row.get("label", data["label"]),
        "Architectures": data["architecture"],
        "Date": "",
        "Description": "simulated: stand-in of the gpustrap lab",
    }


def _gone(package: Package, vanished: Sequence[str]) -> bool:
    return package.name in vanished or f"{package.name}={package.version}" in vanished


def _flipped(data: bytes) -> bytes:
    """The same size, but not the same."""
    return data[:-1] + bytes([data[-1] ^ 1])
