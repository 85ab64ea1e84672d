"""gpustrap_environments, with the real uv: a build counts when it is complete, and what is in use stays until then."""

from __future__ import annotations

import grp
import json
import os
import shutil
import subprocess
import sys

import pytest

from gpustrap.content import PACKAGE
from gpustrap.environments.uv import OF_PYTORCH


def identity(environment: dict) -> str:
    return environment["digest"][:16]


def test_builds_an_environment_that_ordinary_users_can_use(site):
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"))
    result = site.apply(torch)
    assert result["changed"], result
    assert result["claims"] == [{"kind": "environment", "name": f"{site.prefix}/torch"}]
    assert site.links() == {"current": identity(torch)}
    assert site.directories() == [identity(torch)]
    assert site.version() == "1.0"
    marker = json.loads((site.prefix / "torch/current/.gpustrap.json").read_text())
    assert (marker["name"], marker["lock"], marker["digest"]) == ("torch", identity(torch), torch["digest"])
    assert marker["parts"].keys() == {"tiny-1.0", "(site-packages)", "(python)"}
    assert list(site.prefix.glob("torch/current/lib/python3.*/site-packages/tiny/__pycache__/*.pyc"))
    assert sorted(p.name for p in site.prefix.iterdir()) == [".lock", "torch"]
    others = [p for p in (site.prefix / "torch").rglob("*") if not p.is_symlink() and p.stat().st_mode & 0o22]
    assert others == []


def test_second_run_changes_nothing(site):
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"))
    site.apply(torch)
    before = site.index.asked.copy()
    again = site.apply(torch, locks=False)
    assert (again["changed"], again["needed"], again["done"]) == (False, [], [])
    assert site.index.asked == before


def test_ten_environments_that_are_there_start_neither_uv_pip_nor_conda(site):
    line = site.index.wheel("tiny", "1.0")
    ten = [site.environment(f"env{number}", line) for number in range(10)]
    assert site.apply(*ten)["changed"]
    started, watching = [], [True]
    sys.addaudithook(
        lambda event, _arguments: (
            started.append(event)
            if watching
            and event in {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
            else None
        )
    )
    try:
        assert not site.apply(*ten, locks=False)["changed"]
    finally:
        watching.clear()
    assert started == []


def test_without_lock_files_says_only_what_is_needed(site):
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"))
    asked = site.apply(torch, locks=False)
    assert (asked["changed"], asked["needed"]) == (True, ["torch"])
    assert not site.prefix.exists()


def test_check_mode_on_a_bare_node_says_what_would_follow(site):
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"), framework="pytorch", version="2", variant="cpu")
    result = site.apply(torch, check=True)
    assert result["changed"]
    assert result["diff"]["prepared"] == "would follow: environment torch built (pytorch 2 cpu, new)\n"
    assert [p.name for p in site.root.rglob("*")] == ["opt", "gpustrap", "uv", "0.0.1", "uv"]


def test_several_share_what_they_have_in_common(site):
    line = site.index.wheel("tiny", "1.0", code="x = 1\n" * 1000)
    site.apply(site.environment("one", line), site.environment("two", line))
    found = [
        next(site.prefix.glob(f"{name}/current/lib/python3.*/site-packages/tiny/__init__.py"))
        for name in ("one", "two")
    ]
    assert found[0].samefile(found[1])
    assert sum(path.endswith(".whl") and "tiny" in path for path in site.index.asked) == 1


def test_switch_keeps_the_one_before_and_prunes_older_ones(site):
    versions = [site.environment("torch", site.index.wheel("tiny", f"{number}.0")) for number in range(1, 4)]
    for number, environment in enumerate(versions, 1):
        assert site.apply(environment)["changed"]
        assert site.version() == f"{number}.0"
    assert site.links() == {"current": identity(versions[2]), "previous": identity(versions[1])}
    assert site.directories() == sorted(identity(one) for one in versions[1:])


def test_going_back_to_the_one_before_builds_nothing(site):
    first = site.environment("torch", site.index.wheel("tiny", "1.0"))
    second = site.environment("torch", site.index.wheel("tiny", "2.0"))
    for environment in (first, second):
        site.apply(environment)
    back = site.apply(first, locks=False)
    assert back["done"] == ["environment torch switched to a build that is there already, and another is in use"]
    assert site.version() == "1.0"
    assert site.links() == {"current": identity(first), "previous": identity(second)}


def test_an_old_one_that_a_process_has_open_stays(site):
    versions = [site.environment("torch", site.index.wheel("tiny", f"{number}.0")) for number in range(1, 5)]
    site.apply(versions[0])
    environment = {"VIRTUAL_ENV": str(site.prefix / "torch" / identity(versions[0]))}
    with subprocess.Popen(["/bin/sleep", "60"], env=environment) as user:
        for environment in versions[1:3]:
            site.apply(environment)
        assert identity(versions[0]) in site.directories()
        user.kill()
    site.apply(versions[3])
    assert site.directories() == sorted(identity(one) for one in versions[2:])


def test_a_package_changed_by_hand_is_built_anew_beside_it(site):
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"))
    site.apply(torch)
    [info] = site.prefix.glob("torch/current/lib/python3.*/site-packages/tiny-1.0.dist-info")
    info.rename(info.with_name("tiny-6.6.dist-info"))
    asked = site.apply(torch, locks=False)
    assert asked["done"] == ["environment torch built (python, was changed by hand: gone tiny-1.0, added tiny-6.6)"]
    assert site.apply(torch)["changed"]
    assert site.links() == {"current": f"{identity(torch)}-2", "previous": identity(torch)}
    assert not site.apply(torch)["changed"]
    assert site.version() == "1.0"


def test_a_python_that_is_gone_is_said(site):
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"), python="3.99")
    result = site.apply(torch)
    assert "/usr/bin/python3.99 is not there" in result["msg"]
    assert site.directories() == []


def test_wrong_hash_is_not_installed_and_the_old_one_keeps_working(site):
    old = site.environment("torch", site.index.wheel("tiny", "1.0"))
    site.apply(old)
    line = site.index.wheel("tiny", "2.0")
    new = site.environment("torch", line.partition("sha256:")[0] + "sha256:" + "0" * 64)
    result = site.apply(new)
    assert result["failed"]
    assert "environment torch was not built; the one in use was not touched" in result["msg"]
    assert "Hash mismatch for `tiny==2.0`" in result["msg"]
    assert (site.version(), site.directories()) == ("1.0", [identity(old)])


def test_a_line_without_hash_is_refused(site):
    torch = site.environment("torch", site.index.wheel("tiny", "1.0").partition(" ")[0])
    assert "hash" in site.apply(torch)["msg"].lower()


def test_index_gone_says_so_and_the_old_one_keeps_working(site):
    old = site.environment("torch", site.index.wheel("tiny", "1.0"))
    site.apply(old)
    new = site.environment("torch", site.index.wheel("tiny", "2.0"))
    site.index.close()
    result = site.apply(new)
    assert site.index.url in result["msg"]
    assert (site.version(), site.directories()) == ("1.0", [identity(old)])


def test_what_does_not_import_is_never_used(site):
    old = site.environment("torch", site.index.wheel("tiny", "1.0"))
    site.apply(old)
    broken = site.environment("torch", site.index.wheel("tiny", "2.0", code="raise ImportError('libcuda.so.1')\n"))
    result = site.apply(broken)
    assert "ImportError: libcuda.so.1" in result["msg"]
    assert (site.version(), site.directories()) == ("1.0", [identity(old)])


def test_a_requirement_that_the_lock_lacks_is_found(site):
    torch = site.environment("torch", site.index.wheel("tiny", "1.0", requires=("absent>=1",)))
    assert "absent" in site.apply(torch)["msg"]
    assert site.directories() == []


def test_one_that_fails_does_not_keep_the_others(site):
    good = site.environment("good", site.index.wheel("tiny", "1.0"))
    bad = site.environment("bad", "nowhere==1 --hash=sha256:" + "0" * 64)
    result = site.apply(bad, good)
    assert "environment bad was not built" in result["msg"]
    assert "good" not in result["msg"]
    assert site.version(name="good") == "1.0"


def test_uv_of_the_lock_is_fetched_once_and_never_run_when_it_is_another(site):
    shutil.rmtree(site.root / "opt/gpustrap/uv")
    torch, good = site.environment("torch", site.index.wheel("tiny", "1.0")), site.index.uv()
    site.uv = {**good, "sha256": "0" * 64}
    result = site.apply(torch)
    assert "the lock says 0000" in result["msg"]
    assert not (site.root / "opt/gpustrap/uv/0.0.1/uv").exists()
    site.uv = good
    site.apply(torch)
    site.apply(site.environment("other", site.index.wheel("tiny", "1.0")))
    assert sum(path.endswith(good["file"]) for path in site.index.asked) == 2  # the refused one, and the good one
    assert [p.name for p in (site.root / "opt/gpustrap/uv").iterdir()] == ["0.0.1"]


def test_an_index_without_that_uv_is_named(site):
    site.index.uv()
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"))
    site.uv = {**site.uv, "version": "9", "file": "uv-9.whl"}
    assert f"the package index {site.index.url} has no uv-9.whl" in site.apply(torch)["msg"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a group")
def test_users_of_a_group_alone(site):
    group = grp.getgrgid(1).gr_name
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"), users=group)
    site.apply(torch)
    status = (site.prefix / "torch").stat()
    assert (status.st_mode & 0o777, status.st_gid, status.st_uid) == (0o750, 1, 0)
    again = site.apply({**torch, "users": "all"}, locks=False)
    assert again["done"] == ["environment torch for all"]
    assert (site.prefix / "torch").stat().st_mode & 0o777 == 0o755
    assert not site.apply({**torch, "users": "all"})["changed"]


def test_a_group_that_is_not_there_is_named_before_anything(site):
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"), users="nobodys")
    result = site.apply(torch)
    assert "environment torch: group nobodys is not on this node: sudo groupadd nobodys" in result["msg"]
    assert not site.prefix.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root reads everything")
def test_one_that_ordinary_users_cannot_reach_is_not_used(site):
    site.root.chmod(0o700)
    result = site.apply(site.environment("torch", site.index.wheel("tiny", "1.0")))
    assert "ermission denied" in result["msg"]
    assert site.links() == {}


def test_jupyter_kernel_follows_the_link_once(site):
    lines = (site.index.wheel("tiny", "1.0"), site.index.wheel("ipykernel", "1.0"))
    torch = site.environment("torch", *lines, jupyter=True)
    result = site.apply(torch)
    path = site.kernels / "torch/kernel.json"
    assert {"kind": "file", "name": str(path)} in result["claims"]
    argv = json.loads(path.read_text())["argv"]
    assert argv[:2] == ["/bin/sh", "-c"]
    assert f'"$(readlink -f {site.prefix}/torch/current)/bin/python" -m ipykernel_launcher -f' in argv[2]
    path.write_text(path.read_text().replace("-m", "-v -m"))
    assert site.apply(torch)["done"] == ["Jupyter kernel torch written"]
    assert site.apply({**torch, "jupyter": False})["done"] == ["Jupyter kernel torch removed"]
    assert list(site.kernels.iterdir()) == []


def test_somebody_elses_jupyter_kernel_is_never_touched(site):
    torch = site.environment("torch", site.index.wheel("ipykernel", "1.0"), jupyter=True)
    theirs = site.kernels / "torch/kernel.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text('{"argv": ["python"]}')
    assert "gpustrap did not write it" in site.apply(torch)["msg"]
    assert site.apply({**torch, "jupyter": False})["changed"]
    assert theirs.read_text() == '{"argv": ["python"]}'


def test_nothing_of_the_callers_environment_reaches_uv(site, monkeypatch):
    for name in ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_INDEX_URL", "UV_EXTRA_INDEX_URL", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    assert site.apply(site.environment("torch", site.index.wheel("tiny", "1.0")))["changed"]


def test_half_built_is_removed_also_where_nothing_else_is_to_do(site):
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"))
    site.apply(torch)
    (site.prefix / "torch" / ("f" * 16)).mkdir()
    assert site.apply(torch, locks=False)["done"] == ["environment torch: 1 half-built removed"]
    assert site.directories() == [identity(torch)]


def cached(site) -> set[str]:
    return {path.stem for path in (site.root / "cache/uv").glob("archive-v*/*/*.dist-info")}


def test_what_no_environment_has_any_more_leaves_the_cache_and_can_be_had_again(site):
    versions = [site.environment("torch", site.index.wheel("tiny", f"{number}.0")) for number in range(1, 4)]
    site.apply(site.environment("other", site.index.wheel("rest", "1.0")))
    for environment in versions:
        site.apply(environment)
    assert cached(site) == {"rest-1.0", "tiny-2.0", "tiny-3.0"}
    assert site.apply(versions[0])["changed"]
    assert site.version() == "1.0"


def test_condas_cache_keeps_only_what_an_environment_has(site):
    packages = site.root / "cache/conda"
    for name in ("old-1-0", "new-1-0"):
        (packages / name / "info").mkdir(parents=True)
        (packages / name / "library.so").write_text(name)
        (packages / f"{name}.conda").touch()
    (packages / "cache").mkdir()
    (packages / "urls.txt").touch()
    (site.root / "library.so").hardlink_to(packages / "new-1-0/library.so")
    for number in (1, 2, 3):
        site.apply(site.environment("torch", site.index.wheel("tiny", f"{number}.0")))
    assert sorted(p.name for p in packages.iterdir()) == ["cache", "new-1-0", "new-1-0.conda", "urls.txt"]


LATE = """
import subprocess, sys
print(flush=True)
input()
import tiny
print(tiny.version, subprocess.check_output([sys.executable, "-c", "import tiny; print(tiny.version)"], text=True))
"""


def test_what_runs_already_stays_in_its_build_when_another_is_switched_to(site):
    """A training takes days: what it imports later, and the workers it starts, are of the environment it began in."""
    site.apply(site.environment("torch", site.index.wheel("tiny", "1.0")))
    python = site.prefix / "torch/current/bin/python"
    with subprocess.Popen([python, "-c", LATE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout.readline() == "\n"
        site.apply(site.environment("torch", site.index.wheel("tiny", "2.0")))
        out, _none = job.communicate("\n", timeout=60)
    assert out.split() == ["1.0", "1.0"]
    assert site.version() == "2.0"
    paths = json.loads(
        site.says("torch", "import json, sys; print(json.dumps([sys.prefix, sys.exec_prefix, *sys.path]))")
    )
    assert len(paths[2:]) == len(set(paths[2:]))
    assert not any("current" in path for path in paths)


def test_what_has_no_wheel_is_built_from_its_source(site):
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"), site.index.source("deepspeed", "2.0"))
    assert site.apply(torch)["changed"]
    assert site.version("deepspeed") == "2.0"


UV = """#!/usr/bin/python3
import json, os, pathlib, sys
words = sys.argv[1:]
with open("{log}", "a") as log:
    log.write(json.dumps([words, os.environ["UV_PYTHON_INSTALL_DIR"]]) + "\\n")
if words[:2] == ["python", "find"]:
    print("/usr/bin/python3")
else:
    os.execv("{uv}", ["uv", *words]) if words[0] != "python" else None
"""


def test_a_python_of_uvs_own_comes_from_the_mirror_into_a_directory_of_ours(site):
    """Its archive's SHA-256 is in uv itself, so here only what uv is asked for is looked at."""
    program, log = site.root / "opt/gpustrap/uv/0.0.1/uv", site.root / "uv.log"
    real = program.resolve()
    program.unlink()
    program.write_text(UV.format(log=log, uv=real))
    program.chmod(0o755)
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"), interpreter="uv")
    assert site.apply(torch, python_mirror="https://mirror.example/pbs")["changed"]
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert calls[0] == [
        ["python", "install", "--no-bin", "--mirror", "https://mirror.example/pbs", site.python],
        f"{site.root}/opt/gpustrap/python",
    ]
    assert calls[1][0] == ["python", "find", "--no-project", "--managed-python", site.python]
    assert calls[2][0][:4] == ["venv", "--no-project", "--allow-existing", "--python"]


def test_pytorchs_own_packages_come_from_its_index_and_all_others_from_the_package_index(site, tmp_path):
    """PyTorch's index answers 403 for what it does not have, and has old copies of others' packages."""
    (tmp_path / "pytorch").mkdir()
    own = type(site.index)(tmp_path / "pytorch")
    try:
        site.index.wheel("torch", "2.0", code="raise ImportError('the processor build')\n")
        lines = (own.wheel("torch", "2.0"), site.index.wheel("tiny", "1.0"))
        own.wheel("tiny", "1.0", code="raise ImportError('an old copy')\n")
        assert site.apply(site.environment("torch", *lines, index=own.url))["changed"]
    finally:
        own.close()
    assert {path.split("/")[2] for path in own.asked} == {"torch"}
    assert not any("/torch/" in path for path in site.index.asked)


def test_the_closure_calls_the_same_packages_pytorchs_own():
    text = (PACKAGE / "ansible_plugins/module_utils/gpustrap_environment_build.py").read_text()
    assert f"({'|'.join(OF_PYTORCH)})==" in text
