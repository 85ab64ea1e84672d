"""known_hosts read as OpenSSH reads it (ssh-keygen is the oracle), appended under a lock, never rewritten unasked."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpustrap.ssh import known_hosts as kh
from gpustrap.ssh.known_hosts import Standing

TYPE = "ssh-ed25519"


def blob(n: int) -> bytes:
    head = len(TYPE).to_bytes(4, "big") + TYPE.encode()
    return head + (32).to_bytes(4, "big") + n.to_bytes(32, "big")


def line(hosts: str, n: int = 1, marker: str = "") -> str:
    return f"{marker} {hosts} {TYPE} {base64.b64encode(blob(n)).decode()} comment\n".lstrip()


def standing(tmp_path, text: str, name: str, n: int = 1, fallback: str = "") -> Standing:
    file = tmp_path / "known_hosts"
    file.write_text(text)
    return kh.look_up([file], name, fallback, blob(n)).standing


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("", "n1", Standing.UNKNOWN),
        (line("n1"), "n1", Standing.KNOWN),
        (line("N1"), "n1", Standing.KNOWN),
        (line("n1", 2), "n1", Standing.CHANGED),
        (line("n1", 2) + line("n1"), "n1", Standing.KNOWN),
        (line("n2,n1,10.0.0.1"), "10.0.0.1", Standing.KNOWN),
        (line("*.example.org"), "a.example.org", Standing.KNOWN),
        (line("*.example.org,!a.example.org"), "a.example.org", Standing.UNKNOWN),
        (line("!a.example.org,*.example.org"), "a.example.org", Standing.UNKNOWN),
        (line("n?"), "n1", Standing.KNOWN),
        (line("n?"), "n12", Standing.UNKNOWN),
        (line("[n1]:2222"), "[n1]:2222", Standing.KNOWN),
        (line("[n1]:2222"), "n1", Standing.UNKNOWN),
        (line("n1") + line("*", marker="@revoked"), "n1", Standing.REVOKED),
        (line("*", 2, marker="@revoked"), "n1", Standing.UNKNOWN),
        (line("n2", marker="@revoked") + line("n1"), "n1", Standing.KNOWN),
        (line("*", 9, marker="@cert-authority"), "n1", Standing.CERTIFICATE),
        (line("*", 1, marker="@cert-authority"), "n1", Standing.CERTIFICATE),  # a CA's key is no host key
        (line("*", 9, marker="@cert-authority") + line("n1"), "n1", Standing.KNOWN),
        (line("n1", marker="@other"), "n1", Standing.UNKNOWN),
        ("# n1 comment\n\nn1\nn1 ssh-ed25519 !!!\n" + line("n1"), "n1", Standing.KNOWN),
        (line("n1").rstrip("\n"), "n1", Standing.KNOWN),
        (line("n1").replace("\n", "\r\n"), "n1", Standing.KNOWN),
        ("|1|short\n|2|a|b x y\n\xff\n" + line("n1"), "n1", Standing.KNOWN),
    ],
)
def test_standing(tmp_path, text, name, expected):
    assert standing(tmp_path, text, name) is expected


def test_the_name_without_port_can_confirm_a_key_but_not_accuse_it(tmp_path):
    assert standing(tmp_path, line("n1"), "[n1]:2222", fallback="n1") is Standing.KNOWN
    assert standing(tmp_path, line("n1", 2), "[n1]:2222", fallback="n1") is Standing.UNKNOWN


def test_lines_hashed_by_openssh(tmp_path):
    file = tmp_path / "known_hosts"
    file.write_text(line("n1") + line("[n2]:2222", 2))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    assert "n1" not in file.read_text()
    assert kh.look_up([file], "n1", "", blob(1)).standing is Standing.KNOWN
    assert kh.look_up([file], "[n2]:2222", "", blob(1)).standing is Standing.CHANGED
    assert kh.look_up([file], "n3", "", blob(1)).standing is Standing.UNKNOWN


ALPHABET = st.text("ab.*?", min_size=1, max_size=5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    patterns=st.lists(st.tuples(st.sampled_from(["", "", "!"]), ALPHABET), min_size=1, max_size=3),
    name=st.text("ab.", min_size=1, max_size=5),
)
def test_patterns_match_as_in_openssh(tmp_path, patterns, name):
    hosts = ",".join(mark + text for mark, text in patterns)
    file = tmp_path / "known_hosts"
    file.write_text(line(hosts))
    found = subprocess.run(["ssh-keygen", "-F", name, "-f", file], capture_output=True, check=False).returncode == 0
    assert kh.matches(hosts, name) is found


def test_the_sites_file_and_the_users_count_together(tmp_path):
    site, user = tmp_path / "site", tmp_path / "user"
    user.write_text(line("n1"))
    assert kh.look_up([site, user], "n1", "", blob(1)).standing is Standing.KNOWN
    site.write_text(line("n1", 1, marker="@revoked"))
    assert kh.look_up([site, user], "n1", "", blob(1)).standing is Standing.REVOKED


def test_append_keeps_what_is_there_and_says_nothing_twice(tmp_path):
    file = tmp_path / "new" / "known_hosts"
    file.parent.mkdir()
    file.write_text("# mine\n" + line("n2").rstrip("\n"))  # no newline at the end
    kh.append(file, "n1", TYPE, blob(1))
    kh.append(file, "n1", TYPE, blob(1))
    assert file.read_text().startswith("# mine\n" + line("n2"))
    assert len(file.read_text().splitlines()) == 3
    assert kh.look_up([file], "n1", "", blob(1)).standing is Standing.KNOWN


def test_a_new_file_is_the_users_alone(tmp_path):
    file = tmp_path / "site" / "known_hosts"
    kh.append(file, "n1", TYPE, blob(1))
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


APPEND = """
import sys
from pathlib import Path
from gpustrap.ssh import known_hosts
for n in range(int(sys.argv[2]), int(sys.argv[2]) + 25):
    known_hosts.append(Path(sys.argv[1]), f"n{n}", "ssh-ed25519", b"key of %d" % n)
"""


def test_many_processes_append_without_losing_a_line(tmp_path):
    file = tmp_path / "known_hosts"
    workers = [subprocess.Popen([sys.executable, "-c", APPEND, file, str(n)]) for n in range(0, 100, 25)]
    assert [worker.wait(timeout=60) for worker in workers] == [0] * 4
    assert len(file.read_text().splitlines()) == 100
    assert all(kh.look_up([file], f"n{n}", "", b"key of %d" % n).standing is Standing.KNOWN for n in range(100))


def test_forget_takes_out_one_machine_and_keeps_a_backup(tmp_path):
    file = tmp_path / "known_hosts"
    old = "# mine\n" + line("n1") + line("n1,n2", 2) + line("n*", 3) + line("n1", 4, marker="@revoked") + line("n3")
    file.write_text(old)
    assert kh.forget(file, "n1") == 2
    expected = "# mine\n" + line("n2", 2) + line("n*", 3) + line("n1", 4, marker="@revoked") + line("n3")
    assert file.read_text() == expected
    assert (tmp_path / "known_hosts.old").read_text() == old
    assert kh.forget(file, "n9") == 0


def test_forget_finds_hashed_lines(tmp_path):
    file = tmp_path / "known_hosts"
    file.write_text(line("n1") + line("n2"))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    assert kh.forget(file, "n1") == 1
    assert kh.look_up([file], "n1", "", blob(1)).standing is Standing.UNKNOWN
    assert kh.look_up([file], "n2", "", blob(1)).standing is Standing.KNOWN


def test_fingerprint_is_openssh_own(sshd):
    shown = subprocess.run(
        ["ssh-keygen", "-lf", sshd.root / "host_rsa.pub"], capture_output=True, check=True, text=True
    )
    assert sshd.fingerprint("rsa") == shown.stdout.split()[1]
