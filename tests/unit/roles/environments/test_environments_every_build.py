"""Every build of the catalog is locked, built and imported once, from the lab's stand-in of the indexes."""

from __future__ import annotations

import os
import platform
import shutil

import pytest

from gpustrap.catalog.loader import load_catalog
from gpustrap.environments.closure import Closure
from gpustrap.environments.lock import compile_closure
from gpustrap.lab.standins import frameworks

GLIBC = "2.36"
MODULES = {"pytorch": "torch"}  # where it is not the name
BUILDS = [w for w in load_catalog().wheels if platform.machine() in w.compute]


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    """The stand-ins, made once; without the real uv, which this machine's pip would have to fetch."""
    directory = tmp_path_factory.mktemp("indexes")
    frameworks.frameworks_index.put(directory / "simple", frameworks.frameworks_data.pypi())
    frameworks.build_pytorch(directory, lambda _step: None)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS, ids=lambda w: f"{w.framework}-{w.version}-{w.variant}")
def test_build_is_locked_built_and_imported(site, indexes, build, monkeypatch, tmp_path):
    if site.python not in build.pythons:
        pytest.skip(f"this machine's Python {site.python} is none of {', '.join(build.pythons)}")
    monkeypatch.setenv("UV_OFFLINE", "0")  # what is asked is on loopback
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    shutil.copytree(indexes, site.index.directory, dirs_exist_ok=True, copy_function=os.link)
    own = site.index.url.replace("/simple", f"/whl/{build.variant}") if build.index else ""
    closure = Closure(
        name="torch",
        engine="uv",
        python=site.python,
        machine=platform.machine(),
        glibc=GLIBC,
        requirements=(build.requirement,),
        constraints=tuple(build.constraints),
        index=site.index.url,
        framework_index=own,
    )
    lines = compile_closure(closure, "").body.splitlines()
    name = MODULES.get(build.framework, build.framework)
    result = site.apply(site.environment("torch", *lines, index=own, modules=[name], version=build.version))
    assert "failed" not in result, result["msg"]
    version = site.says("torch", f"from importlib.metadata import version; print(version({name!r}))")
    assert version.partition("+")[0] == build.version
