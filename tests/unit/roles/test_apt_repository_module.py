"""gpustrap_apt_repository: key, entry and pins as one thing."""

from __future__ import annotations

import base64
import hashlib

import pytest

OLD_LINE = "deb [signed-by=/etc/apt/keyrings/docker.asc] https://example.org/docker trixie stable\n"


@pytest.fixture
def repository(run, tmp_path):
    body = b"\x04" + bytes(4) + b"\x16" + b"key"
    packet = b"\xc6" + bytes([len(body)]) + body
    fingerprint = hashlib.sha1(b"\x99\x00" + bytes([len(body)]) + body).hexdigest()
    head, tail = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n", b"\n-----END PGP PUBLIC KEY BLOCK-----\n"
    armoured = head + base64.b64encode(packet) + tail
    (tmp_path / "gpg").write_bytes(armoured)
    apt = tmp_path / "apt"
    (apt / "sources.list.d").mkdir(parents=True)

    def call(check=False, **more):
        arguments = {
            "name": "docker",
            "uri": "https://example.org/docker",
            "suite": "trixie",
            "components": ["stable"],
            "architectures": ["amd64"],
            "key_url": (tmp_path / "gpg").as_uri(),
            "key_fingerprints": [fingerprint],
            "packages": [{"name": "docker-ce", "version": "5:1"}],
            **more,
        }
        return run("gpustrap_apt_repository", check=check, patch={"APT": str(apt)}, **arguments)

    # its own signature on it, which says that it is valid for one second
    hashed = bytes((5, 9)) + bytes((0, 0, 0, 1)) + bytes((22, 33, 4)) + bytes.fromhex(fingerprint)
    signature = bytes((4, 0x13, 22, 8, 0, len(hashed))) + hashed + bytes(4)
    call.apt, call.packet, call.one_second = apt, packet, bytes((0xC2, len(signature))) + signature
    return call


def test_repository_key_entry_and_pins(repository):
    result = repository()
    assert result["changed"]
    assert (repository.apt / "keyrings/gpustrap-docker.gpg").read_bytes() == repository.packet
    source = (repository.apt / "sources.list.d/gpustrap-docker.sources").read_text()
    assert f"Signed-By: {repository.apt}/keyrings/gpustrap-docker.gpg\n" in source
    assert "Suites: trixie\nComponents: stable\nArchitectures: amd64\n" in source
    pins = (repository.apt / "preferences.d/gpustrap-docker").read_text()
    assert 'Package: *\nPin: origin "example.org"\nPin-Priority: 100\n' in pins
    assert "Package: docker-ce\nPin: version 5:1\nPin-Priority: 1001\n" in pins
    assert all(
        (repository.apt / path).stat().st_mode & 0o777 == 0o644 for path in (c["name"] for c in result["claims"])
    )
    assert not repository(key_url="file:///gone")["changed"]


def test_repository_that_is_flat_has_no_components(repository):
    repository(suite="/", components=[])
    source = (repository.apt / "sources.list.d/gpustrap-docker.sources").read_text()
    assert "Suites: /\nArchitectures: amd64\n" in source
    assert "Components" not in source


def test_repository_replaces_another_entry_with_a_backup(repository):
    old = repository.apt / "sources.list.d/docker.list"
    old.write_text(OLD_LINE)
    assert repository()["replaced"] == [str(old)]
    assert old.read_text() == f"# replaced by gpustrap: {OLD_LINE}"
    (backup,) = old.parent.glob("docker.list.*~")
    assert backup.read_text() == OLD_LINE
    assert not repository()["changed"]


def test_repository_refused_key_changes_nothing(repository):
    old = repository.apt / "sources.list.d/docker.list"
    old.write_text(OLD_LINE)
    result = repository(key_fingerprints=["A" * 40])
    assert "was refused: holds" in result["msg"]
    assert sorted(p.relative_to(repository.apt).as_posix() for p in repository.apt.rglob("*")) == [
        "sources.list.d",
        "sources.list.d/docker.list",
    ]
    assert old.read_text() == OLD_LINE


def test_repository_fetches_a_key_anew_that_has_expired(repository):
    """A vendor renews its key under the same fingerprint; the node's copy would stay invalid for ever."""
    repository()
    key = repository.apt / "keyrings/gpustrap-docker.gpg"
    key.write_bytes(repository.packet + repository.one_second)
    assert repository()["changed"]
    assert key.read_bytes() == repository.packet
    assert not repository()["changed"]


def test_repository_refuses_a_key_that_is_published_and_has_expired(repository, tmp_path):
    (tmp_path / "gpg").write_bytes(repository.packet + repository.one_second)
    result = repository()
    assert "was refused: it has been invalid since 1970-01-01; its publisher must renew it" in result["msg"]
    assert list(repository.apt.rglob("gpustrap-*")) == []


def test_repository_check_mode_writes_nothing(repository):
    assert repository(check=True)["changed"]
    assert not (repository.apt / "keyrings").exists()


def test_repository_of_several_roles_is_written_once_with_pins_of_each(repository):
    written = repository(name="nvidia", pins="cuda-toolkit")["written"]
    assert str(repository.apt / "preferences.d/gpustrap-cuda-toolkit") in written
    other = repository(name="nvidia", pins="nvidia-driver", packages=[])
    assert other["written"] == [str(repository.apt / "preferences.d/gpustrap-nvidia-driver")]
    assert not repository(name="nvidia", pins="cuda-toolkit")["changed"]


def test_repository_refuses_packages_but_for_those_allowed(repository):
    repository(refused=["nvidia-*", "libnvidia-*"], allowed=["libnvidia-container*"])
    allowed, refused = (repository.apt / "preferences.d/gpustrap-docker").read_text().split("\n\n")[-2:]
    assert allowed == 'Package: libnvidia-container*\nPin: origin "example.org"\nPin-Priority: 100'
    assert refused == 'Package: nvidia-* libnvidia-*\nPin: origin "example.org"\nPin-Priority: -1\n'
