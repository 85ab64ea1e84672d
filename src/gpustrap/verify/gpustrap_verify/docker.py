"""Checks of docker: the daemon, its configuration, and a container that really runs."""

from __future__ import annotations

import json
import secrets
from typing import Any

from . import rootfs
from .host import journal, unit_state
from .node import Finding, Node, Result, failed, passed, warned
from .remedies import Remedy

LABEL = "gpustrap.run"
CONFIG = "/etc/docker/daemon.json"
# In the container: the token from the image, and the names of its network interfaces. Shell built-ins only.
SCRIPT = 'read -r token < /token; echo "$token"; while IFS=: read -r name rest; do echo $name; done < /proc/net/dev'
MISSING = object()


def docker(node: Node, *argv: str, timeout: float = 30, stdin: bytes = b"") -> Result:
    """The docker client against this machine's daemon, whatever context root has chosen."""
    return node.run("docker", "--host", "unix:///var/run/docker.sock", *argv, timeout=timeout, stdin=stdin)


def daemon(node: Node, args: dict[str, Any]) -> Finding:
    """The daemon runs, answers, is of the locked version and will start at the next boot.

    Args:
        node: The node.
        args: ``packages``: ``[{name, version}]`` of the lock.
    """
    unit = unit_state(node, "docker.service")
    down = _not_running(node, unit)
    if down:
        return down
    answer = docker(node, "version", "--format", "{{.Server.Version}}")
    if not answer.ok:
        return failed("the docker daemon does not answer", answer.words, Remedy.APPLY)
    wrong = _wrong_versions(node, args["packages"])
    if wrong:
        return failed("not the locked version", "\n".join(wrong), Remedy.APPLY)
    start = unit.get("UnitFileState") or "unknown"
    if start not in {"enabled", "enabled-runtime", "static"}:
        return warned(f"docker.service is {start}: it will not start at the next boot", remedy=Remedy.APPLY)
    return passed(version=answer.out.strip())


def _not_running(node: Node, unit: dict[str, str]) -> Finding | None:
    load, active = unit.get("LoadState", "unknown"), unit.get("ActiveState", "unknown")
    if load == "masked":
        return failed("docker.service is masked: somebody forbade it to start", remedy=Remedy.UNMASK_DOCKER)
    if load != "loaded":
        return failed(f"docker.service is {load}: docker is not installed", remedy=Remedy.APPLY)
    if active != "active":
        return failed(f"docker.service is {active}", journal(node, "docker.service"), Remedy.APPLY)
    return None


def _wrong_versions(node: Node, packages: list[dict[str, str]]) -> list[str]:
    names = [p["name"] for p in packages]
    if not names:
        return []
    asked = node.run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status} ${Version}\n", *names)
    if asked.rc is None:
        return [asked.words]
    lines = (line.split() for line in asked.out.splitlines())
    installed = {line[0]: line[2] for line in lines if len(line) == 3 and line[1] == "installed"}
    return [
        f"{p['name']}: locked {p['version']}, found {installed.get(p['name'], 'none')}"
        for p in packages
        if installed.get(p["name"]) != p["version"]
    ]


def config(node: Node, args: dict[str, Any]) -> Finding:
    """daemon.json is valid, holds every locked key, and the default runtime in use is the locked one.

    Values are never shown: a proxy's may hold a password.

    Args:
        node: The node.
        args: ``daemon``: the keys that the lock put there.
    """
    locked = args["daemon"]
    try:
        text = node.path(CONFIG).read_text(encoding="utf-8")
        found = json.loads(text)
    except FileNotFoundError:
        found = {}
    except (OSError, ValueError) as error:
        return failed(f"{CONFIG} is not valid", str(error), Remedy.CORRECT_DAEMON_JSON)
    different = differences(locked, found)
    if different:
        return failed(f"{CONFIG} differs from the lock", "\n".join(different), Remedy.APPLY)
    if node.path(CONFIG).exists():
        valid = node.run("dockerd", "--validate", "--config-file", CONFIG)
        if not valid.ok and "unknown flag: --validate" not in valid.words:  # docker before 23
            return failed("dockerd refuses its configuration", valid.words, Remedy.CORRECT_DAEMON_JSON)
    wanted = locked.get("default-runtime", "runc")
    asked = docker(node, "info", "--format", "{{.DefaultRuntime}}")
    runtime = asked.out.strip()
    if not asked.ok:
        return failed("the runtime in use cannot be read: the daemon does not answer", asked.words, Remedy.APPLY)
    if runtime != wanted:
        return failed(f"the default runtime is {runtime!r}, locked is {wanted!r}", remedy=Remedy.APPLY)
    return passed(runtime=runtime)


def differences(locked: Any, found: Any, at: str = "") -> list[str]:  # noqa: ANN401 - parsed JSON
    """The key paths of ``locked`` that ``found`` lacks or holds with another value."""
    if isinstance(locked, dict) and isinstance(found, dict):
        return [d for key in locked for d in differences(locked[key], found.get(key, MISSING), f"{at}/{key}")]
    if isinstance(locked, list) and isinstance(found, list) and all(item in found for item in locked):
        return []  # a merged list: the user's own entries may stand beside ours
    if found is MISSING:
        return [f"{at or '/'} is missing"]
    return [] if locked == found else [f"{at or '/'} has another value"]


def container(node: Node, _args: dict[str, Any]) -> Finding:
    """A container runs, once without a network and once on the default bridge; nothing of it stays."""
    before = remove_ours(node)
    if before:
        return failed("what an earlier run left cannot be removed", before, Remedy.DOCKER_LOG)
    try:
        finding = _run_containers(node)
    except rootfs.NoRootfsError as error:
        finding = failed("no test image could be made of the node's files", str(error))
    with node.cleaning():
        after = remove_ours(node)
    if after and finding.verdict == "pass":
        return failed("the test container ran, but cannot be removed", after, Remedy.DOCKER_LOG)
    return finding


def _run_containers(node: Node) -> Finding:
    token = secrets.token_hex(16)
    label = f"{LABEL}={node.run_id}"
    made = docker(node, "import", "--change", f"LABEL {label}", "-", timeout=60, stdin=rootfs.archive(node, token))
    if not made.ok:
        return failed("an image cannot be stored", made.words, Remedy.DOCKER_LOG)
    image = made.out.strip()
    for network, interfaces in (("none", {"lo"}), ("bridge", {"lo", "eth0"})):
        options = ["--rm", "--pull", "never", "--label", label, "--network", network, "--log-driver", "none"]
        ran = docker(node, "run", *options, image, "/bin/sh", "-c", SCRIPT, timeout=60)
        if not ran.ok:
            return failed(f"a container does not run (network {network})", ran.words, Remedy.DOCKER_LOG)
        lines = ran.out.split()
        if not lines or lines[0] != token:
            return failed(f"a container ran, but its output is wrong (network {network})", ran.words, Remedy.DOCKER_LOG)
        if not interfaces <= set(lines[1:]):
            return failed(
                f"the container has no network interface eth0 (network {network})", ran.words, Remedy.DOCKER_LOG
            )
    return passed("without a network and on the default bridge")


def remove_ours(node: Node) -> str:
    """Remove every container and image with our label, of this run or an earlier one.

    Returns:
        What could not be removed, in docker's words; "" when nothing is left.
    """
    wrong = []
    for what, listing, removal in (
        ("containers", ("ps", "--all", "--quiet"), ("rm", "--force", "--volumes")),
        ("images", ("images", "--all", "--quiet"), ("rmi", "--force")),
    ):
        listed = docker(node, *listing, "--filter", f"label={LABEL}")
        if not listed.ok:
            wrong.append(f"{what}: {listed.words}")
            break  # a daemon that does not answer the first will not answer the second, only later
        ours = sorted(set(listed.out.split()))
        removed = docker(node, *removal, *ours) if ours else None
        if removed and not removed.ok:
            wrong.append(f"{what}: {removed.words}")
    return "\n".join(wrong)
