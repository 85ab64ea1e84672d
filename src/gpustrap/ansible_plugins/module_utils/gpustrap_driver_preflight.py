"""May the driver be installed or replaced here? Reads only; every obstacle at once. Standard library only."""

from __future__ import annotations

from typing import Dict, List

from .gpustrap_driver_plan import Known, installed_driver, step
from .gpustrap_node.driver_set import Wanted, upstream
from .gpustrap_node.holders import holders
from .gpustrap_node.host import Host
from .gpustrap_node.installs import RUNFILE, install_facts

SHOWN = 8
INSTALLER = "NVIDIA's .run file installed a driver here (%s); remove it on the node with: sudo nvidia-uninstall"


def problems(host: Host, known: Known, wanted: Wanted, users: str) -> list[str]:
    """What keeps the locked driver out.

    Args:
        host: The node.
        known: What dpkg knows.
        wanted: The locked driver.
        users: ``refuse`` or ``allow``: whether processes on the GPUs may lose them.
    """
    found = leftovers(host, known)
    if users == "refuse" and changes(known, wanted):
        found += in_use(host)
    return found


def problems_of_rpms(host: Host, there: Dict[str, str], wanted: Wanted, users: str) -> list[str]:
    """The same on the RHEL family, where rpm itself refuses to write over files that no package owns.

    Args:
        host: The node.
        there: Installed packages of the driver, name and version.
        wanted: The locked driver.
        users: As above.
    """
    left = [path for path in RUNFILE if host.exists(path)]
    found = [INSTALLER % _some(left)] if left else []
    changed = any(upstream(there.get(name, "")) != upstream(one) for name, one in wanted.packages.items())
    return found + (in_use(host) if users == "refuse" and changed else [])


def changes(known: Known, wanted: Wanted) -> bool:
    """Whether parts of the driver will be installed, replaced or removed."""
    todo = step(wanted, [], known, {})
    return bool(todo.install or todo.remove)


def leftovers(host: Host, known: Known) -> list[str]:
    """What NVIDIA's installer or somebody's hands put there: with packages over it, two drivers would be mixed."""
    rows = [row for row in install_facts(host, known) if row["what"] == "nvidia-driver"]
    runfile = [row for row in rows if row["origin"] == "runfile"]
    unowned = [str(row["path"]) for row in rows if row["origin"] == "unowned"]
    if runfile:
        return [INSTALLER % _some([str(row["path"]) for row in runfile] + unowned)]
    said = "of a driver that no package owns: %s; remove them on the node, or move them away"
    return ([said % _some(unowned)] if unowned else []) + _strangers(rows, known)


def _strangers(rows: List[dict[str, object]], known: Known) -> list[str]:
    """Modules that DKMS builds of no package: they would be loaded instead of ours."""
    ours = {upstream(package.version) for package in installed_driver(known).values()}
    found = sorted(str(r["version"]) for r in rows if r["origin"] == "dkms" and r["version"] not in ours)
    said = "DKMS builds a driver of no package: nvidia/%s; remove it on the node with: sudo dkms remove nvidia/%s --all"
    return [said % (version, version) for version in found]


def in_use(host: Host) -> list[str]:
    """Who has the GPUs now."""
    found = holders(host)
    if not found:
        return []
    more = ", and %d more" % (len(found) - SHOWN) if len(found) > SHOWN else ""
    who = "; ".join(holder.words for holder in found[:SHOWN]) + more
    return [
        "the GPUs are in use, and replacing the driver would break that: %s. Let them finish or stop them, or set "
        "gpustrap_gpu_users: allow, plan and apply again" % who
    ]


def _some(paths: List[str]) -> str:
    found = list(dict.fromkeys(paths))
    more = " and %d more" % (len(found) - SHOWN) if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
