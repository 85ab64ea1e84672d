"""Host keys are never taken silently; a refusal shows both fingerprints and the way out."""

from __future__ import annotations

import subprocess

import pytest

from gpustrap.errors import GpustrapError
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Endpoint, Secrets
from gpustrap.ssh.config import resolve
from gpustrap.ssh.known_hosts import append, fingerprint
from gpustrap.ssh.session import connect
from gpustrap.ssh.trust import NOTHING_ELSE, Trust


def host_key(sshd, tmp_path, known, trust=NOTHING_ELSE, **more):
    endpoint = sshd.endpoint(tmp_path, **more)
    with connect(endpoint, known_hosts=known, identity=sshd.key, secrets=Secrets(), trust=trust) as session:
        return session.host_key


def refusal(sshd, tmp_path, known, trust=NOTHING_ELSE):
    before = known.read_bytes() if known.exists() else None
    with pytest.raises(GpustrapError) as caught:
        host_key(sshd, tmp_path, known, trust)
    assert (known.read_bytes() if known.exists() else None) == before
    assert caught.value.exit_code is ExitCode.UNREACHABLE
    return caught.value.problems[0]


@pytest.fixture
def known(tmp_path):
    return tmp_path / "site" / "known_hosts"


@pytest.fixture
def other_key(tmp_path):
    """A key that is not the server's: what is left of its former life."""
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", tmp_path / "other"], check=True)
    from base64 import b64decode

    return b64decode((tmp_path / "other.pub").read_text().split()[1])


def test_an_unknown_key_is_refused_and_shown(sshd, tmp_path, known):
    problem = refusal(sshd, tmp_path, known)
    assert problem.code == "host-key-unknown"
    assert sshd.fingerprint() in problem.evidence
    assert f"gpustrap enroll --fingerprint {sshd.fingerprint()} n1" in problem.remedy


def test_accept_new_takes_it_once_and_for_all(sshd, tmp_path, known):
    assert host_key(sshd, tmp_path, known, Trust(accept_new=True)).how == "new"
    assert known.read_text().startswith(f"[127.0.0.1]:{sshd.port} ssh-ed25519 ")
    assert host_key(sshd, tmp_path, known).how == "known"


def test_openssh_reads_the_sites_file_too(sshd, tmp_path, known):
    host_key(sshd, tmp_path, known, Trust(accept_new=True))
    options = ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"]
    command = ["ssh", "-F", "/dev/null", *options, "-i", sshd.key, "-p", str(sshd.port), "127.0.0.1", "echo yes"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"yes\n"


def test_the_expected_fingerprint_is_taken(sshd, tmp_path, known):
    assert host_key(sshd, tmp_path, known, Trust(fingerprint=sshd.fingerprint())).how == "new"


def test_another_fingerprint_is_refused_even_if_the_key_is_known(sshd, tmp_path, known):
    sshd.trust(known)
    problem = refusal(sshd, tmp_path, known, Trust(accept_new=True, fingerprint="SHA256:" + "A" * 43))
    assert problem.code == "host-key-unexpected"
    assert sshd.fingerprint() in problem.evidence


def test_a_changed_key_is_refused_with_both_fingerprints(sshd, tmp_path, known, other_key):
    append(known, f"[127.0.0.1]:{sshd.port}", "ssh-ed25519", other_key)
    for trust in (NOTHING_ELSE, Trust(accept_new=True), Trust(fingerprint=sshd.fingerprint())):
        problem = refusal(sshd, tmp_path, known, trust)
        assert problem.code == "host-key-changed"
        assert fingerprint(other_key) in problem.evidence
        assert sshd.fingerprint() in problem.evidence
        assert "gpustrap enroll --replace n1" in problem.remedy


def test_replace_forgets_the_old_key_of_the_sites_file(sshd, tmp_path, known, other_key):
    append(known, f"[127.0.0.1]:{sshd.port}", "ssh-ed25519", other_key)
    append(known, "n2", "ssh-ed25519", other_key)
    assert host_key(sshd, tmp_path, known, Trust(replace=True)).how == "replaced"
    assert host_key(sshd, tmp_path, known).how == "known"
    assert "n2 " in known.read_text()


def test_replace_with_another_fingerprint_changes_nothing(sshd, tmp_path, known, other_key):
    append(known, f"[127.0.0.1]:{sshd.port}", "ssh-ed25519", other_key)
    problem = refusal(sshd, tmp_path, known, Trust(replace=True, fingerprint="SHA256:" + "A" * 43))
    assert problem.code == "host-key-unexpected"


def test_replace_does_not_touch_the_users_own_file(sshd, tmp_path, known, other_key):
    user = tmp_path / "user_known_hosts"
    append(user, f"[127.0.0.1]:{sshd.port}", "ssh-ed25519", other_key)
    before = user.read_bytes()
    problem = refusal(sshd, tmp_path, known, Trust(replace=True))
    assert problem.code == "host-key-changed"
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f {user}" in problem.remedy
    assert user.read_bytes() == before


def test_a_revoked_key_is_refused_whatever_is_asked(sshd, tmp_path, known):
    sshd.trust(known)
    known.write_text(known.read_text() + "@revoked * " + known.read_text().split(" ", 1)[1])
    for trust in (NOTHING_ELSE, Trust(accept_new=True, replace=True, fingerprint=sshd.fingerprint())):
        assert refusal(sshd, tmp_path, known, trust).code == "host-key-revoked"


def test_a_host_known_by_certificate_authority_only(sshd, tmp_path, known, other_key):
    append(known, "*", "ssh-ed25519", other_key)
    known.write_text("@cert-authority " + known.read_text())
    assert refusal(sshd, tmp_path, known).code == "host-certificate-unsupported"
    assert host_key(sshd, tmp_path, known, Trust(accept_new=True)).how == "new"


@pytest.mark.parametrize(("key_type", "wire"), [("rsa", "ssh-rsa"), ("ecdsa", "ecdsa-sha2-nistp256")])
def test_the_server_is_asked_for_the_key_that_is_known(sshd, tmp_path, known, key_type, wire):
    sshd.trust(known, key_type=key_type)
    key = host_key(sshd, tmp_path, known)
    assert (key.how, key.key_type) == ("known", wire)


def test_a_key_the_user_knows_is_taken_and_only_enroll_writes_it_down(sshd, tmp_path, known):
    sshd.trust(tmp_path / "user_known_hosts")
    assert host_key(sshd, tmp_path, known).how == "known"
    assert not known.exists()
    assert host_key(sshd, tmp_path, known, Trust(record=True)).how == "known"
    assert known.exists()


def test_accept_new_holds_for_jump_hosts_and_a_fingerprint_does_not(sshd, tmp_path, known):
    config = ("Match host 127.0.0.1", f"ProxyJump 127.0.0.3:{sshd.port}", "Match all")
    endpoint = sshd.endpoint(tmp_path, *config)

    def attempt(trust):
        connect(endpoint, known_hosts=known, identity=sshd.key, secrets=Secrets(), trust=trust).close()

    with pytest.raises(GpustrapError) as caught:
        attempt(Trust(fingerprint=sshd.fingerprint()))
    assert caught.value.problems[0].code == "host-key-unknown"
    assert "jump host" in caught.value.problems[0].message
    attempt(Trust(accept_new=True))
    assert len(known.read_text().splitlines()) == 2


def test_an_apostrophe_in_the_name_of_a_known_hosts_file_is_no_crash(tmp_path):
    config = tmp_path / "config"
    config.write_text(f"""Host n1\n  UserKnownHostsFile "{tmp_path}/o'brien"\n  GlobalKnownHostsFile none\n""")
    target = resolve(Endpoint(name="n1", host="n1", ssh_args=("-F", str(config))))
    assert f"{tmp_path}/o'brien" in map(str, target.known_hosts)
