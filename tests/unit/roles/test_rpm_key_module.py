"""gpustrap_rpm_key_file: a key for dnf only if it is the pinned one."""

from __future__ import annotations

import base64
import hashlib

import pytest


def key(word: bytes) -> tuple[bytes, str]:
    """A packet of a public key, armoured, and its fingerprint."""
    body = b"\x04" + bytes(4) + b"\x16" + word
    packet = b"\xc6" + bytes([len(body)]) + body
    armoured = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + base64.b64encode(packet)
    fingerprint = hashlib.sha1(b"\x99\x00" + bytes([len(body)]) + body).hexdigest()
    return armoured + b"\n-----END PGP PUBLIC KEY BLOCK-----\n", fingerprint


@pytest.fixture
def keep(run, tmp_path):
    data, fingerprint = key(b"key")
    (tmp_path / "gpgkey").write_bytes(data)

    def call(check=False, url="", fingerprints=(fingerprint,)):
        where = url or (tmp_path / "gpgkey").as_uri()
        path = str(tmp_path / "pki/RPM-GPG-KEY")
        return run("gpustrap_rpm_key_file", check=check, path=path, url=where, fingerprints=list(fingerprints))

    call.path, call.data = tmp_path / "pki/RPM-GPG-KEY", data
    return call


def test_the_pinned_key_is_written_as_it_is_published_and_fetched_once(keep):
    assert keep(check=True)["changed"]
    assert not keep.path.exists()
    result = keep()
    assert result["changed"]
    assert keep.path.read_bytes() == keep.data
    assert keep.path.stat().st_mode & 0o777 == 0o644
    assert not keep(url="file:///gone")["changed"]


def test_another_key_is_refused_and_nothing_written(keep):
    assert "was refused: holds" in keep(fingerprints=["A" * 40])["msg"]
    assert not keep.path.exists()


def test_a_key_that_was_changed_on_the_node_is_put_back(keep):
    keep()
    keep.path.write_bytes(key(b"other")[0])
    assert keep()["changed"]
    assert keep.path.read_bytes() == keep.data


def test_a_key_that_cannot_be_had_says_where(keep):
    assert "the key at file:///gone cannot be had" in keep(url="file:///gone")["msg"]
