"""The stand-in installer and channel do what they stand in for: real flags, real solving, real linking."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gpustrap.lab.standins import conda

pytest.importorskip("rattler", reason="py-rattler does the work of the stand-in; pip install .")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    directory = tmp_path_factory.mktemp("conda")
    conda.build(directory, lambda _step: None)
    return directory


@pytest.fixture(scope="module")
def variables(served):
    return conda.variables(served, served.as_uri())


def call(*argv, home, rc=0):
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == rc, done.stderr
    return done.stdout + (done.stderr if rc else "")


@pytest.fixture(scope="module")
def prefix(served, variables, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    installer = Path(variables["gpustrap_conda_installer_url"].removeprefix("file://"))
    assert "(simulated)" in call("sh", str(installer), "-b", "-p", str(home / "c"), home=home)
    (home / "c" / ".condarc").write_text(f"channels:\n  - {json.dumps(variables['gpustrap_conda_channels'][0])}\n")
    return home / "c"


def test_installer_keeps_what_is_there_unless_updating(served, variables, prefix):
    installer = variables["gpustrap_conda_installer_url"].removeprefix("file://")
    said = call("sh", installer, "-b", "-p", str(prefix), home=prefix.parent, rc=1)
    assert "File or directory already exists" in said
    (prefix / "mine").touch()
    condarc = (prefix / ".condarc").read_text()
    call("sh", installer, "-b", "-u", "-p", str(prefix), home=prefix.parent)
    assert (prefix / "mine").exists()
    (prefix / ".condarc").write_text(condarc)  # as the real one, it puts its own there


def test_version_is_the_installers(variables, prefix):
    version = variables["gpustrap_conda_version"].partition("-")[0]
    assert call(str(prefix / "bin/conda"), "--version", home=prefix.parent) == f"conda {version}\n"
    found = json.loads(call(str(prefix / "bin/conda"), "info", "--json", home=prefix.parent))
    assert found["simulated"] is True
    assert found["channels"] == variables["gpustrap_conda_channels"]


def test_environment_is_solved_linked_listed_run_and_removed(prefix):
    def run(*argv, rc=0):
        return call(str(prefix / "bin/conda"), *argv, home=prefix.parent, rc=rc)

    run("create", "-y", "-n", "t", "--offline", "hello")
    found = {row["name"]: row["version"] for row in json.loads(run("list", "-n", "t", "--json"))}
    assert found == {"hello": "2.0.0", "python": "3.13.0"}
    assert "simulated" in run("run", "-n", "t", "hello")
    assert run("run", "-p", str(prefix / "envs/t"), "python", "-c", "print(6 * 7)") == "42\n"
    run("env", "remove", "-y", "-n", "t")
    assert not (prefix / "envs/t").exists()


def test_specs_and_their_absence(prefix):
    def run(*argv, rc=0):
        return call(str(prefix / "bin/conda"), *argv, home=prefix.parent, rc=rc)

    run("create", "-y", "-p", str(prefix.parent / "e"), "hello<2")
    assert json.loads(run("list", "-p", str(prefix.parent / "e"), "--json"))[0]["version"] == "1.0.0"
    assert "nosuch" in run("create", "-y", "-n", "u", "nosuch", rc=1)
    assert not (prefix / "envs/u").exists()


def test_sources_of_settings(prefix, variables):
    shown = call(str(prefix / "bin/conda"), "config", "--show-sources", home=prefix.parent)
    assert shown.startswith(f"==> {prefix}/.condarc <==\nchannels:\n  - {variables['gpustrap_conda_channels'][0]}\n")


def create(prefix, target, *words, cuda="", rc=0):
    environment = {"HOME": str(prefix.parent), "PATH": os.environ["PATH"], "CONDA_OVERRIDE_CUDA": cuda}
    argv = [str(prefix / "bin/conda"), "create", "--yes", "--quiet", "--prefix", str(target), *words]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == rc, done.stderr
    return done.stderr


def records(target):
    return [json.loads(path.read_text()) for path in (target / "conda-meta").glob("*.json")]


def test_conda_cpu_build(prefix, tmp_path):
    """Where no driver answers conda takes the build without CUDA, unless it is told of one."""
    for cuda, build in (("13.0", "cuda130"), ("12.9", "cpu"), ("", "cpu")):
        create(prefix, tmp_path / f"e{cuda}", "python=3.11", "pytorch=2.13.0", cuda=cuda)
        (found,) = (one["build"] for one in records(tmp_path / f"e{cuda}") if one["name"] == "pytorch")
        assert found.startswith(build), cuda


def test_explicit_list_is_linked_as_it_is_and_its_hashes_are_checked(prefix, tmp_path):
    create(prefix, tmp_path / "solved", "python=3.11", "pytorch=2.13.0", cuda="13.0")
    lines = sorted(f"{one['url']}#{one['sha256']}" for one in records(tmp_path / "solved"))
    (tmp_path / "list.txt").write_text("\n".join(["@EXPLICIT", *lines, ""]))
    create(prefix, tmp_path / "linked", "--file", str(tmp_path / "list.txt"))
    assert sorted(f"{one['url']}#{one['sha256']}" for one in records(tmp_path / "linked")) == lines
    if Path("/usr/bin/python3.11").exists():
        program = "import torch; print(torch.version.cuda, torch.__file__)"
        said = call(str(tmp_path / "linked/bin/python"), "-I", "-c", program, home=tmp_path)
        assert said == f"13.0 {tmp_path}/linked/lib/python3.11/site-packages/torch/__init__.py\n"
    (tmp_path / "list.txt").write_text("\n".join(["@EXPLICIT", *(f"{line[:-2]}00" for line in lines), ""]))
    said = create(prefix, tmp_path / "wrong", "--file", str(tmp_path / "list.txt"), rc=1)
    assert "Conda detected a mismatch between the expected content and downloaded content" in said
