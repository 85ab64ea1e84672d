"""The inventory's cache, vaults and the way the child is called."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpustrap.content import content_root
from gpustrap.errors import GpustrapError
from gpustrap.model.site import Site
from gpustrap.site import inventory
from gpustrap.site.inventory import load_nodes

HOSTS = "all: {hosts: {n1: {ansible_host: 10.0.0.1}, n2: {ansible_host: 10.0.0.2}}}\n"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "inventory" / "group_vars").mkdir(parents=True)
    (tmp_path / "inventory" / "hosts.yml").write_text(HOSTS)
    return Site(tmp_path)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    calls: list[object] = []
    real = inventory._run_child
    monkeypatch.setattr(inventory, "_run_child", lambda question: calls.append(question) or real(question))
    return calls


def variables(site: Site, text: str) -> None:
    (site.inventory / "group_vars" / "all.yml").write_text(text)


def test_nothing_changed_nothing_read_anew(site: Site, children: list[object]) -> None:
    variables(site, "zone: Europe/Berlin\ngpustrap_timezone: '{{ zone }}'\n")
    first = load_nodes(site)
    assert load_nodes(site) == first
    assert len(children) == 1
    assert first[0].request.timezone == "Europe/Berlin"
    assert [n.name for n in load_nodes(site, ["n2"])] == ["n2"]
    variables(site, "gpustrap_timezone: Europe/Paris\n")
    assert load_nodes(site)[0].request.timezone == "Europe/Paris"
    assert len(children) == 3


def test_what_rests_on_more_than_files_is_never_kept(site: Site, children: list[object], monkeypatch) -> None:
    variables(site, "gpustrap_timezone: \"{{ lookup('env', 'ZONE') }}\"\n")
    monkeypatch.setenv("ZONE", "Europe/Berlin")
    assert load_nodes(site)[0].request.timezone == "Europe/Berlin"
    monkeypatch.setenv("ZONE", "Europe/Paris")
    assert load_nodes(site)[0].request.timezone == "Europe/Paris"
    assert not (site.state / "cache").exists()


def test_the_directory_the_user_is_in_does_not_count(site: Site, tmp_path: Path, monkeypatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "group_vars").mkdir(parents=True)
    (elsewhere / "group_vars" / "all.yml").write_text("gpustrap_timezone: Europe/Berlin\n")
    (elsewhere / "yaml.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(elsewhere)
    assert load_nodes(site)[0].request.timezone is None


def test_a_failure_is_not_kept(site: Site) -> None:
    variables(site, "gpustrap_timezone: '{{ nowhere }}'\n")
    for _attempt in range(2):
        with pytest.raises(GpustrapError, match="not set"):
            load_nodes(site)
    assert not (site.state / "cache").exists()


def test_a_broken_or_unwritable_cache_is_no_error(site: Site) -> None:
    cache = site.state / "cache"
    cache.mkdir(parents=True)
    (cache / "inventory.json").write_text("{")
    assert len(load_nodes(site)) == 2
    assert (cache / "inventory.json").stat().st_mode & 0o777 == 0o600


def test_a_vault_opens_with_its_password(site: Site, tmp_path: Path, monkeypatch) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    variables(site, "gpustrap_timezone: Europe/Berlin\n")
    vault = [str(Path(sys.executable).parent / "ansible-vault"), "encrypt", "--vault-password-file", str(password)]
    subprocess.run([*vault, str(site.inventory / "group_vars" / "all.yml")], check=True, capture_output=True)
    monkeypatch.setenv("GPUSTRAP_VAULT_PASSWORD_FILE", str(password))
    assert load_nodes(site)[0].request.timezone == "Europe/Berlin"
    assert not (site.state / "cache").exists()


def test_no_site(tmp_path: Path) -> None:
    with pytest.raises(GpustrapError) as caught:
        load_nodes(Site(tmp_path))
    assert caught.value.problems[0].code == "no-site"


def test_the_checkout_is_no_site_until_it_has_an_inventory(tmp_path: Path) -> None:
    shutil.copytree(content_root() / "inventory", tmp_path / "inventory")
    shutil.copy(content_root() / "pyproject.toml", tmp_path)
    with pytest.raises(GpustrapError) as caught:
        load_nodes(Site(tmp_path))
    (problem,) = caught.value.problems
    assert (problem.code, problem.message) == ("no-site", "this is gpustrap's checkout, not a site")
    (tmp_path / "inventory/hosts.yml").write_text("all: {hosts: {n1: {}}}\n")
    assert [node.name for node in load_nodes(Site(tmp_path))] == ["n1"]


def test_a_child_that_dies_is_reported(site: Site, monkeypatch, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho it broke >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(GpustrapError) as caught:
        load_nodes(site)
    assert caught.value.problems[0].code == "inventory-unreadable"
    assert "it broke" in caught.value.problems[0].evidence


def test_the_problems_of_a_file_are_in_the_order_of_its_lines(site: Site) -> None:
    lines = [f"gpustrap_{'x' * (12 - n)}y: 1\n" for n in range(10)] + ["docker_users: []\n", "gpustrap_docker: x\n"]
    variables(site, "".join(lines))
    with pytest.raises(GpustrapError) as caught:
        load_nodes(site)
    assert [int(p.subject.rpartition(":")[2]) for p in caught.value.problems] == list(range(1, 13))
