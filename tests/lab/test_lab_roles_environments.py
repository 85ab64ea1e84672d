"""Role ml_environments on a node: built once, for ordinary users, and repaired; what is half there never counts."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import subprocess
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uv
import yaml

from gpustrap.lab.manager import LabNode, NodeSpec

PREFIX = "/opt/gpustrap/envs"
UV = "uv-0.0.1-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
INDEX = "http://127.0.0.1:8000/simple"
SERVE = "systemd-run --unit=index python3 -m http.server -b 127.0.0.1 -d /srv/index 8000"
PROFILE = "/etc/profile.d/gpustrap-environments.sh"
HELLO = "def hello():\n    return 'hello'\n"


def wheel(name: str, version: str, code: str = HELLO) -> tuple[str, bytes]:
    """The name and content of a wheel with one module."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = {version!r}\n{code}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}\n"
        for path, text in files.items()
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl", buffer.getvalue()


def uv_wheel() -> tuple[str, bytes]:
    """The real uv."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.write(uv.find_uv_bin(), "uv-0.0.1.data/scripts/uv")
    return UV, buffer.getvalue()


def index(wheels: list[tuple[str, bytes]]) -> bytes:
    """A package index as an archive."""
    pages: dict[str, str] = {}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:

        def add(path: str, content: bytes) -> None:
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))

        for name, content in wheels:
            project = name.partition("-")[0]
            digest = hashlib.sha256(content).hexdigest()
            pages[project] = pages.get(project, "") + f'<a href="{name}#sha256={digest}">{name}</a>\n'
            add(f"simple/{project}/{name}", content)
        for project, page in pages.items():
            add(f"simple/{project}/index.html", f"<!DOCTYPE html>\n{page}".encode())
    return buffer.getvalue()


@dataclass
class Target:
    """A node with an index of its own, and a site whose lock has its environments."""

    node: LabNode
    site: Path
    play_site: Any
    hashes: dict[str, str]
    python: str = ""
    uv_sha256: str = ""

    def environment(self, name: str, version: str, **more: Any) -> dict[str, Any]:
        """An environment of the lock; its lock file lies in the site."""
        text = f"# Made by this test\ntiny=={version} --hash=sha256:{self.hashes[f'tiny-{version}-py3-none-any.whl']}\n"
        file = f"environments/{name}.txt"
        (self.site / "environments").mkdir(exist_ok=True)
        (self.site / file).write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        base = {"name": name, "framework": "python", "python": self.python, "modules": ["tiny"], "variant": ""}
        base |= {"version": "", "engine": "uv", "interpreter": "distribution", "users": "all", "jupyter": False}
        base |= {"index": "", "cuda": "", "size": 0, "lock": file, "digest": digest}
        return {**base, **more}

    def apply(self, *environments: dict[str, Any], check: bool = False) -> Any:
        """Run site.yml, as plain Ansible does with a lock."""
        uv_ = {"version": "0.0.1", "file": UV, "sha256": self.uv_sha256}
        variables = {
            "ml_environments_environments": list(environments),
            "ml_environments_uv": uv_,
            "ml_environments_index": INDEX,
        }
        lock = {"version": 1, "nodes": {self.node.name: {"roles": {"ml_environments": variables}}}}
        (self.site / "gpustrap.lock.yml").write_text(yaml.safe_dump(lock))
        options = [f"--inventory={self.site}/gpustrap.lock.yml", *(["--check", "--diff"] if check else [])]
        return self.play_site(self.site / "hosts.yml", *options)

    def sh(self, command: str, *, stdin: bytes | None = None, rc: int = 0, user: str = "root") -> str:
        done = self.node.exec(command, stdin=stdin, user=user)
        assert done.returncode == rc, done.stdout + done.stderr
        return str(done.stdout.strip())

    def version(self) -> str:
        """What an ordinary user's login shell finds."""
        return self.sh("sh -lc \"gpuenv torch && python -c 'import tiny; print(tiny.version)'\"", user=self.node.user)


@pytest.fixture(scope="module")
def target(lab, play_site, tmp_path_factory) -> Target:
    """Debian 13 with a package index that it serves itself."""
    directory = tmp_path_factory.mktemp("environments")
    [node] = lab.up([NodeSpec("roles-e", "debian13")])
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / "key"], check=True)
    wheels = [uv_wheel(), *(wheel("tiny", f"{number}.0") for number in (1, 2, 3))]
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in wheels}
    made = Target(node, directory, play_site, hashes, uv_sha256=hashes[UV])
    home = f"/home/{node.user}/.ssh"
    made.sh(
        f"install -d -o {node.user} -m 700 {home} && cat >{home}/authorized_keys && chown {node.user} {home}/*",
        stdin=(directory / "key.pub").read_bytes(),
    )
    made.sh("mkdir /srv/index && tar -xzC /srv/index", stdin=index(wheels))
    made.sh(SERVE)
    made.python = made.sh("python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'")
    host = {
        "ansible_host": node.address,
        "ansible_user": node.user,
        "ansible_become_password": node.password,
        "ansible_ssh_private_key_file": str(directory / "key"),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={directory}/known -o StrictHostKeyChecking=accept-new",
    }
    (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {node.name: host}}}))
    made.sh("sha256sum /root/.bashrc /etc/profile /usr/lib/python3*/EXTERNALLY-MANAGED >/root/before")
    return made


@pytest.mark.slow
def test_check_mode_on_a_bare_node_says_what_would_follow(target):
    done = target.apply(target.environment("torch", "1.0"), check=True)
    assert done.rc == 0, done.text
    assert "would follow: environment torch built (python, new)" in done.text
    assert target.sh(f"ls {PREFIX} {PROFILE}", rc=2) == ""


def test_builds_for_ordinary_users_and_changes_nothing_the_second_time(target):
    torch = target.environment("torch", "1.0")
    first = target.apply(torch)
    assert first.rc == 0, first.text
    assert target.version() == "1.0"
    again = target.apply(torch)
    assert (again.rc, again.counts["changed"]) == (0, 0), again.text
    assert (
        target.sh(f"{PREFIX}/torch/current/bin/python -c 'import tiny; print(tiny.hello())'", user="nobody") == "hello"
    )
    target.sh("test -e /usr/include/python3*/Python.h && command -v gcc")
    target.sh("sha256sum --quiet --check /root/before")  # pep668: the system's Python and its marker, everybody's shell


@pytest.mark.slow
def test_a_new_lock_is_switched_to_and_the_one_before_stays(target):
    target.apply(target.environment("torch", "1.0"))
    before = target.sh(f"readlink {PREFIX}/torch/current")
    done = target.apply(target.environment("torch", "2.0"))
    assert done.rc == 0, done.text
    assert target.version() == "2.0"
    assert target.sh(f"readlink {PREFIX}/torch/previous") == before


@pytest.mark.slow
def test_index_gone_or_power_lost_the_old_one_keeps_working(target):
    target.apply(target.environment("torch", "1.0"))
    target.sh("systemctl stop index")
    failed = target.apply(target.environment("torch", "3.0"))
    assert "environment torch was not built; the one in use was not touched" in failed.text
    assert INDEX in failed.text
    assert target.version() == "1.0"
    target.sh(f"mkdir {PREFIX}/torch/ffffffffffffffff && touch {PREFIX}/torch/ffffffffffffffff/half")
    target.sh(SERVE)
    done = target.apply(target.environment("torch", "3.0"))
    assert done.rc == 0, done.text
    assert target.version() == "3.0"
    assert target.sh(f"ls {PREFIX}/torch | grep -c ffff", rc=1) == "0"


@pytest.mark.slow
def test_a_package_changed_by_hand_is_built_anew(target):
    torch = target.environment("torch", "1.0")
    target.apply(torch)
    target.sh(f"rm -r {PREFIX}/torch/current/lib/python3*/site-packages/tiny*")
    done = target.apply(torch)
    assert done.counts["changed"] == 1, done.text
    assert target.version() == "1.0"
    marker = json.loads(target.sh(f"cat {PREFIX}/torch/current/.gpustrap.json"))
    assert (marker["name"], marker["digest"]) == ("torch", torch["digest"])


@pytest.mark.slow
def test_disk_full_stops_before_anything(target):
    target.sh("mkdir -p /srv/small && mount -t tmpfs -o size=20m tmpfs /srv/small")
    try:
        torch = target.environment("torch", "1.0")
        lock = {"ml_environments_prefix": "/srv/small", "ml_environments_environments": [torch]}
        stopped = target.play_site(
            target.site / "hosts.yml",
            f"--inventory={target.site}/gpustrap.lock.yml",
            f"--extra-vars={json.dumps(lock)}",
        )
        assert re.search(r"/srv/small: \d+ MiB free, 64 needed", stopped.text)
    finally:
        target.sh("umount /srv/small")
