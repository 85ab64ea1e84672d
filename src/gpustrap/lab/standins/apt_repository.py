"""What the stand-ins of apt repositories have in common: a key of this machine, indexes, signatures."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from gpustrap.lab.standins.parts import call, lines

KEY_USER = "gpustrap lab (simulated) <lab@localhost>"
GPG_REMEDY = "apt-get install --no-install-recommends gpg"


@dataclass(frozen=True, slots=True)
class Key:
    """A signing key; its private part lives as long as the block of `signing_key`.

    Attributes:
        fingerprint: Of its primary key.
        public: The public key, armored.
        gpg: How gpg is called with it.
    """

    fingerprint: str
    public: bytes
    gpg: tuple[str, ...]

    def clearsign(self, data: bytes) -> bytes:
        """The data and its signature, as ``InRelease`` has them."""
        return call(*self.gpg, "--local-user", self.fingerprint, "--clearsign", stdin=data)

    def detach(self, data: bytes) -> bytes:
        """The signature alone, as ``Release.gpg`` has it."""
        return call(*self.gpg, "--local-user", self.fingerprint, "--armor", "--detach-sign", stdin=data)


def gpg_at(home: Path) -> tuple[str, ...]:
    """How gpg is called with the keys in `home`, asking nobody."""
    words = ("--batch", "--quiet", "--no-tty", "--pinentry-mode", "loopback", "--passphrase", "")
    return ("gpg", "--homedir", str(home), *words)


def listed_fingerprint(gpg: Sequence[str]) -> str:
    """The fingerprint of the first key there."""
    listed = call(*gpg, "--with-colons", "--list-keys", remedy=GPG_REMEDY).decode()
    return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))


@contextmanager
def signing_key(home: Path, *, algorithm: str = "ed25519", options: Sequence[str] = ()) -> Iterator[Key]:
    """A new key whose private part is forgotten with `home`.

    Args:
        home: A directory that does not exist yet.
        algorithm: Of gpg's ``--quick-generate-key``.
        options: Further options of gpg, used for making the key and for signing.

    Raises:
        GpustrapError: This machine lacks gpg.
    """
    home.mkdir(mode=0o700)
    gpg = (*gpg_at(home), *options)
    try:
        call(*gpg, "--quick-generate-key", KEY_USER, algorithm, "sign", "never", remedy=GPG_REMEDY)
        fingerprint = listed_fingerprint(gpg)
        yield Key(fingerprint, call(*gpg, "--armor", "--export", fingerprint), gpg)
    finally:
        call("gpgconf", "--homedir", str(home), "--kill", "gpg-agent")


def stanza(control: str, filename: str, deb: bytes) -> str:
    """A package's entry of the index ``Packages``; `filename` is relative to the repository's URI."""
    digest = hashlib.sha256(deb).hexdigest()
    return f"{control.rstrip()}\nFilename: {filename}\nSize: {len(deb)}\nSHA256: {digest}\n"


def indexes(stanzas: Iterable[str], name: str = "Packages") -> dict[str, bytes]:
    """``Packages`` and ``Packages.gz`` by their path below the Release file."""
    packages = "\n".join(stanzas).encode()
    return {name: packages, f"{name}.gz": gzip.compress(packages, mtime=0)}


def release(fields: Mapping[str, str], files: Mapping[str, bytes], *, moment: float | None = None) -> bytes:
    """A Release file.

    Args:
        fields: Its fields, in order; an empty ``Date`` is filled in.
        files: What it has checksums of, by path.
        moment: Its date, in seconds since 1970; now, where it is None.
    """
    sums = "".join(f"\n {hashlib.sha256(content).hexdigest()} {len(content)} {name}" for name, content in files.items())
    given = {name: value or formatdate(moment, usegmt=True) for name, value in fields.items()}
    return lines(*given.items(), ("SHA256", sums)).encode()
