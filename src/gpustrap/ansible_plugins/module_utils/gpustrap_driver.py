"""The order in which a node gets exactly the locked driver; the parts are in gpustrap_driver_plan and gpustrap_dkms.

Runs on the node: standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager
from functools import partial
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence

from . import gpustrap_apt as apt
from . import gpustrap_dkms as dkms
from . import gpustrap_driver_files as files
from . import gpustrap_driver_plan as plan
from .gpustrap_driver_mend import diagnosed, finish, mend
from .gpustrap_host import write_text
from .gpustrap_node.driver_set import Wanted, is_fabric
from .gpustrap_node.host import Host

MADISON = re.compile(r"^ *(\S+) \| +(\S+) \|", re.MULTILINE)
MAIN = "/etc/apt/preferences"


class Asked(NamedTuple):
    """What the role wants.

    Attributes:
        wanted: The locked driver.
        kernel_packages: Templates of what its modules need, with ``{kernel}``.
        pin: ``preferences`` or ``hold``.
        lock_timeout: Seconds to wait for other package managers.
        refresh: A repository was added since the package lists were fetched.
        running: The running kernel.
    """

    wanted: Wanted
    kernel_packages: List[str]
    pin: str
    lock_timeout: int
    refresh: bool
    running: str


class Driver:
    """One run on one node."""

    def __init__(self, runner: apt.Runner, host: Host, asked: Asked, check_mode: bool) -> None:
        self.runner = runner
        self.host = host
        self.asked = asked
        self.check_mode = check_mode
        self.done: List[str] = []  # one sentence each, also of what only would be done
        self.warnings: List[str] = []
        self.kernels = dkms.bootable(host, asked.running)
        self.metapackages = files.kernel_metapackages(asked.kernel_packages)
        self.held = self._to_hold() if asked.pin == "hold" else []
        self.held_before = files.held_by_us(host.read(files.PREFERENCES) or "")

    def ensure(self) -> dict[str, Any]:
        """Do it; the module's result."""
        asked, host = self.asked, self.host
        if not self.check_mode:
            apt.wait_for_cloud_init(self.runner, asked.lock_timeout, host.root)
            apt.wait_for_locks(self.runner, asked.lock_timeout, partial(apt.held_lock, host))
        self.done += mend(self.runner, host, self.check_mode)
        with self._pins() as pins:
            todo, follows = self._look(pins)
        # Until they are released, what an earlier lock held is remembered.
        self._write(files.PREFERENCES, self._preferences([*self.held, *self.held_before]))
        self._write(files.UPGRADES, files.upgrades(self.metapackages))
        if not (todo.empty or follows):
            self._transaction(todo)
        if not follows:
            self._modules()
            self._holds()
        would = ["would follow: " + word for word in follows]
        return {
            "changed": bool(self.done or would),
            "would_follow": follows,
            "done": self.done,
            "warnings": self.warnings,
            "claims": self._claims(),
            "diff": {"before": "", "after": "".join(line + "\n" for line in [*self.done, *would])},
        }

    def _to_hold(self) -> list[str]:
        """The driver; and the kernel, where its modules are prebuilt and can only move together with it."""
        asked, held = self.asked, [*self.asked.wanted.packages]
        if asked.wanted.module == "prebuilt":
            known = apt.installed_packages(self.host)
            held += [n for n in self.metapackages if n in asked.kernel_packages or (n in known and known[n].present)]
        return sorted(held)

    # --- what is to be done ------------------------------------------------------------------------------------

    def _look(self, pins: Sequence[str]) -> tuple[plan.Step, list[str]]:
        """What apt is asked for; and in check mode, what cannot be looked at before a repository is there."""
        fresh = self.asked.refresh and not self.check_mode
        if fresh:
            apt.update(self.runner, self.asked.lock_timeout)
        todo, gone = self._step()
        # Old lists name versions of compiler and headers that the archive dropped, and apt then fetches what is gone.
        old = not todo.empty and not apt.lists_are_fresh(self.runner.now(), self.host.root)
        if (gone or old) and not self.check_mode and not fresh:
            apt.update(self.runner, self.asked.lock_timeout)
            todo, gone = self._step()
        if gone and self.check_mode:
            return todo, todo.words()
        if gone:
            raise apt.AptError(
                "apt does not have %s; run gpustrap plan --upgrade NODE, then gpustrap apply NODE" % ", ".join(gone)
            )
        if todo.empty:
            return todo, []
        there = plan.installed_driver(apt.installed_packages(self.host))
        plan.refuse_held(there, todo, self._ours())
        return self._simulated(todo, pins), []

    def _step(self) -> tuple[plan.Step, list[str]]:
        """What is to be done, and which of it apt does not have."""
        known, wanted = apt.installed_packages(self.host), self.asked.wanted
        gcc = plan.compiler(self.host.read("/proc/version") or "") if wanted.module == "dkms" else ""
        kernels = [t.replace(plan.KERNEL, k) for t in self.asked.kernel_packages for k in self.kernels]
        theirs = {name for name, package in known.items() if package.hold and name not in self.held_before}
        with_driver = [name for name in self.held if name not in wanted.packages and name not in theirs]
        names = {*wanted.packages, *plan.installed_driver(known), *kernels, *with_driver, *([gcc] if gcc else [])}
        versions = self._versions(sorted(names))
        for_kernel = plan.for_kernels(self.asked.kernel_packages, self.kernels, known, versions.__contains__)
        for_kernel = [name for name in for_kernel if name in versions or not self._needless(name, known)]
        for_kernel += [gcc] if gcc in versions else []
        todo = plan.step(wanted, for_kernel, known, versions)
        if any("=" in word for word in todo.install):  # prebuilt modules are of one driver, and of one kernel
            todo.install.extend(plan.outdated(with_driver, known, versions))
        without = [name for name in todo.install if "=" not in name and name not in versions]
        return todo, [*plan.gone(todo.install, versions), *(self._headers(name) for name in without)]

    def _needless(self, name: str, known: plan.Known) -> bool:
        """Headers under another name, as kernels that are none of the distribution's have them."""
        installed = name in known and known[name].state == "installed"
        return self.asked.running in name and not installed and dkms.has_headers(self.host, self.asked.running)

    def _headers(self, name: str) -> str:
        other = self.kernels[1:] if self.asked.running in name else []
        if not other:
            return name
        return "%s (kernel %s is installed: reboot the node into it first)" % (name, other[0])

    def _versions(self, names: Sequence[str]) -> Dict[str, List[str]]:
        output = self.runner.run(["apt-cache", "madison", "--", *names], apt.ASK_SECONDS)[1]
        found: Dict[str, List[str]] = {}
        for name, version in MADISON.findall(output):
            found.setdefault(name, []).append(version)
        return found

    def _simulated(self, todo: plan.Step, pins: Sequence[str]) -> plan.Step:
        """The transaction that works, and replaces nothing but the driver's own parts.

        Most parts that are there move along because packages depend on them. The others are asked for by name; where
        that is impossible, apt decides what becomes of them.
        """
        output = self._simulate(todo._replace(along=[]), pins)
        moved = {name for names in apt.parse_simulation(output) for name in names}
        left = todo._replace(along=[word for word in todo.along if word.partition("=")[0] not in moved])
        if left.along:
            try:
                output = self._simulate(left, pins)
            except apt.AptError:
                left = todo._replace(along=[])
        plan.refuse_more(output, self.asked.wanted, self._ours())
        return left._replace(remove=list(dict.fromkeys([*left.remove, *plan.removed(output)])))

    def _simulate(self, todo: plan.Step, pins: Sequence[str]) -> str:
        code, output = self.runner.run(["apt-get", "-s", *self._words(todo, pins)], apt.ASK_SECONDS)
        if code:
            raise apt.AptError("apt cannot install %s" % ", ".join(todo.words()), apt.tail(output))
        return output

    def _words(self, todo: plan.Step, pins: Sequence[str]) -> list[str]:
        return [
            *("-q", "-y", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"),
            *("-o", "DPkg::Lock::Timeout=%d" % self.asked.lock_timeout, *apt.APT_OPTIONS, *pins),
            *("install", "--", *todo.words()),
        ]

    def _ours(self) -> list[str]:
        """Packages whose hold is ours to move; where we hold the driver, we hold the fabric's with it."""
        if not self.held_before:
            return []
        return [*self.held_before, *self.asked.wanted.packages, *filter(is_fabric, apt.installed_packages(self.host))]

    # --- acts --------------------------------------------------------------------------------------------------

    def _transaction(self, todo: plan.Step) -> None:
        known = apt.installed_packages(self.host)
        self.done += ["%s %s" % (_verb(word, known), word) for word in [*todo.install, *todo.along]]
        why = {name: self.asked.wanted.in_the_way(name) or "apt cannot keep beside it" for name in todo.remove}
        self.done += ["remove %s, which %s" % one for one in why.items()]
        if self.check_mode:
            return
        names = [word.partition("=")[0] for word in todo.along]
        automatic = [name for name in names if self._is_automatic(name)]
        argv = ["apt-get", *self._words(todo, [])]
        code, output = self.runner.run(argv)
        # Driver, headers and compiler are configured in any order: a build that came too early succeeds now.
        if code and apt.half_installed(apt.installed_packages(self.host)) and finish(self.runner)[0] == 0:
            code, output = self.runner.run(argv)
        if code:
            raise diagnosed(self.runner, self.host, self.asked.wanted, output)
        self._mark("auto", automatic)  # who is asked for by name is automatic no more

    def _modules(self) -> None:
        """Every kernel that may boot has the module; a build that did not take place is made up for."""
        lacking = dkms.without_module(self.host, self.kernels)
        if self.asked.wanted.module != "dkms" or self.check_mode or not lacking:
            return
        for kernel in lacking:
            if not dkms.has_headers(self.host, kernel):
                self.warnings.append("kernel %s boots next and has no driver: apt has no headers of it" % kernel)
                continue
            output = self.runner.run(["dkms", "autoinstall", "-k", kernel])[1]
            if dkms.without_module(self.host, [kernel]):  # its exit status is that of all modules, also of others'
                raise diagnosed(self.runner, self.host, self.asked.wanted, output)
            self.done.append("build the module for kernel %s" % kernel)

    def _holds(self) -> None:
        """The packages that are to stay, and those of an earlier lock that may go; what is ours is not automatic."""
        known = apt.installed_packages(self.host)
        hold = [name for name in self.held if name in known and known[name].present and not known[name].hold]
        release = [n for n in self.held_before if n not in self.held and n in known and known[n].hold]
        automatic = [name for name in self.asked.wanted.packages if self._is_automatic(name)]
        for verb, names in (("hold", hold), ("unhold", release), ("manual", automatic)):
            if names:
                self.done.append("apt-mark %s %s" % (verb, " ".join(names)))
                self._mark(verb, names)
        if not self.check_mode:
            self._write(files.PREFERENCES, self._preferences(self.held))

    def _mark(self, verb: str, names: Sequence[str]) -> None:
        if not names or self.check_mode:
            return
        code, output = self.runner.run(["apt-mark", verb, "--", *names])
        if code:
            raise apt.AptError("apt-mark %s %s failed" % (verb, " ".join(names)), apt.tail(output))

    def _is_automatic(self, name: str) -> bool:
        """Whether apt's autoremove might take it away one day."""
        states = self.host.read("/var/lib/apt/extended_states") or ""
        return bool(re.search(r"^Package: %s\n(?:\S.*\n)*?Auto-Installed: 1$" % re.escape(name), states, re.MULTILINE))

    def _preferences(self, held: Sequence[str]) -> str:
        return files.preferences(self.asked.wanted, self.asked.pin, sorted(set(held)))

    # --- files -------------------------------------------------------------------------------------------------

    def _write(self, path: str, text: str) -> None:
        if (self.host.read(path) or "") == text:
            return
        self.done.append("write %s" % path)
        if not self.check_mode:
            where = self.host.path(path)
            os.makedirs(os.path.dirname(where), mode=0o755, exist_ok=True)
            write_text(where, text)

    @contextmanager
    def _pins(self) -> Iterator[list[str]]:
        """Options with which apt takes our preferences before they are written: what is refused changes nothing."""
        with tempfile.NamedTemporaryFile("w", prefix="gpustrap-", encoding="utf-8") as scratch:
            scratch.write(self._preferences(self.held) + "\n" + (self.host.read(MAIN) or ""))
            scratch.flush()
            os.chmod(scratch.name, 0o644)
            yield ["-o", "Dir::Etc::Preferences=" + scratch.name]

    def _claims(self) -> list[dict[str, str]]:
        known = apt.installed_packages(self.host)
        for_kernel = [name.replace(plan.KERNEL, self.asked.running) for name in self.asked.kernel_packages]
        names = dict.fromkeys([*self.asked.wanted.packages, *for_kernel])
        found = [{"kind": "package", "name": name} for name in names if name in known and known[name].present]
        return [*found, {"kind": "file", "name": files.PREFERENCES}, {"kind": "file", "name": files.UPGRADES}]


def _verb(word: str, known: plan.Known) -> str:
    have = known.get(word.partition("=")[0])
    return "replace %s by" % have.version if have and have.present else "install"
