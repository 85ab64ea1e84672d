"""The wheel: what is in it, and that it works alone, in a clean venv with a bare PATH."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTENT = ("ansible.cfg", "roles/", "playbooks/", "inventory/example/")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist of a clean clone, so that ignored and uncommitted files stay out."""
    scratch = tmp_path_factory.mktemp("wheel")
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(scratch / "clone")], check=True)
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(scratch / "dist"), str(scratch / "clone")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (built,) = (scratch / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv that holds the wheel and what it needs, and nothing of this checkout."""
    venv = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    subprocess.run([str(venv / "bin/pip"), "install", "-q", str(wheel)], check=True)
    return venv


def run(venv: Path, *argv: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Call a program of the venv with a bare PATH, as a cron job would."""
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "LANG": "C.UTF-8"} | environ
    program = [str(venv / "bin" / argv[0]), *argv[1:]]
    return subprocess.run(program, cwd=cwd, env=environ, text=True, capture_output=True)


def run_site_playbook(
    venv: Path, cwd: Path, *options: str, node: str = "gpustrap_roles: []"
) -> subprocess.CompletedProcess[str]:
    """Plain ansible-playbook with the content of the wheel; the node has no role unless its variables say so."""
    (content,) = venv.glob("lib/python*/site-packages/gpustrap/content")
    variables = f"{{ansible_connection: local, ansible_become: false, {node}}}"
    (cwd / "hosts.yml").write_text(f"all: {{hosts: {{n1: {variables}}}}}\n", encoding="utf-8")
    playbook = str(content / "playbooks/site.yml")
    config = str(content / "ansible.cfg")
    return run(venv, "ansible-playbook", "-i", "hosts.yml", playbook, *options, cwd=cwd, ANSIBLE_CONFIG=config)


def tracked() -> set[str]:
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, text=True, capture_output=True)
    return set(listing.stdout.splitlines())


def test_the_wheel_holds_the_package_and_the_content_and_nothing_else(wheel: Path) -> None:
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    package = {f.removeprefix("src/") for f in tracked() if f.startswith("src/")}
    content = {f"gpustrap/content/{f}" for f in tracked() if f.startswith(CONTENT)}
    assert names == package | content


def test_an_installed_gpustrap_answers_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    done = run(installed, "gpustrap", "--version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gpustrap ")


def test_an_installed_gpustrap_makes_a_site(installed: Path, tmp_path: Path) -> None:
    done = run(installed, "gpustrap", "init", "site", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/inventory/hosts.yml").is_file()


def test_the_installed_site_playbook_finds_its_roles(installed: Path, tmp_path: Path) -> None:
    done = run_site_playbook(installed, tmp_path, "--list-tasks")
    assert done.returncode == 0, done.stderr
    for role in ("ubuntu_server", "docker", "conda"):
        assert f"{role} : " in done.stdout


def test_an_installed_gpustrap_runs_its_playbook(installed: Path, tmp_path: Path) -> None:
    done = run_site_playbook(installed, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed=0" in done.stdout


def test_an_installed_gpustrap_plans_a_node_by_plain_ansible(installed: Path, tmp_path: Path) -> None:
    node = "gpustrap_docker: 7, docker_users: []"
    done = run_site_playbook(installed, tmp_path, "--tags", "none", node=node)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "hosts.yml:1: gpustrap_docker must be true or false; it is 7" in done.stdout + done.stderr
    assert "docker_users belongs to a role" in done.stdout + done.stderr
