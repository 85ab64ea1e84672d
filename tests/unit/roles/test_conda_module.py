"""gpustrap_conda: a half install never counts, a foreign prefix is never touched."""

from __future__ import annotations

import hashlib
import os

import pytest

INSTALLER = """set -e
while getopts bfup: o; do case $o in p) prefix=$OPTARG ;; u) update=1 ;; esac; done
[ -n "$update" ] || [ ! -e "$prefix" ]
[ "$HOME" != "{home}" ]
mkdir -p "$prefix/bin" "$prefix/envs"
{extra}
echo '{version}' >"$prefix/version"
printf '#!/bin/sh\\necho conda\\n' >"$prefix/bin/conda"
chmod 755 "$prefix/bin/conda"
"""


@pytest.fixture
def conda(run, tmp_path):
    prefix = tmp_path / "opt" / "conda"
    prefix.parent.mkdir()

    def call(version="1", extra="", sha256=None, **more):
        script = tmp_path / f"installer-{version}.sh"
        script.write_text(INSTALLER.format(home=os.environ["HOME"], version=version, extra=extra))
        arguments = {
            "installer_url": script.as_uri(),
            "installer_sha256": sha256 or hashlib.sha256(script.read_bytes()).hexdigest(),
            "version": version,
            "prefix": str(prefix),
            "minimum_free_mib": 1,
            **more,
        }
        return run("gpustrap_conda", **arguments)

    call.prefix = prefix
    return call


def test_conda_installs_once(conda):
    first = conda()
    assert first["changed"]
    assert first["present"]
    names = [claim["name"] for claim in first["claims"]]
    assert names == [f"{conda.prefix}/bin/conda", f"{conda.prefix}/.gpustrap-installer.json"]
    assert not conda()["changed"]
    assert [p.name for p in conda.prefix.parent.iterdir()] == ["conda"]


def test_conda_readable_whatever_the_mask(conda):
    before = os.umask(0o077)
    try:
        conda()
    finally:
        os.umask(before)
    assert conda.prefix.stat().st_mode & 0o777 == 0o755
    assert (conda.prefix / ".gpustrap-installer.json").stat().st_mode & 0o777 == 0o644


def test_conda_check_mode_installs_nothing(conda):
    result = conda(check=True)
    assert result["changed"]
    assert not result["present"]
    assert list(conda.prefix.parent.iterdir()) == []


def test_conda_wrong_checksum_is_not_run(conda):
    result = conda(sha256="0" * 64)
    assert "the plan says 0000" in result["msg"]
    assert list(conda.prefix.parent.iterdir()) == []


def test_conda_foreign_prefix_is_refused(conda):
    conda.prefix.mkdir()
    (conda.prefix / "mine").touch()
    result = conda()
    assert "gpustrap did not make it" in result["msg"]
    assert [p.name for p in conda.prefix.iterdir()] == ["mine"]


def test_conda_empty_directory_is_taken(conda):
    conda.prefix.mkdir()
    assert conda()["present"]


def test_conda_failed_first_install_leaves_nothing(conda):
    result = conda(extra="echo no space left; exit 3")
    assert "exit status 3: no space left" in result["msg"]
    assert list(conda.prefix.parent.iterdir()) == []


def test_conda_killed_first_install_is_made_anew(conda):
    conda.prefix.mkdir()
    (conda.prefix / "half").touch()
    (conda.prefix.parent / "conda.gpustrap-installing").write_text('{"fresh": true}')
    assert conda()["present"]
    assert not (conda.prefix / "half").exists()


def test_conda_newer_installer_updates_and_keeps_environments(conda):
    conda()
    (conda.prefix / "envs" / "work").mkdir()
    assert conda(version="2")["changed"]
    assert (conda.prefix / "version").read_text() == "2\n"
    assert (conda.prefix / "envs" / "work").is_dir()
    assert not conda(version="2")["changed"]


def test_conda_failed_update_keeps_environments_and_is_tried_again(conda):
    conda()
    (conda.prefix / "envs" / "work").mkdir()
    assert conda(version="2", extra="exit 3")["failed"]
    assert (conda.prefix.parent / "conda.gpustrap-installing").exists()
    assert (conda.prefix / "envs" / "work").is_dir()
    assert conda(version="3")["changed"]
    assert (conda.prefix / "envs" / "work").is_dir()
    assert not (conda.prefix.parent / "conda.gpustrap-installing").exists()


def test_conda_that_lost_its_program_is_repaired(conda):
    conda()
    (conda.prefix / "bin" / "conda").unlink()
    assert conda()["changed"]


def test_conda_no_space(conda):
    result = conda(minimum_free_mib=1 << 40)
    assert "MiB free" in result["msg"]
    assert list(conda.prefix.parent.iterdir()) == []


def test_conda_installer_that_hangs_is_ended(conda):
    result = conda(extra="sleep 60", timeout=1)
    assert "no end after 1 s" in result["msg"]
    assert list(conda.prefix.parent.iterdir()) == []
