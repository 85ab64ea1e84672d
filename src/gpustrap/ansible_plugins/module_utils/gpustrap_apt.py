"""What is wrong with apt and dpkg on a node, what may be repaired, what must be left to a person.

Runs on the node: standard library only, Python 3.8. Every command goes through one `Runner`, so that tests can
replay recorded output.
"""

from __future__ import annotations

import glob
import os
import re
import subprocess
import time
from typing import Callable, Dict, Iterable, List, Sequence, Set, Tuple

from .gpustrap_node import dpkg
from .gpustrap_node.host import Host

ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBIAN_PRIORITY": "critical",
    "APT_LISTCHANGES_FRONTEND": "none",
    "NEEDRESTART_MODE": "l",
}
KEEP_CONFIG = ("--force-confdef", "--force-confold")
APT_OPTIONS = (
    "-o",
    "Dpkg::Options::=--force-confdef",
    "-o",
    "Dpkg::Options::=--force-confold",
    "-o",
    "Dpkg::Use-Pty=0",
)
LISTS_FRESH_SECONDS = 3600
ACT_SECONDS = 1800
ASK_SECONDS = 300

Holder = Callable[[], "Tuple[str, int, str] | None"]


class AptError(Exception):
    """Something only a person may decide, or that did not work. ``evidence`` is the tool's own words."""

    def __init__(self, message: str, evidence: str = "") -> None:
        super().__init__(message)
        self.evidence = evidence


class Runner:
    """Runs commands and knows the clock; tests replace it."""

    def run(self, argv: Sequence[str], timeout: int = ACT_SECONDS) -> tuple[int, str]:
        """Run ``argv``; give its exit status, and stdout and stderr together."""
        try:
            done = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **ENVIRONMENT},
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AptError("%s did not end within %d s" % (" ".join(argv[:3]), timeout)) from None
        except OSError as error:
            return 127, str(error)
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def tail(text: str, lines: int = 20) -> str:
    """The last lines of a tool's output: enough for a person, not a wall."""
    return "\n".join(text.strip().splitlines()[-lines:])


# --- waiting -------------------------------------------------------------------------------------------------------


def held_lock(host: Host) -> tuple[str, int, str] | None:
    """The first package-manager lock that somebody holds: path, process id, command line."""
    for path in dpkg.LOCKS:
        held = dpkg.lock_holder(host, path)
        if held:
            return path, int(str(held["pid"])), str(held["command"])
    return None


def wait_for_locks(runner: Runner, seconds: int, holder: Holder) -> None:
    """Wait until nobody holds a package-manager lock. Lock files are never deleted, holders never killed."""
    deadline = runner.now() + seconds
    held = holder()
    while held:
        if runner.now() >= deadline:
            path, pid, command = held
            raise AptError(
                "another package manager has been busy for %d s: process %d (%s) holds %s"
                % (seconds, pid, command or "of unknown name", path)
            )
        runner.sleep(1)
        held = holder()


def wait_for_cloud_init(runner: Runner, seconds: int, root: str = "/") -> None:
    """Wait for cloud-init's first boot, which installs packages itself."""
    if not os.path.isdir(os.path.join(root, "run/cloud-init")):
        return
    deadline = runner.now() + seconds
    while "status: running" in runner.run(["cloud-init", "status"], timeout=60)[1]:
        if runner.now() >= deadline:
            raise AptError("cloud-init has not finished the first boot after %d s" % seconds)
        runner.sleep(2)


# --- what is installed ---------------------------------------------------------------------------------------------


def installed_packages(host: Host) -> dict[str, dpkg.Package]:
    """All packages dpkg knows."""
    known = dpkg.packages(host)
    if known is None:
        raise AptError("dpkg's database cannot be read; is this a Debian or Ubuntu machine?", "\n".join(host.notes))
    return known


def split_spec(spec: str) -> tuple[str, str]:
    """``name=version`` -> (name, version or "")."""
    name, _equals, version = spec.partition("=")
    return name, version


def missing_packages(specs: Iterable[str], known: Dict[str, dpkg.Package]) -> list[str]:
    """The specs that are not installed, or not in the version they name. On hold counts as installed."""
    missing = []
    for spec in specs:
        name, version = split_spec(spec)
        have = known.get(name)
        if have is None or have.state != "installed" or (version and version != have.version):
            missing.append(spec)
    return missing


def half_installed(known: Dict[str, dpkg.Package]) -> list[str]:
    """Packages that dpkg left in the middle: unpacked, half-configured, waiting for triggers."""
    return sorted({package.name for package in known.values() if not package.sound})


# --- simulations ---------------------------------------------------------------------------------------------------

INST = re.compile(r"^Inst (?P<name>[^ :]+)(?::\S+)?(?P<old> \[[^\]]*\])? \(")
REMV = re.compile(r"^(?:Remv|Purg) (?P<name>[^ :]+)")
UNMET = re.compile(r"(?:Pre-?)?Depends: (?P<wanted>[a-z0-9][a-z0-9+.-]+)")


def parse_simulation(text: str) -> tuple[list[str], list[str], list[str]]:
    """``apt-get -s`` -> (installed, changed in version, removed) package names, sorted."""
    installed: Set[str] = set()
    changed: Set[str] = set()
    removed: Set[str] = set()
    for line in text.splitlines():
        inst, remv = INST.match(line), REMV.match(line)
        if inst:
            (changed if inst.group("old") else installed).add(inst.group("name"))
        elif remv:
            removed.add(remv.group("name"))
    return sorted(installed), sorted(changed), sorted(removed)


def expected_repair(check_output: str) -> list[str]:
    """Packages that ``apt-get check`` names as missing dependencies: all that a repair may install."""
    return sorted({match.group("wanted") for match in UNMET.finditer(check_output)})


def refuse_unsafe_repair(simulation: str, expected: Iterable[str]) -> None:
    """Raise unless the simulated repair installs only the missing dependencies and touches nothing else."""
    installed, changed, removed = parse_simulation(simulation)
    acts: List[Tuple[str, List[str]]] = [
        ("remove", removed),
        ("change the version of", changed),
        ("install", sorted(set(installed) - set(expected))),
    ]
    wrong = ["%s %s" % (act, ", ".join(names)) for act, names in acts if names]
    if wrong:
        raise AptError(
            "dependencies are broken and apt's repair would %s; decide yourself with 'apt-get -s -f install' on the "
            "node" % "; ".join(wrong),
            tail(simulation),
        )


def refuse_removals(simulation: str, may_remove: Iterable[str]) -> None:
    """Raise when the simulated installation would remove packages nobody agreed to."""
    removed = sorted(set(parse_simulation(simulation)[2]) - set(may_remove))
    if removed:
        raise AptError("installing would remove %s; nothing was changed" % ", ".join(removed), tail(simulation))


# --- acts ----------------------------------------------------------------------------------------------------------


def check(runner: Runner) -> str:
    """``apt-get check``: empty when dependencies hold and the sources can be read, else its output."""
    code, output = runner.run(["apt-get", "check", "-q"], ASK_SECONDS)
    return output if code else ""


def lists_are_fresh(now: float, root: str = "/") -> bool:
    """Whether package lists are there and were fetched within the last hour.

    The lists themselves carry the archive's time; apt's scratch directory beside them tells when it fetched.
    """
    lists = os.path.join(root, "var/lib/apt/lists")
    scratch = os.path.join(lists, "partial")
    if not glob.glob(os.path.join(lists, "*Packages*")) or not os.path.isdir(scratch):
        return False
    return now - os.stat(scratch).st_mtime < LISTS_FRESH_SECONDS


def apt_get(runner: Runner, arguments: Sequence[str], lock_timeout: int) -> None:
    """Run apt-get, waiting for its locks; raise with its own words when it fails."""
    argv = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=%d" % lock_timeout, *APT_OPTIONS, *arguments]
    code, output = runner.run(argv)
    if code:
        raise AptError("apt-get %s failed" % " ".join(arguments), tail(output))


def update(runner: Runner, lock_timeout: int) -> None:
    """Fetch the package lists. A source that cannot be fetched is an error: old lists name versions that are gone."""
    apt_get(runner, ["-o", "APT::Update::Error-Mode=any", "update"], lock_timeout)


def simulate_install(runner: Runner, specs: Sequence[str]) -> tuple[bool, str]:
    """Simulate installing ``specs``: whether it works, and the simulation."""
    argv = ["apt-get", "-s", "-q", "--no-install-recommends", "--allow-downgrades", "install", "--", *specs]
    code, output = runner.run(argv, ASK_SECONDS)
    return code == 0, output
