"""Molecule's scenario gpu: the whole GPU stack by plain Ansible on one fresh node, twice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpustrap.content import ansible_config, content_root

pytestmark = pytest.mark.slow

# ok and changed, of a run of the whole stack that changes nothing: an NVIDIA driver play alone has 40 elsewhere.
MOST_TASKS = 60
UNCHANGED = re.compile(r"\bnode +: ok=(\d+) +changed=0 ")


def test_scenario_gpu(tmp_path: Path) -> None:
    tools = Path(sys.executable).parent
    log = tmp_path / "ansible.log"  # molecule keeps the output of the second run for itself
    environment = os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "ANSIBLE_CONFIG": str(ansible_config()),
        "ANSIBLE_LOG_PATH": str(log),
    }
    command = [tools / "molecule", "test", "--scenario-name", "gpu"]
    done = subprocess.run(
        command, cwd=content_root(), env=environment, capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    tasks = [int(count) for count in UNCHANGED.findall(log.read_text(encoding="utf-8"))]
    assert max(tasks, default=0) > 30, "the idempotence run was not seen"
    assert max(tasks) <= MOST_TASKS
