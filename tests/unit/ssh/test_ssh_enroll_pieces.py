"""What enroll is made of, against a real sshd and a shell: the survey, the site's key, and its installation."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpustrap.errors import GpustrapError
from gpustrap.model.node import Access, Escalation, Secrets
from gpustrap.model.site import Site
from gpustrap.ssh import identity
from gpustrap.ssh.config import Target
from gpustrap.ssh.root_shell import allow_passwordless_sudo, run_as_root
from gpustrap.ssh.shell import Completed
from gpustrap.ssh.sudo import Dialogue
from gpustrap.ssh.survey import survey


class Shell:
    """A session without SSH: runs commands here, in a home directory and with start-up noise of its own."""

    def __init__(self, home, noise: str = "", path: str = "/usr/bin:/bin") -> None:
        self.target = Target(node="n1", host="n1", port=22, user="me", key_name="n1")
        self.home, self.noise, self.path = home, noise, path

    def run(self, command, *, stdin=b"", timeout=60, pty=False, **_more):
        environment = {"HOME": str(self.home), "PATH": self.path}
        done = subprocess.run(
            ["sh", "-c", command], input=stdin, env=environment, capture_output=True, timeout=timeout, check=False
        )
        return Completed(done.returncode, self.noise.encode() + done.stdout, done.stderr)


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def fake(tmp_path):
    """Puts programs on the shell's PATH before the real ones."""
    directory = tmp_path / "bin"
    directory.mkdir()

    def make(**programs: str) -> str:
        for name, text in programs.items():
            file = directory / name.replace("_", ".")
            file.write_text(f"#!/bin/sh\n{text}\n")
            file.chmod(0o755)
        return f"{directory}:/usr/bin:/bin"

    return make


@pytest.mark.parametrize("noise", ["", "Welcome to n1!\n", "no newline", "uid=1000\nsudo_rc=0\n"])
def test_a_survey_whatever_the_shell_prints_before(home, fake, noise):
    path = fake(
        id='[ "$1" = -u ] && echo 1000 || echo me', sudo='[ "$1" = --version ] && echo Sudo version 1.9; exit 0'
    )
    found = survey(Shell(home, noise, path), "/usr/bin/python3")
    assert (found.root, found.user, found.sudo_free, found.become_exe) == (False, "me", True, "sudo")
    assert found.python_usable
    assert found.noise == noise.strip()


def test_a_survey_of_sudo_rs_takes_the_classic_one_beside_it(home, fake):
    text = '[ "$1" = --version ] && echo sudo-rs 0.2.8 && exit\n'
    text += 'echo "sudo: interactive authentication is required" >&2; exit 1'
    found = survey(Shell(home, path=fake(sudo=text, sudo_ws="exit 0")), "/usr/bin/python3")
    assert found.become_exe == "sudo.ws"
    assert not found.sudo_free


@pytest.mark.parametrize(
    ("python", "usable"),
    [("echo 3.7.9", False), ("echo 3.8.0", True), ("echo 3.14.1", True), ("echo oh; exit 1", False)],
)
def test_the_age_of_python(home, fake, python, usable):
    path = fake(py=python).partition(":")[0]
    assert survey(Shell(home), f"{path}/py").python_usable is usable


def test_a_login_that_cannot_run_a_shell(home):
    class Menu(Shell):
        def run(self, command, **_more):
            return Completed(0, b"Press 1 for the router menu", b"")

    with pytest.raises(GpustrapError) as caught:
        survey(Menu(home), "/usr/bin/python3")
    assert caught.value.problems[0].code == "no-posix-shell"
    assert "router menu" in caught.value.problems[0].evidence


def test_the_sites_key_is_made_once_and_is_the_users_alone(tmp_path):
    site = Site(tmp_path / "rack1")
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _n: identity.ensure_key(site), range(8))) == {site.ssh_key}
    before = site.ssh_key.read_bytes()
    assert site.ssh_key.stat().st_mode & 0o777 == 0o600
    public = site.ssh_key.with_name("id_ed25519.pub")
    assert public.read_text().endswith(" gpustrap site rack1\n")
    derived = subprocess.run(["ssh-keygen", "-y", "-f", site.ssh_key], capture_output=True, check=True, text=True)
    assert derived.stdout.split()[:2] == public.read_text().split()[:2]
    public.unlink()
    identity.ensure_key(site)
    assert site.ssh_key.read_bytes() == before
    assert public.exists()
    assert len(list(site.ssh_key.parent.iterdir())) == 2


@pytest.mark.parametrize(
    "before", [None, "", "# mine\n", "ssh-rsa AAAA me", 'from="10.0.0.1" ssh-rsa AAAA me\n\n', "# {blob}\n"]
)
def test_installing_the_key_adds_one_line_and_touches_no_other(home, tmp_path, before):
    key = identity.ensure_key(Site(tmp_path / "site"))
    line = identity.public_line(key, "site")
    file = home / ".ssh" / "authorized_keys"
    if before is not None:
        before = before.format(blob=line.split()[1])
        file.parent.mkdir(mode=0o775)
        file.write_text(before)
        file.chmod(0o664)
    for _ in range(2):
        identity.install_key(Shell(home), key, "site")
        text = file.read_text()
        assert text.startswith(before or "")
        assert text.splitlines() == [*(before or "").splitlines(), line]
    assert file.stat().st_mode & 0o022 == 0
    assert file.parent.stat().st_mode & 0o022 == 0


def test_a_key_that_is_there_with_options_is_not_added_again(home, tmp_path):
    key = identity.ensure_key(Site(tmp_path / "site"))
    file = home / ".ssh" / "authorized_keys"
    file.parent.mkdir()
    file.write_text(f'from="10.0.0.1" {identity.public_line(key, "site")}\n')
    identity.install_key(Shell(home), key, "site")
    assert len(file.read_text().splitlines()) == 1


def test_a_key_that_cannot_be_installed(home, tmp_path):
    (home / ".ssh").write_text("a file, not a directory")
    with pytest.raises(GpustrapError) as caught:
        identity.install_key(Shell(home), identity.ensure_key(Site(tmp_path / "site")), "site")
    assert caught.value.problems[0].code == "key-install-failed"


def test_a_user_name_that_could_break_sudoers_is_refused(home):
    with pytest.raises(GpustrapError) as caught:
        allow_passwordless_sudo(Shell(home), Access(Escalation.ROOT), Secrets(), "me ALL=(ALL) ALL\n#")
    assert caught.value.problems[0].code == "passwordless-sudo-failed"


def test_a_script_as_root_gives_its_own_output(home):
    done = run_as_root(Shell(home, "noise\n"), Access(Escalation.ROOT), Secrets(), "echo 'a b'; exit 3")
    assert (done.rc, done.stdout) == (3, b"a b\n")


def test_sudo_quoting_the_command_is_not_taken_for_its_beginning(home, fake):
    path = fake(sudo='echo "sudo: $*"; exit 1')
    with pytest.raises(GpustrapError) as caught:
        run_as_root(Shell(home, path=path), Access(Escalation.NOPASSWD), Secrets(), "true")
    assert caught.value.problems[0].code == "sudo-failed"


def test_on_a_terminal_the_password_waits_until_it_is_asked_for():
    talk = Dialogue("secret", b"READY", terminal=True)
    prompt = talk.prompt.encode()
    assert talk(bytearray(b"motd"), bytearray()) == b""
    assert talk(bytearray(prompt), bytearray()) == b"secret\n"
    assert talk(bytearray(prompt), bytearray()) == b""
    assert not talk.wrong
    assert talk(bytearray(prompt * 2), bytearray()) == b"\x04"
    assert talk.wrong
    assert talk(bytearray(prompt * 2), bytearray()) == b""
