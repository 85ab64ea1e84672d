"""plan on a real node, as a user runs it: the lock is stable, and stale when something changed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpustrap.commands.enroll import Terms, enroll_nodes
from gpustrap.lab.manager import LabNode
from gpustrap.model.node import Secrets
from gpustrap.model.site import Site
from gpustrap.site.inventory import load_nodes


def plan(site: Site, *words: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "gpustrap", "plan", "--site", str(site.root), "--format", "json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_a_plan_is_stable_until_something_changes(
    tmp_path: Path, make_node: Callable[..., LabNode], make_site: Callable[..., Site]
) -> None:
    node = make_node()
    site = make_site(tmp_path, node)
    code, data, _ = plan(site)
    assert (code, [p["code"] for p in data["problems"]]) == (4, ["not-enrolled"])
    assert not site.lock.exists()
    secrets = Secrets(ssh_password=node.password, become_password=node.password)
    terms = Terms(accept_new=True, passwordless_sudo=True)
    enroll_nodes(site, load_nodes(site), secrets=secrets, terms=terms)

    code, data, _ = plan(site)
    assert code == 0, data
    choices = {c["item"]: c for c in data["nodes"][node.name]["choices"]}
    node.exec("apt-get update")
    newest = node.exec("apt-cache policy docker.io | sed -n 's/  Candidate: //p'").stdout.strip()
    assert choices["docker"]["value"] == f"docker.io {newest}"
    before = site.lock.read_bytes()
    assert plan(site, "--check")[0] == 0
    assert plan(site)[1]["changes"] == []
    assert site.lock.read_bytes() == before

    variables = site.inventory / "group_vars" / "all.yml"
    variables.parent.mkdir(exist_ok=True)
    variables.write_text("gpustrap_docker_address_pools: [0.0.0.0/8, 10.0.0.0/8]\n")
    code, data, _ = plan(site)
    assert code == 3
    assert [p["code"] for p in data["problems"]] == ["address-pool-overlap"]
    assert site.lock.read_bytes() == before

    variables.write_text("gpustrap_docker_users: [ubuntu]\n")
    assert plan(site, "--check")[0] == 3
    assert site.lock.read_bytes() == before
    code, data, _ = plan(site)
    assert (code, data["changes"]) == (0, [f"~ {node.name}: docker_users: + ubuntu"])

    variables.write_text("gpustrap_dokcer: true\n")
    code, _, said = plan(site)
    assert code == 2
    assert "did you mean gpustrap_docker?" in " ".join(said.split())
