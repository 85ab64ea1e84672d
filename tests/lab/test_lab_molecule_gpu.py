"""Molecule's scenario gpu: the whole GPU stack by plain Ansible on one fresh node, twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpustrap.content import ansible_config, content_root

pytestmark = pytest.mark.slow


def test_scenario_gpu() -> None:
    tools = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "ANSIBLE_CONFIG": str(ansible_config())}
    command = [tools / "molecule", "test", "--scenario-name", "gpu"]
    done = subprocess.run(
        command, cwd=content_root(), env=environment, capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
