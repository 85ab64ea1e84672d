"""What cuts a build off: a kill at any point, a full disk, two runs at once. The environment in use keeps working."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpustrap.content import PACKAGE

PLUGINS = PACKAGE / "ansible_plugins"
# The module as a process of its own, ended by SIGKILL when it gets to a certain function.
DRIVER = """
import importlib, importlib.util, json, os, sys
import ansible.module_utils
from ansible.module_utils.testing import patch_module_args
plugins, where, arguments = sys.argv[1], sys.argv[2], json.load(sys.stdin)
ansible.module_utils.__path__.append(plugins + "/module_utils")
spec = importlib.util.spec_from_file_location("gpustrap_environments", plugins + "/modules/gpustrap_environments.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
if where:
    name, _, function = where.rpartition(".")
    owner = importlib.import_module("ansible.module_utils." + name) if name else module
    assert hasattr(owner, function)
    setattr(owner, function, lambda *_arguments: os.kill(os.getpid(), 9))
with patch_module_args(arguments):
    module.main()
"""
POINTS = [
    "check_room",
    "gpustrap_environment_build._install",
    "gpustrap_environment_build._try",
    "gpustrap_environment_build.complete",
    "switch",
    "prune",
]


@contextmanager
def started(site, *environments, where=""):
    """The module, running."""
    arguments = site.arguments(*environments, _ansible_check_mode=False)
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(PLUGINS), where], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdin.write(json.dumps(arguments))
        process.stdin.close()
        yield process
        process.kill()


def wait(reached, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "it never got there"
        time.sleep(0.05)


def processes(site) -> list[str]:
    """Commands that run with something of this site, this test left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(site.root) in words:
            found.append(words)
    return found


@pytest.fixture
def two(site):
    """Version 1 in use, and what version 2 is built from."""
    old = site.environment("torch", site.index.wheel("tiny", "1.0"))
    assert site.apply(old)["changed"]
    return old, site.environment("torch", site.index.wheel("tiny", "2.0"))


def finished(site, old, new) -> None:
    """A later run ends it, and leaves nothing half-built."""
    result = site.apply(new)
    assert "failed" not in result, result
    assert site.version() == "2.0"
    assert site.links() == {"current": new["digest"][:16], "previous": old["digest"][:16]}
    assert site.directories() == sorted([old["digest"][:16], new["digest"][:16]])
    assert sorted(p.name for p in site.prefix.iterdir()) == [".lock", "torch"]
    assert not site.apply(new, locks=False)["changed"]


@pytest.mark.parametrize("point", POINTS)
def test_killed_the_old_one_keeps_working_and_the_next_run_ends_it(site, two, point):
    old, new = two
    with started(site, new, where=point) as process:
        assert process.wait(60) == -signal.SIGKILL
    assert site.version() == ("2.0" if point == "prune" else "1.0")
    finished(site, old, new)


def test_killed_in_the_middle_of_a_download_leaves_no_uv_behind(site, two):
    old, new = two
    site.index.slow["tiny-2.0"] = 20
    asked = len(site.index.asked)
    with started(site, new) as process:
        wait(lambda: any("tiny-2.0" in path for path in site.index.asked[asked:]))
        assert any("pip install" in words for words in processes(site))
        process.kill()
        process.wait()
    wait(lambda: not processes(site), 5)
    assert site.version() == "1.0"
    site.index.slow.clear()
    finished(site, old, new)


def test_two_runs_at_once_wait_for_each_other(site, two):
    old, new = two
    site.index.slow["tiny-2.0"] = 4
    with started(site, new) as first:
        wait(lambda: any("pip install" in words for words in processes(site)))
        refused = site.apply(new, wait=0)
        assert "another run builds environments" in refused["msg"]
        assert f"{first.pid}, python" in refused["msg"]
        waited = site.apply(new, wait=30)
        assert "failed" not in waited, waited
        assert first.wait() == 0
    finished_once = sum("tiny-2.0-py3-none-any.whl" in path and "metadata" not in path for path in site.index.asked)
    assert finished_once == 1
    assert site.links()["previous"] == old["digest"][:16]


@contextmanager
def small(path: Path, options: str):
    """A small file system, where this machine lets root have one."""
    path.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path]).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        path.chmod(0o755)
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def test_disk_full_in_the_middle_takes_the_half_built_away_and_says_so(site):
    with small(site.prefix, "size=66m"):
        old = site.environment("torch", site.index.wheel("tiny", "1.0"))
        assert site.apply(old)["changed"]
        big = site.index.wheel("big", "1.0", code="'''" + "x" * (80 << 20) + "'''")
        result = site.apply(site.environment("torch", big))
        assert "No space left on device" in result["msg"]
        assert site.version() == "1.0"
        assert site.directories() == [old["digest"][:16]]
        free = os.statvfs(site.prefix)
        assert free.f_bavail * free.f_frsize > 60 << 20, "what was downloaded for nothing still fills the disk"


@pytest.mark.parametrize(
    ("options", "size", "said"),
    [
        ("size=8m", 0, r"MiB free, 64 needed"),
        ("size=200m", 7_000_000_000, r"MiB free, 6675 needed"),
        ("size=200m,nr_inodes=500", 100_000_000, r"inodes free, about 1754 needed"),
        ("size=200m,noexec", 0, r"mounted noexec or read-only"),
    ],
)
def test_disk_full_pip(site, options, size, said):
    """Bytes, inodes and noexec are looked at before anything is fetched."""
    with small(site.prefix, options):
        result = site.apply(site.environment("torch", site.index.wheel("tiny", "1.0"), size=size))
        assert said in result["msg"]
        assert site.index.asked == []
        assert site.directories() == [] if (site.prefix / "torch").exists() else True


def test_killed_while_it_removes_an_old_one_the_next_run_removes_it(site, two):
    old, new = two
    site.apply(new)
    third = site.environment("torch", site.index.wheel("tiny", "3.0"))
    with started(site, third, where="prune") as process:
        assert process.wait(60) == -signal.SIGKILL
    assert site.apply(third, locks=False)["done"] == ["environment torch: 1 old removed"]
    assert site.directories() == sorted([new["digest"][:16], third["digest"][:16]])
    assert old["digest"][:16] not in site.directories()
