"""Health of apt and dpkg on a node: what is wrong, what may be repaired, what must be left to a person.

Runs on the node: standard library only, Python 3.8. Every command goes through one `Runner`, so that tests can
replay recorded output.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import re
import struct
import subprocess
import time

LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBIAN_PRIORITY": "critical",
    "APT_LISTCHANGES_FRONTEND": "none",
    "NEEDRESTART_MODE": "l",
}
KEEP_CONFIG = ("--force-confdef", "--force-confold")
APT_QUIET = ("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold", "-o", "Dpkg::Use-Pty=0")
LISTS_FRESH_SECONDS = 3600
COMMAND_SECONDS = 1800


class AptError(Exception):
    """Something only a person may decide, or that did not work. ``evidence`` is the tool's own words."""

    def __init__(self, message, evidence=""):
        super().__init__(message)
        self.evidence = evidence


class Runner(object):
    """Runs commands and knows the clock; tests replace it."""

    def run(self, argv, timeout=COMMAND_SECONDS):
        """Run ``argv``; give ``(exit status, stdout and stderr together)``."""
        environment = dict(os.environ)
        environment.update(ENVIRONMENT)
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AptError("%s did not end within %d s" % (" ".join(argv[:3]), timeout))
        except OSError as error:
            return 127, str(error)
        return done.returncode, done.stdout.decode("utf-8", "replace")

    now = staticmethod(time.time)
    sleep = staticmethod(time.sleep)


def tail(text, lines=20):
    """The last lines of a tool's output: enough for a person, not a wall."""
    return "\n".join(text.strip().splitlines()[-lines:])


# --- locks ---------------------------------------------------------------------------------------------------------


def lock_holder(path):
    """Process id that holds the POSIX lock on ``path``, 0 if free. Asks the kernel; never takes the lock."""
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return 0
        raise
    try:
        answer = fcntl.fcntl(handle, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    finally:
        os.close(handle)
    kind, _whence, _start, _length, pid = struct.unpack("hhqqi4x", answer)
    return 0 if kind == fcntl.F_UNLCK else pid


def process_name(pid):
    """Command line of a process, shortened; empty when it is gone or in another namespace."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as stream:
            return stream.read(200).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def wait_for_locks(runner, seconds, holder=lock_holder, locks=LOCKS):
    """Wait until nobody holds a package-manager lock. Lock files are never deleted, holders never killed."""
    deadline = runner.now() + seconds
    while True:
        held = [(path, pid) for path, pid in ((path, holder(path)) for path in locks) if pid]
        if not held:
            return
        if runner.now() >= deadline:
            path, pid = held[0]
            raise AptError(
                "another package manager has been busy for %d s: process %d (%s) holds %s"
                % (seconds, pid, process_name(pid) or "of unknown name", path)
            )
        runner.sleep(1)


def wait_for_cloud_init(runner, seconds):
    """Wait for cloud-init's first boot, which installs packages itself."""
    if not os.path.exists("/usr/bin/cloud-init") or not os.path.isdir("/run/cloud-init"):
        return
    deadline = runner.now() + seconds
    while "status: running" in runner.run(["/usr/bin/cloud-init", "status"], timeout=60)[1]:
        if runner.now() >= deadline:
            raise AptError("cloud-init has not finished the first boot after %d s" % seconds)
        runner.sleep(2)


# --- what is installed ---------------------------------------------------------------------------------------------


def parse_status(text):
    """``dpkg-query -W -f '${binary:Package}\\t${db:Status-Abbrev}\\t${Version}\\n'`` -> name -> (status, version)."""
    found = {}
    for line in text.splitlines():
        name, _tab, rest = line.partition("\t")
        status, _tab, version = rest.partition("\t")
        if version or status:
            found[name.split(":")[0]] = (status.strip(), version.strip())
    return found


def installed_packages(runner):
    """All packages dpkg knows, with status and version."""
    code, output = runner.run(
        ["dpkg-query", "-W", "-f", "${binary:Package}\\t${db:Status-Abbrev}\\t${Version}\\n"], timeout=60
    )
    if code:
        raise AptError("dpkg's database cannot be read", tail(output))
    return parse_status(output)


def split_spec(spec):
    """``name=version`` -> (name, version or "")."""
    name, _equals, version = spec.partition("=")
    return name, version


def missing_packages(specs, known):
    """The specs that are not installed, or not in the version they name. On hold counts as installed."""
    missing = []
    for spec in specs:
        name, version = split_spec(spec)
        status, have = known.get(name, ("", ""))
        if status[1:2] != "i" or (version and version != have):
            missing.append(spec)
    return missing


def half_installed(known):
    """Packages that dpkg left in the middle: unpacked, half-configured, waiting for triggers."""
    return sorted(name for name, (status, _version) in known.items() if status[1:2] in tuple("HUFWt") or status[2:])


# --- simulations ---------------------------------------------------------------------------------------------------

INST = re.compile(r"^Inst (?P<name>[^ :]+)(?::\S+)?(?P<old> \[[^\]]*\])? \((?P<new>\S+)")
REMV = re.compile(r"^(?:Remv|Purg) (?P<name>[^ :]+)")
CONF = re.compile(r"^Conf (?P<name>[^ :]+)")


def parse_simulation(text):
    """``apt-get -s`` -> (installed, upgraded, removed) package names, sorted."""
    installed, upgraded, removed = set(), set(), set()
    for line in text.splitlines():
        inst, remv = INST.match(line), REMV.match(line)
        if inst:
            (upgraded if inst.group("old") else installed).add(inst.group("name"))
        elif remv:
            removed.add(remv.group("name"))
    return sorted(installed), sorted(upgraded), sorted(removed)


UNMET = re.compile(r"(?:Pre)?Depends: (?P<wanted>[a-z0-9][a-z0-9+.-]+)")


def expected_repair(check_output):
    """Packages that ``apt-get check`` names as the missing dependencies: all that a repair may install."""
    return sorted({match.group("wanted") for match in UNMET.finditer(check_output)})


def refuse_unsafe_repair(simulation, expected):
    """Raise unless the simulated repair installs only the missing dependencies and touches nothing else."""
    installed, upgraded, removed = parse_simulation(simulation)
    unexpected = sorted(set(installed) - set(expected))
    wrong = []
    if removed:
        wrong.append("remove " + ", ".join(removed))
    if upgraded:
        wrong.append("change the version of " + ", ".join(upgraded))
    if unexpected:
        wrong.append("install " + ", ".join(unexpected))
    if wrong:
        raise AptError(
            "apt's dependencies are broken and its repair would %s; look at 'apt-get -s -f install' on the node and "
            "decide yourself" % "; ".join(wrong),
            tail(simulation),
        )


# --- acts ----------------------------------------------------------------------------------------------------------


def interrupted(root="/"):
    """Whether dpkg was interrupted: its journal of updates is not empty (what apt itself looks at)."""
    return any(os.path.basename(p).isdigit() for p in glob.glob(os.path.join(root, "var/lib/dpkg/updates/*")))


def check(runner):
    """``apt-get check``: empty when dependencies hold and the sources can be read, else its output."""
    code, output = runner.run(["apt-get", "check", "-q"], timeout=300)
    return output if code else ""


def lists_are_fresh(now, root="/", seconds=LISTS_FRESH_SECONDS):
    """Whether package lists are there and were fetched within the last hour."""
    lists = glob.glob(os.path.join(root, "var/lib/apt/lists/*Packages*"))
    if not lists:
        return False
    stamp = os.path.join(root, "var/lib/apt/lists/partial")
    newest = max(os.stat(path).st_mtime for path in lists + ([stamp] if os.path.exists(stamp) else []))
    return now - newest < seconds


def apt_get(runner, *arguments, **options):
    """Run apt-get, waiting for its locks; raise with its own words when it fails."""
    lock_timeout = options.pop("lock_timeout")
    argv = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=%d" % lock_timeout]
    argv.extend(APT_QUIET)
    argv.extend(arguments)
    code, output = runner.run(argv)
    if code:
        raise AptError("apt-get %s failed" % " ".join(a for a in arguments if not a.startswith("-")), tail(output))
    return output


def update(runner, lock_timeout):
    """Fetch the package lists. A source that cannot be fetched is an error: old lists name versions that are gone."""
    apt_get(runner, "-o", "APT::Update::Error-Mode=any", "update", lock_timeout=lock_timeout)


def simulate_install(runner, specs):
    """Simulate installing ``specs``: ``(works, output)``."""
    code, output = runner.run(
        ["apt-get", "-s", "-q", "--no-install-recommends", "--allow-downgrades", "install", "--"] + list(specs),
        timeout=300,
    )
    return code == 0, output


def refuse_removals(simulation, may_remove):
    """Raise when the simulated installation would remove packages nobody agreed to."""
    removed = sorted(set(parse_simulation(simulation)[2]) - set(may_remove))
    if removed:
        raise AptError(
            "installing would remove %s; nothing was changed" % ", ".join(removed),
            tail(simulation),
        )
