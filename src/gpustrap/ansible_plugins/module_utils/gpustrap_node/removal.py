"""What of a node's packages and files gpustrap installed, and may take away again; it decides and changes nothing.

The ledger says which role claimed what, the note from before the first run which packages were there already, and apt
which others need one of them. What is not certain stays.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Sequence, Set, Tuple

from . import dpkg, ledger
from .holders import holders
from .host import Host, NodeError
from .observe import observe_all

PARTS = {"driver": ("nvidia_driver", "nvidia_fabric_manager"), "cuda": ("cuda_toolkit",)}
# One entry and key of NVIDIA's repository for all of these roles; the ledger gives it to the last that claimed it.
SHARING = ("nvidia_driver", "nvidia_fabric_manager", "cuda_toolkit")
SHARED = ("/etc/apt/keyrings/gpustrap-nvidia.gpg", "/etc/apt/sources.list.d/gpustrap-nvidia.sources")
OURS = re.compile(r"/(\d+-?)?gpustrap[.-][^/]*\Z")  # the names of files that are nobody else's
KERNEL = re.compile(r"linux-(?!(modules|objects|signatures)-nvidia-)")  # other modules may be built with them
PREFERENCES = "/etc/apt/preferences.d/gpustrap-nvidia-driver"
HELD = re.compile(r"^# Held by gpustrap: (.*)$", re.MULTILINE)  # as gpustrap_driver_files writes it
EXTENDED = "/var/lib/apt/extended_states"
AUTOMATIC = re.compile(r"^Package: (\S+)\n(?:\S.*\n)*?Auto-Installed: 1$", re.MULTILINE)
INST = re.compile(r"^Inst ([^ :]+)", re.MULTILINE)
REMV = re.compile(r"^(?:Remv|Purg) ([^ :]+)", re.MULTILINE)
# What something merely suggests counts as needless: perl suggests make, which only dkms brought.
NEEDLESS = ("-o", "APT::AutoRemove::SuggestsImportant=false", "--autoremove")
SIMULATE_SECONDS = 60.0

Resources = List[Dict[str, Any]]
Simulate = Callable[[Sequence[str], bool], str]


class Removal(NamedTuple):
    """What goes, and what of the same role stays.

    Attributes:
        packages: Names; what came with them and nothing needs any more is among them.
        files: Paths.
        units: Units of ours, which are stopped and disabled.
        released: Packages that stay, and that a role put on hold, as it does with the kernel of prebuilt modules.
        kept: ``WHAT: why``, one each.
        forgotten: What the ledger need not have any more, by kind and name.
    """

    packages: List[str]
    files: List[str]
    units: List[str]
    released: List[str]
    kept: List[str]
    forgotten: List[Tuple[str, str]]


def removal(host: Host, args: dict[str, object]) -> dict[str, object]:
    """Answer the verb.

    Args:
        host: The machine.
        args: ``{"part": one of PARTS, "wanted": roles of the lock, "gpu_users": "refuse" or "allow"}``.

    Raises:
        NodeError: Something speaks against it.
    """
    part, wanted = args.get("part"), args.get("wanted", [])
    if part not in PARTS or not isinstance(wanted, list):
        raise NodeError("bad-request", "part is one of %s, wanted a list of roles" % ", ".join(PARTS))
    found = look(host, str(part), wanted, partial(simulate, host))
    if args.get("gpu_users") != "allow":
        refuse_users(host, str(part), found)
    shown = found._asdict()
    del shown["forgotten"]
    return shown


def refuse_users(host: Host, part: str, found: Removal) -> None:
    """Without the driver's libraries, what runs on the GPUs would break at its next step.

    Raises:
        NodeError: Processes have the GPUs open.
    """
    users = [one.words for one in holders(host)] if part == "driver" and found.packages else []
    if users:
        raise NodeError("gpus-in-use", "processes have the GPUs open: %s" % "; ".join(users))


def look(host: Host, part: str, wanted: Sequence[str], simulation: Simulate) -> Removal:
    """What goes and what stays on this machine, whoever uses its GPUs.

    Raises:
        NodeError: It is still wanted, nobody knows what is ours, or something else needs it.
    """
    roles = PARTS[part]
    still = sorted(set(roles) & set(wanted))
    if still:
        raise NodeError("still-wanted", "the lock still has %s for this node" % " and ".join(still))
    resources = _resources(host)
    known, before = dpkg.packages(host), ledger.before(host)
    if known is None:
        raise NodeError("no-dpkg", "only what apt installed can be removed by gpustrap as yet, and there is no dpkg")
    if before is None:
        raise NodeError(
            "no-note-from-before",
            "nobody wrote down which packages were there before gpustrap (%s), so none is known to be its own"
            % ledger.BEFORE,
        )
    mine = [one for one in resources if one["role"] in roles]
    names, kept = own_packages(mine, known, before.packages)
    names = with_company(names, before.packages, automatic(host), simulation) if names else []
    shared = _shared(resources, roles, wanted, known, set(names))
    files, kept_files = own_files(host, [*mine, *shared], {one["name"] for one in shared})
    units = [one["name"] for one in mine if one["kind"] == "unit" and one["name"].startswith("gpustrap-")]
    forgotten = [(o["kind"], o["name"]) for o in mine if o["name"] not in SHARED] + [("file", f) for f in files]
    released = held(host, known, before.holds) if part == "driver" else []
    released = [name for name in released if name not in names]
    return Removal(names, files, sorted(set(units)), released, [*kept, *kept_files], forgotten)


def _resources(host: Host) -> Resources:
    """All that roles claimed in any run; what was claimed last is believed."""
    found = ledger.read(host, {})
    if found["unknown"]:
        raise NodeError("ledger-unreadable", str(found["unknown"]))
    there = found["ledger"]
    if not isinstance(there, dict):
        raise NodeError("no-ledger", "no run of gpustrap was recorded here, so nothing is known to be its own")
    return [*there["resources"], *there.get("left", [])]


def own_packages(
    mine: Resources, known: Dict[str, dpkg.Package], before: Dict[str, str]
) -> Tuple[List[str], List[str]]:
    """The packages that a role claimed and that came with gpustrap; and those that stay, each with the reason.

    Raises:
        NodeError: Somebody put one of them on hold.
    """
    names, kept, foreign = set(), [], []
    for one in mine:
        name = one["name"]
        package = known.get(name)
        if one["kind"] != "package" or package is None or not package.present:
            continue
        if name in before:
            kept.append("%s: was there before gpustrap, as version %s" % (name, before[name]))
        elif KERNEL.match(name):
            kept.append("%s: belongs to the kernel, and other modules may be built with it" % name)
        elif package.hold and not one["state"].get("hold"):
            foreign.append(name)
        else:
            names.add(name)
    if foreign:
        words = (foreign[0], " ".join(foreign))
        raise NodeError("held", "somebody put %s on hold. To let it go: sudo apt-mark unhold %s" % words)
    return sorted(names), sorted(kept)


def with_company(
    names: Sequence[str],
    before: Dict[str, str],
    came_along: Iterable[str],
    simulation: Simulate,
) -> List[str]:
    """Our packages, and those that apt brought along with them and that nothing needs without them.

    Args:
        names: What roles claimed.
        before: What was there before the first run.
        came_along: Packages that nobody asked for by name.
        simulation: Gives what apt would do if it removed these, with or without what is then needless.

    Raises:
        NodeError: Another package needs one of them, or apt would do more than remove.
    """
    theirs, going = set(came_along) - set(before), set(names)
    while True:
        output = simulation(sorted(going), False)
        others = set(REMV.findall(output)) - going
        asked_for = sorted(others - theirs)
        if asked_for:
            raise NodeError(
                "others-need-it",
                "apt would remove %s as well, which gpustrap did not install. If it may go: sudo apt-get remove %s"
                % (", ".join(asked_for), " ".join(asked_for)),
            )
        if INST.search(output):
            raise NodeError("more-than-removal", "apt would install or change %s" % ", ".join(INST.findall(output)))
        if not others:
            break
        going |= others
    needless = set(REMV.findall(simulation(sorted(going), True))) - set(REMV.findall(simulation([], True)))
    company = {name for name in needless & theirs - going if not KERNEL.match(name)}
    going |= company
    if company and set(REMV.findall(simulation(sorted(going), False))) - going:
        raise NodeError("others-need-it", "apt would remove more than %s" % ", ".join(sorted(going)))
    return sorted(going)


def own_files(host: Host, mine: Resources, shared: Set[str]) -> Tuple[List[str], List[str]]:
    """Our files that are as we left them; and what stays, each with the reason."""
    claimed = {one["name"]: one["state"] for one in mine if one["kind"] == "file"}
    for name in SHARED:
        if name not in shared:
            claimed.pop(name, None)
    files, kept = [], []
    names = sorted(claimed)
    for name, now in zip(names, observe_all(host, [("file", name) for name in names])):  # noqa: B905 - Python 3.8
        if now == {}:
            continue
        if not OURS.search(name):
            kept.append("%s: is not gpustrap's alone; what it changed there stays" % name)
        elif now != claimed[name]:
            kept.append("%s: was changed since the last run" % name)
        else:
            files.append(name)
    kept += ["%s: is not gpustrap's alone; what it changed there stays" % o["name"] for o in mine if o["kind"] == "key"]
    return files, kept


def _shared(
    resources: Resources, roles: Sequence[str], wanted: Sequence[str], known: Dict[str, dpkg.Package], going: Set[str]
) -> Resources:
    """The repository that these roles share, where no other one of them needs it."""
    others = set(SHARING) - set(roles)
    there = {
        one["role"]
        for one in resources
        if one["kind"] == "package" and one["name"] in known and known[one["name"]].present and one["name"] not in going
    }
    if others & (there | set(wanted)):
        return []
    return [one for one in resources if one["name"] in SHARED and one["role"] in SHARING]


def held(host: Host, known: Dict[str, dpkg.Package], before: Sequence[str]) -> List[str]:
    """What the driver's role holds now, as it wrote into its preferences, and was not on hold before."""
    line = HELD.search(host.read(PREFERENCES) or "")
    names = line.group(1).split() if line else []
    return sorted(name for name in names if name in known and known[name].hold and name not in before)


def automatic(host: Host) -> List[str]:
    """The packages that came because others needed them."""
    return AUTOMATIC.findall(host.read(EXTENDED) or "")


def simulate(host: Host, names: Sequence[str], needless: bool) -> str:
    """What apt-get would do; nothing is changed, and no lock taken.

    Raises:
        NodeError: It cannot, in its own words.
    """
    argv = ["apt-get", "-s", "-q", "--allow-change-held-packages", *(NEEDLESS if needless else [])]
    done = host.run([*argv, "remove", "--", *names], SIMULATE_SECONDS)
    if done is None or done.rc:
        words = (done.stdout + done.stderr).strip() if done else "no answer within %d s" % SIMULATE_SECONDS
        raise NodeError("apt-refuses", "apt-get cannot remove %s: %s" % (" ".join(names), words[-1500:]))
    return done.stdout
