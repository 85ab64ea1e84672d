"""A vendor's key file is taken only if it holds exactly the pinned primary keys, whatever form it is in."""

from __future__ import annotations

import base64
import hashlib
import shutil
import struct
import subprocess
import time
from itertools import pairwise

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_openpgp import (
    BadKeyError,
    expiry,
    fingerprint,
    keyring,
    packets,
    primary_keys,
)

pytestmark = pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg makes the keys")

# RFC 9580, appendix A.3: a version 6 certificate (its primary key packet), and its fingerprint.
V6_PRIMARY = bytes.fromhex(
    "c62a06 63877fe3 1b 00000020 f94da7bb48d60a61e567706a6587d0331999bb9d891a08242ead84543df895a3".replace(" ", "")
)
V6_FINGERPRINT = "CB186C4F0609A697E4D52DFA6C722B0C1F1E27C18A56708F6525EC27BAD9ACC9"


class Gpg:
    def __init__(self, home):
        self.home = home
        home.mkdir(mode=0o700)

    def __call__(self, *words, stdin=b""):
        command = ("gpg", "--homedir", self.home, "--batch", "--quiet", "--pinentry-mode", "loopback", *words)
        return subprocess.run(command, input=stdin, capture_output=True, check=True).stdout

    def new(self, kind="ed25519"):
        self("--passphrase", "", "--quick-generate-key", f"{kind} <k{len(self.fingerprints())}@example.org>", kind)
        return self.fingerprints()[-1]

    def fingerprints(self):
        lines = self("--with-colons", "--list-keys").decode().splitlines()
        return [b.split(":")[9] for a, b in pairwise(lines) if a.startswith("pub")]


@pytest.fixture(scope="module")
def gpg(tmp_path_factory):
    # gpg-agent's socket path must stay short
    home = tmp_path_factory.mktemp("g") / "h"
    made = Gpg(home)
    made.one, made.two = made.new(), made.new("rsa2048")
    yield made
    subprocess.run(("gpgconf", "--homedir", home, "--kill", "gpg-agent"), check=False)


@pytest.mark.parametrize("armour", [(), ("--armor",)], ids=["binary", "armoured"])
def test_exactly_the_pinned_keys(gpg, armour):
    one, both = gpg(*armour, "--export", gpg.one), gpg(*armour, "--export", gpg.one, gpg.two)
    assert keyring(one, [gpg.one]) == gpg("--export", gpg.one)
    assert sorted(primary_keys(both)) == sorted([gpg.one, gpg.two])
    assert keyring(both, [gpg.two, gpg.one])


def test_written_as_people_write_it(gpg):
    spaced = " ".join(gpg.one[i : i + 4].lower() for i in range(0, 40, 4))
    assert keyring(gpg("--export", gpg.one), [spaced])
    assert keyring(gpg("--export", gpg.one), ["0x" + gpg.one])


def test_another_key_is_refused(gpg):
    with pytest.raises(BadKeyError, match=f"not pinned: {gpg.two}; pinned but not there: {gpg.one}"):
        keyring(gpg("--export", gpg.two), [gpg.one])


def test_an_extra_key_is_refused(gpg):
    with pytest.raises(BadKeyError, match=f"not pinned: {gpg.two}"):
        keyring(gpg("--export"), [gpg.one])


def test_an_extra_armoured_block_is_refused(gpg):
    data = gpg("--armor", "--export", gpg.one) + gpg("--armor", "--export", gpg.two)
    with pytest.raises(BadKeyError, match="not pinned"):
        keyring(data, [gpg.one])


def test_no_pin_takes_nothing(gpg):
    with pytest.raises(BadKeyError):
        keyring(gpg("--export", gpg.one), [])


def test_secret_keys_and_messages_are_refused(gpg):
    secret = gpg("--passphrase", "", "--export-secret-keys", gpg.one)
    with pytest.raises(BadKeyError, match="packet of type 5"):
        keyring(secret, [gpg.one])
    with pytest.raises(BadKeyError):
        keyring(gpg("--passphrase", "", "--armor", "--export-secret-keys", gpg.one), [gpg.one])
    with pytest.raises(BadKeyError):
        keyring(b"<html>not found</html>", [gpg.one])
    with pytest.raises(BadKeyError):
        keyring(b"", [gpg.one])


def test_every_cut_is_noticed(gpg):
    data = gpg("--export", gpg.one)
    ends = {0}
    while max(ends) < len(data):
        ends.add(len(data) - len(data[max(ends) :]) + packet_length(data[max(ends) :]))
    for end in range(1, len(data)):
        if end not in ends:
            with pytest.raises(BadKeyError):
                packets(data[:end])


def packet_length(data):
    """Length of the first packet, by the old format gpg writes."""
    size = 1 << (data[0] & 3)
    return 1 + size + int.from_bytes(data[1 : 1 + size], "big")


def test_version_six():
    assert primary_keys(V6_PRIMARY) == [V6_FINGERPRINT]
    block = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + base64.b64encode(V6_PRIMARY)
    assert keyring(block + b"\n-----END PGP PUBLIC KEY BLOCK-----\n", [V6_FINGERPRINT]) == V6_PRIMARY


def test_version_four_by_hand():
    body = b"\x04" + struct.pack(">I", 1) + b"\x16" + b"key material"
    assert fingerprint(body) == hashlib.sha1(b"\x99\x00" + bytes([len(body)]) + body).hexdigest().upper()


def test_version_three_is_refused():
    with pytest.raises(BadKeyError, match="version 3"):
        fingerprint(b"\x03" + bytes(20))


def test_expiry_is_that_of_the_newest_signature_of_the_key_itself(tmp_path):
    own = Gpg(tmp_path / "k")
    key, other = own.new("rsa2048"), own.new()
    made = int.from_bytes(packets(own("--export", key))[0][1][1:5], "big")

    def expire(when, seconds):
        later = ("--faked-system-time", f"{made + seconds}!")
        own(*later, "--passphrase", "", "--quick-set-expire", key, when)
        return expiry(own("--export", "--armor", key))

    assert expire("never", 5) == 0
    moment = expire("2100-01-01", 10)
    assert time.strftime("%Y-%m-%d", time.gmtime(moment)) == "2100-01-01"
    # somebody else's signature on it says nothing about its expiry
    own("--faked-system-time", f"{made + 15}!", "--passphrase", "", "--local-user", other, "--quick-sign-key", key)
    assert expiry(own("--export", key)) == moment
    assert expire("never", 20) == 0
    subprocess.run(("gpgconf", "--homedir", own.home, "--kill", "gpg-agent"), check=False)
