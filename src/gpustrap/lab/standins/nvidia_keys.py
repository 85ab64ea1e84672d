"""Signing keys of the stand-in of NVIDIA's repositories: one for each that NVIDIA has, and what can be wrong with one.

They are made on this machine, are RSA as NVIDIA's, and are kept beside what they sign, for the user alone: a fault has
to be signed, too, and afterwards what is sound again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from gpustrap.lab.standins.apt_repository import GPG_REMEDY, Key, gpg_at, listed_fingerprint, signing_key
from gpustrap.lab.standins.parts import call, write

KeyFault = Literal["", "expired", "rotated", "sha1", "sha1-signature"]
ALGORITHM = "rsa2048"
# All keys are of that day, so that one can have expired since.
MADE = ("--faked-system-time", "20240101T000000!")
WHILE_VALID = ("--faked-system-time", "20240102T000000!")
EXPIRED_ON = "2024-02-01"
SHA1_SELF = ("--cert-digest-algo", "SHA1")


def make(place: Path, home: Path, *, sha1: bool) -> str:
    """Make a key, keep it at `place` (``.asc`` its public, ``.secret`` its private part), and give its fingerprint."""
    with signing_key(home, algorithm=ALGORITHM, options=(*MADE, *(SHA1_SELF if sha1 else ()))) as key:
        write(place.with_suffix(".asc"), key.public)
        write(
            place.with_suffix(".secret"), call(*key.gpg, "--armor", "--export-secret-keys", key.fingerprint), mode=0o600
        )
        return key.fingerprint


@contextmanager
def kept(place: Path, home: Path, fault: KeyFault = "") -> Iterator[Key]:
    """The key kept at `place`, or with `fault` what a vendor might publish in its stead.

    The fingerprint stays, but for ``rotated``: that is another key.
    """
    if fault == "rotated":
        with signing_key(home, algorithm=ALGORITHM) as other:
            yield other
        return
    home.mkdir(mode=0o700)
    gpg = gpg_at(home)
    try:
        call(*gpg, "--import", str(place.with_suffix(".secret")), remedy=GPG_REMEDY)
        fingerprint = listed_fingerprint(gpg)
        public = place.with_suffix(".asc").read_bytes()
        if fault == "expired":
            public = _signed_anew((*gpg, *WHILE_VALID), fingerprint, EXPIRED_ON)
            # The vendor's own copy is good: what it signs now is later than the copy that is published was valid.
            call(*gpg, "--quick-set-expire", fingerprint, "never")
        elif fault == "sha1":
            public = _signed_anew((*gpg, *SHA1_SELF), fingerprint, "never")
        elif fault == "sha1-signature":
            gpg = (*gpg, "--digest-algo", "SHA1")
        yield Key(fingerprint, public, gpg)
    finally:
        call("gpgconf", "--homedir", str(home), "--kill", "gpg-agent")


def _signed_anew(gpg: tuple[str, ...], fingerprint: str, expires: str) -> bytes:
    """The public key with its newest self-signature alone; with the older one, apt would take that."""
    call(*gpg, "--quick-set-expire", fingerprint, expires)
    return call(*gpg, "--armor", "--export-options", "export-minimal", "--export", fingerprint)
