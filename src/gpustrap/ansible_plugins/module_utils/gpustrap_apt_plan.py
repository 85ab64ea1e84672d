"""The order in which a node's apt is made healthy; the parts are in gpustrap_apt. Standard library only."""

from __future__ import annotations

try:  # on the node, as an Ansible module
    from ansible.module_utils import gpustrap_apt as apt
except ImportError:  # in the controller's tests
    from gpustrap.ansible_plugins.module_utils import gpustrap_apt as apt

PYTHON_APT = "python3-apt"


def ensure(runner, packages, may_remove, lock_timeout, check_mode, holder=apt.lock_holder, root="/"):
    """Make apt healthy and say what is to be installed; the module's result."""
    wanted = sorted(set(packages), key=packages.index)
    apt.wait_for_cloud_init(runner, lock_timeout)
    apt.wait_for_locks(runner, lock_timeout, holder=holder)

    repaired = repair(runner, lock_timeout, check_mode, root)
    known = apt.installed_packages(runner)
    missing = apt.missing_packages(wanted, known)
    bindings = apt.missing_packages([PYTHON_APT], known)
    result = {
        "changed": bool(repaired),
        "repaired": repaired,
        "install": missing,
        "would_follow": [],
        "claims": [{"kind": "package", "name": name} for name in claimed(wanted, missing)],
    }
    if not missing and not bindings:
        return result
    if check_mode:
        return foresee(runner, result, bindings, may_remove, repaired)
    fetch(runner, missing + bindings, may_remove, lock_timeout, root)
    if bindings:
        apt.apt_get(runner, "install", "--no-install-recommends", PYTHON_APT, lock_timeout=lock_timeout)
        result["changed"] = True
        result["install"] = apt.missing_packages(wanted, apt.installed_packages(runner))
    result["claims"] = [{"kind": "package", "name": name} for name in claimed(wanted, result["install"])]
    return result


def claimed(wanted, missing):
    """Names of the wanted packages that are there, and of the bindings, which are ours too."""
    return [PYTHON_APT] + [apt.split_spec(s)[0] for s in wanted if s not in missing and s != PYTHON_APT]


def repair(runner, lock_timeout, check_mode, root):
    """Finish what was interrupted and mend dependencies; one sentence for each, also when it only would be done."""
    repaired = []
    half = apt.half_installed(apt.installed_packages(runner))
    unfinished = ""
    if apt.interrupted(root) or half:
        repaired.append("finished an interrupted dpkg run" + (": " + ", ".join(half) if half else ""))
        if check_mode:
            return repaired
        code, output = runner.run(["dpkg", "--configure", "-a", *apt.KEEP_CONFIG])
        unfinished = output if code else ""
    broken = apt.check(runner)
    if broken:
        repaired.append(mend_dependencies(runner, broken, lock_timeout, check_mode, root))
    elif unfinished:
        raise apt.AptError("dpkg was interrupted and 'dpkg --configure -a' cannot finish it", apt.tail(unfinished))
    return repaired


def mend_dependencies(runner, broken, lock_timeout, check_mode, root):
    """Install the dependencies that ``apt-get check`` misses, if that is all it takes."""
    expected = apt.expected_repair(broken)
    if not expected:
        raise apt.AptError("apt does not work on this node", apt.tail(broken))
    if not check_mode and not apt.lists_are_fresh(runner.now(), root):
        apt.update(runner, lock_timeout)
    code, simulation = runner.run(["apt-get", "-s", "-q", "-f", "install"], timeout=300)
    if code:
        raise apt.AptError("apt's dependencies are broken and apt knows no repair", apt.tail(simulation))
    apt.refuse_unsafe_repair(simulation, expected)
    if not check_mode:
        apt.apt_get(runner, "-f", "install", lock_timeout=lock_timeout)
    return "installed missing dependencies: " + ", ".join(apt.parse_simulation(simulation)[0])


def fetch(runner, specs, may_remove, lock_timeout, root):
    """Make sure that apt can install ``specs`` without removing anything; fetches lists when they are old."""
    fresh = apt.lists_are_fresh(runner.now(), root)
    if not fresh:
        apt.update(runner, lock_timeout)
    works, simulation = apt.simulate_install(runner, specs)
    if not works and fresh:
        apt.update(runner, lock_timeout)
        works, simulation = apt.simulate_install(runner, specs)
    if not works:
        raise apt.AptError("apt cannot install %s" % ", ".join(specs), apt.tail(simulation))
    apt.refuse_removals(simulation, may_remove)


def foresee(runner, result, bindings, may_remove, repaired):
    """Check mode: what apt can simulate now is left to Ansible's own task; the rest would follow."""
    missing = result["install"]
    works, simulation = apt.simulate_install(runner, missing) if missing else (True, "")
    if works:
        apt.refuse_removals(simulation, may_remove)
    if bindings or repaired or not works:
        result["install"] = []
        result["would_follow"] = bindings + missing
        result["changed"] = True
        result["msg"] = "would follow: " + ", ".join(bindings + missing)
        result["diff"] = {"before": "", "after": result["msg"] + "\n"}
    return result
