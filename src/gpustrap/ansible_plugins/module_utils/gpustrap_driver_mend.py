"""Leaves dpkg healthy where a part of the driver is stuck, and says why it was. Standard library only."""

from __future__ import annotations

from . import gpustrap_apt as apt
from . import gpustrap_dkms as dkms
from .gpustrap_driver_plan import Known
from .gpustrap_node import dpkg
from .gpustrap_node.driver_set import Wanted, is_driver, upstream
from .gpustrap_node.host import Host


def broken(known: Known) -> list[str]:
    """Parts of the driver that dpkg left in the middle."""
    return [name for name in apt.half_installed(known) if is_driver(name)]


def finish(runner: apt.Runner) -> tuple[int, str]:
    """Let dpkg configure what it left in the middle; its exit status and output."""
    return runner.run(["dpkg", "--configure", "-a", *apt.KEEP_CONFIG])


def mend(runner: apt.Runner, host: Host, check_mode: bool) -> list[str]:
    """Finish what an interrupted run left; parts of the driver that cannot be configured go, to come again.

    Returns:
        One sentence for each act, also when it only would be done.
    """
    half = apt.half_installed(apt.installed_packages(host))
    if not half and not dpkg.journal(host):
        return []
    done = ["finish what dpkg left: " + ", ".join(half)]
    if check_mode:
        return done
    code, output = finish(runner)
    if code == 0:
        return done
    removed = remove_broken(runner, host)
    left = apt.half_installed(apt.installed_packages(host))
    if not all(map(is_driver, left)):
        raise apt.AptError("dpkg cannot finish %s" % ", ".join(left), apt.tail(output))
    # Cut off between two versions, they neither fit together nor go; the transaction brings all of them to one.
    return [*done, *(["remove %s, which could not be configured" % ", ".join(removed)] if removed else [])]


def remove_broken(runner: apt.Runner, host: Host) -> list[str]:
    """Remove the parts of the driver that cannot be configured, and what of it needs them; nothing else.

    A package whose build fails is of no use, and stops every later run of apt.
    """
    before = apt.installed_packages(host)
    stuck = broken(before)
    if not stuck:
        return []
    argv = ["apt-get", "-q", "-y", *apt.APT_OPTIONS, "remove", "--", *stuck]
    code, simulation = runner.run([argv[0], "-s", *argv[1:]], apt.ASK_SECONDS)
    others = [name for name in apt.parse_simulation(simulation)[2] if not is_driver(name)]
    if code or others:
        return []
    runner.run(argv)
    finish(runner)
    after = apt.installed_packages(host)
    return [
        n for n, p in sorted(before.items()) if ":" not in n and p.present and not (n in after and after[n].present)
    ]


def diagnosed(runner: apt.Runner, host: Host, wanted: Wanted, output: str) -> apt.AptError:
    """Why installing the driver failed, after dpkg was left as healthy as it can be."""
    version = upstream(wanted.version)
    failed = dkms.failures(host, output, version)
    builds = [build for build in failed if build.of_driver]
    others = [build for build in failed if not build.of_driver and not builds]
    removed = remove_broken(runner, host)
    left = apt.half_installed(apt.installed_packages(host))
    said = [] if builds else ["the driver %s could not be installed" % version]
    for build in builds or others:
        what = "the module of driver %s" % version if build.of_driver else "module %s, no part of it," % build.module
        said += ["%s does not build %s:" % (what, build.words), *("  " + line for line in build.errors)]
    if removed:
        said.append("removed, so that apt works: " + ", ".join(removed))
    if left:
        said.append("dpkg left in the middle: %s; see on the node: sudo dpkg --configure -a" % ", ".join(left))
    if others:
        remove = "; ".join("sudo dkms remove %s --all" % build.module for build in others)
        said.append("Mend that module, or remove it on the node: %s; then gpustrap apply NODE" % remove)
    if builds:
        said.append(
            "Boot a kernel that it builds for, or set gpustrap_driver_branch to a later branch; then gpustrap plan "
            "--upgrade NODE, and gpustrap apply NODE"
        )
    return apt.AptError("\n".join(said), "" if failed else apt.tail(output))
