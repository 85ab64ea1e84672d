"""inspect and the node program on a real node: what is read, that nothing is changed, a sick node, the ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpustrap.commands.enroll import Terms, enroll_nodes
from gpustrap.commands.ledgers import ask_verb
from gpustrap.lab.manager import LabNode
from gpustrap.model.facts import Facts
from gpustrap.model.node import Escalation, Secrets
from gpustrap.model.site import Site
from gpustrap.site.access import load_access, save_access
from gpustrap.site.inventory import load_nodes

SICK = """
touch /var/lib/dpkg/updates/0003
echo 'deb http://archive.invalid/debian trixie main' > /etc/apt/sources.list.d/extra.list
printf 'Types: deb\\nURIs: http://ARCHIVE.invalid/debian/\\nSuites: trixie\\nComponents: main\\n\
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\\n' > /etc/apt/sources.list.d/extra.sources
touch /usr/bin/nvidia-smi /usr/bin/nvidia-uninstall
"""
HOLD = """
import fcntl, os, sys, time
stream = open("/var/lib/apt/lists/lock", "w")
fcntl.lockf(stream, fcntl.LOCK_EX)
if os.fork():
    time.sleep(1)
    os._exit(0)
fcntl.lockf(stream, fcntl.LOCK_EX)
os.setsid()
for descriptor in range(3):
    os.close(descriptor)
time.sleep(300)
"""


def inspect(site: Site, password: str | None = None) -> tuple[int, dict[str, Any], str]:
    """Run ``gpustrap inspect`` as a user does; the sudo password comes in through a pipe."""
    command = [sys.executable, "-m", "gpustrap", "inspect", "--site", str(site.root), "--format", "json"]
    reader, writer = os.pipe()
    os.write(writer, (password or "").encode() + b"\n")
    os.close(writer)
    try:
        if password is not None:
            command += ["--become-password-fd", str(reader)]
        done = subprocess.run(command, capture_output=True, text=True, pass_fds=[reader], check=False, timeout=300)
    finally:
        os.close(reader)
    assert not password or password not in done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def test_a_node_is_read_and_left_alone(
    tmp_path: Path, make_node: Callable[..., LabNode], make_site: Callable[..., Site]
) -> None:
    node = make_node()
    site = make_site(tmp_path, node)
    code, data, _ = inspect(site)
    assert (code, [p["code"] for p in data["problems"]]) == (4, ["not-enrolled"])
    (known,) = load_nodes(site)
    secrets = Secrets(ssh_password=node.password, become_password=node.password)
    (enrolled,) = enroll_nodes(site, [known], secrets=secrets, terms=Terms(accept_new=True)).values()
    assert not isinstance(enrolled, Exception)

    healthy(site, node)
    sick(site, node)
    ordinary_user(site, node)
    ledger(site, node, secrets)


def healthy(site: Site, node: LabNode) -> None:
    node.exec("touch /root/mark; sleep 1.1")
    code, data, errors = inspect(site, node.password)
    assert code == 0, errors
    facts = Facts.model_validate(data["nodes"][0]["facts"])
    assert (facts.os.id, facts.os.version_id, facts.os.hostname) == ("debian", "13", node.name)
    assert facts.root
    assert facts.package_manager.kind == "apt"
    assert facts.package_manager.interrupted is False
    assert (facts.package_manager.locks, facts.package_manager.broken) == ((), ())
    assert any(a.startswith(node.address + "/") for a in facts.network.addresses)
    assert facts.filesystems[0].mount == "/"
    assert facts.filesystems[0].size > 0
    assert facts.time.skew == 0
    changed = node.exec("find /etc /usr /opt /home /var/lib /var/cache -xdev -newer /root/mark").stdout.split()
    assert [p for p in changed if not p.startswith(("/var/lib/systemd", "/var/lib/sudo"))] == []


def sick(site: Site, node: LabNode) -> None:
    assert node.exec(SICK).returncode == 0
    held = node.exec(["python3", "-c", HOLD])
    assert held.returncode == 0, held.stderr
    code, data, _ = inspect(site, node.password)
    assert code == 0
    manager = Facts.model_validate(data["nodes"][0]["facts"]).package_manager
    assert [lock.path for lock in manager.locks] == ["/var/lib/apt/lists/lock"]
    said = "\n".join(f"{a['message']} -> {a['remedy']}" for a in data["nodes"][0]["attention"])
    for words in (
        f"process {manager.locks[0].pid} (python3 -c",
        "dpkg was interrupted -> sudo dpkg --configure -a",
        "conflicting Signed-By for http://archive.invalid/debian trixie",
        "installed by NVIDIA's .run file",
        "/usr/bin/nvidia-smi is from no package",
    ):
        assert words in said
    node.exec(f"kill {manager.locks[0].pid}; rm /var/lib/dpkg/updates/0003 /etc/apt/sources.list.d/extra.*")


def ordinary_user(site: Site, node: LabNode) -> None:
    """Without root a value is unknown and said to be."""
    access = load_access(site, node.name)
    assert access is not None
    save_access(site, node.name, replace(access, escalation=Escalation.NOT_ALLOWED))
    code, data, _ = inspect(site)
    save_access(site, node.name, access)
    assert code == 0
    facts = Facts.model_validate(data["nodes"][0]["facts"])
    assert not facts.root
    assert facts.package_manager.kind == "apt"
    assert any("root" in note for note in facts.notes)


def ledger(site: Site, node: LabNode, secrets: Secrets) -> None:
    """From the mark of a run to drift, over SSH."""
    (known,) = load_nodes(site)

    def ask(verb: str, **args: Any) -> dict[str, Any]:
        answer = ask_verb(site, [known], verb, lambda _: args, secrets=secrets)[node.name]
        assert isinstance(answer, dict), answer
        return answer

    ask("ledger-open", run_id="run-1")
    wanted = [
        {"kind": "unit", "name": "ssh"},
        {"kind": "package", "name": "sudo"},
        {"kind": "file", "name": "/etc/motd"},
    ]
    states = ask("observe", resources=wanted)["states"]
    assert states[0]["state"] == {"enabled": "enabled", "active": "active"}
    resources = [{"kind": s["kind"], "name": s["name"], "role": "r", "state": s["state"]} for s in states]
    run = {"id": "run-1", "open": False, "complete": True}
    ask(
        "ledger-close",
        ledger={"version": 1, "run": run, "tool": "0", "lock_digest": "sha256:0", "resources": resources},
    )
    assert node.exec("stat -c %a%U /var/lib/gpustrap /var/lib/gpustrap/ledger.json").stdout.split() == [
        "700root",
        "600root",
    ]
    assert ask("drift") == {
        "ledger_run": run,
        "lock_digest": "sha256:0",
        "open_run": None,
        "unknown": "",
        "items": [],
        "checked": 3,
    }
    node.exec("echo hello > /etc/motd")
    assert [item["name"] for item in ask("drift")["items"]] == ["/etc/motd"]
