"""What apt is asked for so that a node has exactly the locked driver, and what apt may do for it.

Pure: from what dpkg and apt say to words for apt-get, and from apt's simulation to refusals. Standard library only.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, Iterable, List, NamedTuple, Sequence

from .gpustrap_apt import INST, REMV, AptError, tail
from .gpustrap_node.dpkg import Package
from .gpustrap_node.driver_set import Wanted, is_driver, upstream

Known = Dict[str, Package]
KERNEL = "{kernel}"
COMPILER = re.compile(r"\bgcc-(\d+)\b")


class Step(NamedTuple):
    """One transaction.

    Attributes:
        install: ``name=version``, or ``name`` where any version will do.
        remove: What cannot stay beside it.
        along: Other parts of the driver that are there and move to the same version, ``name=version``.
    """

    install: List[str]
    remove: List[str]
    along: List[str]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.install or self.remove or self.along)

    def words(self) -> list[str]:
        """For apt-get install."""
        return [*self.install, *self.along, *(name + "-" for name in self.remove)]


def installed_driver(known: Known) -> dict[str, Package]:
    """The parts of the driver that are on the node, in whatever state."""
    return {n: p for n, p in sorted(known.items()) if ":" not in n and is_driver(n) and p.present}


def step(wanted: Wanted, kernel: Sequence[str], known: Known, versions: Dict[str, List[str]]) -> Step:
    """What has to be done.

    Args:
        wanted: The locked driver.
        kernel: Packages that its modules need, of any version; see `for_kernels`.
        known: What dpkg knows.
        versions: Versions that can be had of the driver's installed packages.
    """
    install = ["%s=%s" % one for one in sorted(wanted.packages.items()) if not _right(known.get(one[0]), one[1])]
    install += [name for name in kernel if not _right(known.get(name), "")]
    there = installed_driver(known)
    remove = [name for name in there if wanted.in_the_way(name)]
    return Step(install, remove, _along(wanted, there, remove, versions))


def _right(package: Package | None, version: str) -> bool:
    return package is not None and package.state == "installed" and version in ("", package.version)


def _along(
    wanted: Wanted, there: Dict[str, Package], remove: Sequence[str], versions: Dict[str, List[str]]
) -> list[str]:
    """The other parts that are there, at the version of the driver where that can be had."""
    new, found = upstream(wanted.version), []
    for name, package in there.items():
        if name in wanted.packages or name in remove or upstream(package.version) in ("", new):
            continue
        same = [version for version in versions.get(name, ()) if upstream(version) == new]
        if same:
            found.append("%s=%s" % (name, wanted.version if wanted.version in same else same[0]))
    return found


def outdated(names: Sequence[str], known: Known, versions: Dict[str, List[str]]) -> list[str]:
    """Those of the installed packages of which apt has another version, its first one."""
    there = [name for name in names if name in known and known[name].present and versions.get(name)]
    return [name for name in there if versions[name][0] != known[name].version]


def for_kernels(
    templates: Sequence[str], kernels: Sequence[str], known: Known, can_be_had: Callable[[str], bool]
) -> list[str]:
    """The packages for kernels: of the running one, which comes first, all; of another what can be had.

    Args:
        templates: Names, with ``{kernel}`` for a kernel's.
        kernels: Of which modules are needed.
        known: What dpkg knows.
        can_be_had: Whether apt has a package.
    """
    found: List[str] = []
    for number, kernel in enumerate(kernels):
        for template in templates:
            name = template.replace(KERNEL, kernel)
            if number == 0 or (KERNEL in template and (_right(known.get(name), "") or can_be_had(name))):
                found.append(name)
    return list(dict.fromkeys(found))


def compiler(proc_version: str) -> str:
    """The package of the compiler that a kernel was built with: modules want the same; empty where it is not told.

    Ubuntu's later kernels for an earlier release are built with a later gcc than its default one:
    https://bugs.launchpad.net/ubuntu/+source/dkms/+bug/2016713
    """
    found = COMPILER.search(proc_version)
    return "gcc-" + found.group(1) if found else ""


# --- what apt would do ---------------------------------------------------------------------------------------------


def listed(simulation: str, heading: str) -> list[str]:
    """The packages below one of apt's headings, e.g. ``The following packages will be DOWNGRADED:``."""
    found = re.search(r"^%s\n((?: .*\n?)*)" % re.escape(heading), simulation, re.MULTILINE)
    return found.group(1).split() if found else []


def removed(simulation: str) -> list[str]:
    """The packages that apt would remove for good."""
    lines = simulation.splitlines()
    put = {m.group("name") for m in map(INST.match, lines) if m}
    return sorted({m.group("name") for m in map(REMV.match, lines) if m} - put)


def refuse_more(simulation: str, wanted: Wanted, ours: Iterable[str]) -> None:
    """Raise when apt would replace anything that is no part of the driver.

    New packages and newer versions that the driver depends on are what it needs; everything else is somebody's.

    Args:
        simulation: ``apt-get -s install``.
        wanted: The locked driver; none of its packages may go.
        ours: Packages whose hold is ours to move.
    """
    gone = [name for name in removed(simulation) if not is_driver(name) or name in wanted.packages]
    down = [n for n in listed(simulation, "The following packages will be DOWNGRADED:") if not is_driver(n)]
    held = sorted(set(listed(simulation, "The following held packages will be changed:")) - set(ours))
    acts = (("remove", gone), ("downgrade", down), ("change, though held by somebody,", held))
    wrong = ["%s %s" % (act, ", ".join(names)) for act, names in acts if names]
    if wrong:
        raise AptError(
            "apt would %s to install the driver %s; nothing was changed. gpustrap replaces only parts of the driver: "
            "remove or release these yourself, or plan another driver" % ("; and ".join(wrong), wanted.version),
            tail(simulation),
        )


def refuse_held(there: Dict[str, Package], todo: Step, ours: Iterable[str]) -> None:
    """Raise when somebody put a part of the driver that must move on hold."""
    moving = {word.partition("=")[0] for word in [*todo.install, *todo.along, *todo.remove]}
    held = sorted(name for name, package in there.items() if package.hold and name in moving and name not in set(ours))
    if held:
        raise AptError(
            "held by somebody: %s; nothing was changed. To let the planned driver in, on the node: "
            "sudo apt-mark unhold %s" % (", ".join(held), " ".join(held))
        )


def gone(specs: Sequence[str], versions: Dict[str, List[str]]) -> list[str]:
    """Those of ``name=version`` that cannot be had."""
    pairs = [(spec, *spec.partition("=")[::2]) for spec in specs]
    return [spec for spec, name, version in pairs if version and version not in versions.get(name, ())]
