"""The order in which a node's apt is made healthy; the parts are in gpustrap_apt. Standard library only."""

from __future__ import annotations

from functools import partial
from typing import Any, List, Sequence

from . import gpustrap_apt as apt
from .gpustrap_node import dpkg
from .gpustrap_node.driver_set import is_driver
from .gpustrap_node.host import Host

PYTHON_APT = "python3-apt"
KERNELS = ("linux-headers-", "linux-image-")


def ensure(
    runner: apt.Runner,
    host: Host,
    *,
    packages: Sequence[str],
    may_remove: Sequence[str],
    lock_timeout: int,
    check_mode: bool,
    holder: apt.Holder | None = None,
) -> dict[str, Any]:
    """Make apt healthy and say what is to be installed; the module's result."""
    wanted = list(dict.fromkeys(packages))
    apt.wait_for_cloud_init(runner, lock_timeout, host.root)
    apt.wait_for_locks(runner, lock_timeout, holder or partial(apt.held_lock, host))

    repaired = repair(runner, host, lock_timeout, check_mode)
    known = apt.installed_packages(host)
    missing = apt.missing_packages(wanted, known)
    bindings = apt.missing_packages([PYTHON_APT], known)
    if (missing or bindings) and not check_mode:
        fetch(runner, host, missing + bindings, may_remove, lock_timeout)
        if bindings:
            apt.apt_get(runner, ["--no-install-recommends", "install", PYTHON_APT], lock_timeout)
            missing = apt.missing_packages(wanted, apt.installed_packages(host))
    later = foresee(runner, missing, bindings, may_remove, repaired) if check_mode else []
    done = [*repaired, *("would follow: " + name for name in later)]
    return {
        "changed": bool(repaired or bindings or later),
        "repaired": repaired,
        "install": [] if later else missing,
        "would_follow": later,
        "claims": claims(wanted, missing),
        "diff": {"before": "", "after": "".join(line + "\n" for line in done)},
    }


def claims(wanted: Sequence[str], missing: Sequence[str]) -> list[dict[str, str]]:
    """The wanted packages that are there, and the bindings, which are ours too."""
    names = [PYTHON_APT, *(apt.split_spec(spec)[0] for spec in wanted if spec not in missing)]
    return [{"kind": "package", "name": name} for name in dict.fromkeys(names)]


def repair(runner: apt.Runner, host: Host, lock_timeout: int, check_mode: bool) -> list[str]:
    """Finish what was interrupted and mend dependencies; one sentence for each, also when it only would be done."""
    repaired: List[str] = []
    half = apt.half_installed(apt.installed_packages(host))
    unfinished = ""
    if dpkg.journal(host) or half:
        repaired.append("finished an interrupted dpkg run" + (": " + ", ".join(half) if half else ""))
        if check_mode:
            return repaired
        code, output = runner.run(["dpkg", "--configure", "-a", *apt.KEEP_CONFIG])
        unfinished = output if code else ""
    broken = apt.check(runner)
    mended = mend_dependencies(runner, host, broken, lock_timeout, check_mode) if broken else ""
    if mended:
        repaired.append(mended)
    elif unfinished and not _is_the_drivers(host):
        raise apt.AptError("dpkg was interrupted and 'dpkg --configure -a' cannot finish it", apt.tail(unfinished))
    return repaired


def _is_the_drivers(host: Host) -> bool:
    """Whether all that is left are parts of NVIDIA's driver: a module that does not build is its role's to mend.

    Headers and images of a kernel run DKMS when they are configured, and are left with it.
    """
    left = apt.half_installed(apt.installed_packages(host))
    return any(map(is_driver, left)) and all(is_driver(name) or name.startswith(KERNELS) for name in left)


def mend_dependencies(runner: apt.Runner, host: Host, broken: str, lock_timeout: int, check_mode: bool) -> str:
    """Install the dependencies that ``apt-get check`` misses, if that is all it takes; else refuse.

    A driver that was cut off between two versions is left to its role, which brings all its parts to the locked one.
    """
    expected = apt.expected_repair(broken)
    if not expected:
        raise apt.AptError("apt does not work on this node", apt.tail(broken))
    if not check_mode and not apt.lists_are_fresh(runner.now(), host.root):
        apt.update(runner, lock_timeout)
    code, simulation = runner.run(["apt-get", "-s", "-q", "-f", "install"], apt.ASK_SECONDS)
    if code:
        raise apt.AptError("dependencies are broken and apt knows no repair", apt.tail(simulation))
    _installed, changed, removed = acts = apt.parse_simulation(simulation)
    if (changed or removed) and all(is_driver(name) for names in acts for name in names):
        return ""
    apt.refuse_unsafe_repair(simulation, expected)
    if not check_mode:
        apt.apt_get(runner, ["-f", "install"], lock_timeout)
    return "installed missing dependencies: " + ", ".join(apt.parse_simulation(simulation)[0])


def fetch(runner: apt.Runner, host: Host, specs: Sequence[str], may_remove: Sequence[str], lock_timeout: int) -> None:
    """Make sure that apt can install ``specs`` without removing anything; fetches lists when they are old."""
    fresh = apt.lists_are_fresh(runner.now(), host.root)
    if not fresh:
        apt.update(runner, lock_timeout)
    works, simulation = apt.simulate_install(runner, specs)
    if not works and fresh:
        apt.update(runner, lock_timeout)
        works, simulation = apt.simulate_install(runner, specs)
    if not works:
        raise apt.AptError("apt cannot install %s" % ", ".join(specs), apt.tail(simulation))
    apt.refuse_removals(simulation, may_remove)


def foresee(
    runner: apt.Runner,
    missing: Sequence[str],
    bindings: Sequence[str],
    may_remove: Sequence[str],
    repaired: Sequence[str],
) -> list[str]:
    """Check mode: what cannot be simulated yet and would follow; empty when Ansible's own task can simulate it."""
    works, simulation = apt.simulate_install(runner, missing) if missing else (True, "")
    if works:
        apt.refuse_removals(simulation, may_remove)
    return [*bindings, *missing] if bindings or repaired or not works else []
