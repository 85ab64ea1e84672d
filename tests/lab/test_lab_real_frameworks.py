"""verify's scripts on the real thing, where it can be had: Debian's PyTorch in a node, JAX's wheels on this machine.

Both compute on the processor. What the scripts say of GPUs is tried on stand-ins, tests/unit/standins.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gpustrap.lab.manager import Lab, NodeSpec
from gpustrap.verify.gpustrap_verify.smoke import common

pytestmark = pytest.mark.slow

SMOKE = Path(common.__file__).parent
JAX = "0.12.0.1"


def asked(place: str) -> str:
    wanted = {"device": "cpu", "gpus": [], "size": 128, "thorough": True, "seconds": 240, "place": place, "modules": []}
    return json.dumps(wanted)


def answer(said: str) -> dict[str, Any]:
    found = json.loads(said)
    assert found["ok"], found
    return dict(found)


@pytest.mark.big
def test_debians_pytorch_in_a_node(lab: Lab) -> None:
    node = lab.up([NodeSpec("real-torch", "debian13")])[0]
    try:
        install = "apt-get -q update && apt-get -q install -y --no-install-recommends python3-torch"
        done = node.exec(f"export DEBIAN_FRONTEND=noninteractive; {install}", timeout=1500)
        assert done.returncode == 0, done.stderr[-2000:]
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            archive.add(SMOKE, "smoke")
        assert node.exec("mkdir -p /tmp/s /tmp/place && tar -xC /tmp/s", stdin=stream.getvalue()).returncode == 0
        argv = ("/usr/bin/python3", *common.FLAGS, "-c", common.START, "/tmp/s", "smoke.pytorch", asked("/tmp/place"))
        found = answer(node.exec(argv, timeout=600).stdout)
        assert found["version"].startswith("2.6.0")
        assert found["cuda"] == ""
    finally:
        lab.remove(node.name)


def python_for_jax() -> str:
    """A Python that JAX has wheels for: this one, or one that is on this machine."""
    if sys.version_info >= (3, 12):
        return sys.executable
    pythons = [shutil.which(f"python3.{minor}") for minor in (12, 13, 14)]
    pythons += [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.1[234].*/bin/python"))]
    works = ("-c", "import venv")  # pyenv's shims are there for Pythons that are not
    found = next((p for p in pythons if p and subprocess.run([p, *works], capture_output=True).returncode == 0), "")
    if not found:
        pytest.skip("no Python that JAX has wheels for (3.12 or later)")
    return found


def test_jax_of_the_package_index_on_this_machine(tmp_path: Path) -> None:
    python = python_for_jax()
    subprocess.run([python, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    own = str(tmp_path / "venv" / "bin" / "python")
    install = [own, "-m", "pip", "install", "--quiet", "--only-binary=:all:", f"jax=={JAX}"]
    done = subprocess.run(install, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        pytest.skip(f"this machine's pip does not get jax {JAX}: {done.stderr[-300:]}")
    argv = [own, *common.FLAGS, "-c", common.START, str(SMOKE.parent), "smoke.jax", asked(str(tmp_path))]
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, env=environment)
    assert answer(done.stdout)["version"] == JAX
