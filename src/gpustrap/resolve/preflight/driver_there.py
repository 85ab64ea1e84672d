"""A driver that is on the node already: by whom, from where, and whether its parts agree."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.model.facts import InstallFacts
from gpustrap.resolve.gpu.candidates import all_candidates
from gpustrap.resolve.gpu.installed import PACKAGE, installed_driver, upstream_version, whose
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.preflight.advice import tried, ways_to, words
from gpustrap.resolve.preflight.view import Seen, View, is_driver_package, some, warning

APART = frozenset({"nvidia-settings", "nvidia-prime"})  # have versions and sources of their own


def look_at_driver(view: View) -> Iterator[Seen]:
    """What no package manager put there ends the look: nothing else can be said of such a mixture."""
    rows = tuple(i for i in view.facts.installs if i.what == "nvidia-driver")
    by_hand = _by_hand(view, rows)
    if by_hand:
        yield by_hand
        return
    yield from _differ(view, rows)
    if view.driver:
        yield from _other_origin(view, view.driver)
        yield from _held(view, view.driver)


def _by_hand(view: View, rows: tuple[InstallFacts, ...]) -> Seen | None:
    runfile = next((i for i in rows if i.origin == "runfile"), None)
    # Who owns a file is only known where dpkg is.
    unowned = [i for i in rows if i.origin == "unowned" and view.facts.package_manager.kind == "apt"]
    if not runfile and not unowned:
        return None
    left = [*([runfile] if runfile else []), *unowned, *(i for i in rows if i.origin == "dkms" and runfile)]
    evidence = "\n".join(dict.fromkeys(f"{i.path} {i.version}".strip() for i in left))
    if runfile:
        version = f" ({runfile.version})" if runfile.version else ""
        message = f"NVIDIA's .run file installed its driver{version}: with packages over it, two drivers would be mixed"
        remedy = f"on {view.name}: sudo nvidia-uninstall; then gpustrap plan {view.name}"
        return view.inputs.problem("driver-runfile", message, remedy, evidence=evidence)
    message = "parts of an NVIDIA driver are there that no package owns"
    remedy = f"on {view.name}: remove these files or move them away; then gpustrap plan {view.name}"
    return view.inputs.problem("driver-unowned", message, remedy, evidence=evidence)


def _differ(view: View, rows: tuple[InstallFacts, ...]) -> Iterator[Seen]:
    """The loaded module, what DKMS built, the libraries, the packages: all of one version, or nothing works."""
    on_disk = {
        "packages": {upstream_version(i.version) for i in rows if i.origin.startswith(PACKAGE) and not i.path} - {""},
        "libraries": {i.version for i in rows if i.path and i.origin != "dkms" and ".so." in i.path},
        "built by DKMS": {i.version for i in rows if i.origin == "dkms"},
    }
    loaded = view.facts.nvidia.module
    versions = set().union(*on_disk.values())
    if len({*versions, loaded} - {""}) < 2:
        return
    lines = [f"loaded module: {loaded}"] if loaded else []
    lines += [f"{part}: {', '.join(sorted(found))}" for part, found in on_disk.items() if found]
    if len(versions) == 1:
        message = f"the loaded module is {loaded}, and what is on disk {versions.pop()}: nothing on the GPUs starts"
        advice = "reboot the node when it may be"
    else:
        message = f"its parts on disk are of {len(versions)} versions: a reboot does not help"
        mend = view.words("sudo apt-get --fix-broken install", "sudo dnf distro-sync")
        advice = f"on {view.name}: {mend}; the planned driver replaces what still differs"
    yield warning("driver-versions-differ", "driver", message, evidence="\n".join(lines), advice=advice)


def _other_origin(view: View, driver: Driver) -> Iterator[Seen]:
    manager = view.facts.package_manager
    others = {
        name: archive
        for name, archive in sorted(manager.installed_origins.items())
        if name in manager.packages
        and is_driver_package(name)
        and name not in APART
        and whose(view.inputs, archive) != driver.packages.origin
    }
    if not others:
        return
    place = "NVIDIA's repository" if driver.packages.origin == "nvidia" else f"{view.inputs.distro.name}'s archive"
    yield warning(
        "driver-other-origin",
        "driver",
        f"{some(others)}: not from {place}, where the planned driver is from",
        evidence="\n".join(f"{name} {manager.packages[name]} from {archive}" for name, archive in others.items()),
        advice="they are replaced" + (f"; to keep them, {keep}" if (keep := _keep_installed(view)) else ""),
    )


def _keep_installed(view: View) -> str:
    """What to ask for to keep the driver that is there, where that can be; else empty."""
    there = installed_driver(view.inputs, all_candidates(view.inputs, view.driven))
    if there is None or there.candidate.by not in {"", "request"}:
        return ""
    version, origin = upstream_version(there.package_version), there.candidate.packages.origin
    ways = ways_to(there.candidate, "driver_origin")
    return next((words(way) for way in ways if _is(view, tried(view, way), version, origin)), "")


def _is(view: View, driver: Driver | None, version: str, origin: str = "") -> bool:
    """Whether it is of that version, and no worse for Secure Boot than what is planned."""
    if driver is None or driver.version != version or origin not in {"", driver.packages.origin}:
        return False
    planned = view.driver.packages.module if view.driver else ""
    return driver.kept or driver.packages.module in {"prebuilt", planned}


def _held(view: View, driver: Driver) -> Iterator[Seen]:
    """A hold that somebody set; the ones that a locked driver brought are ours to move."""
    ours = {
        package["name"]
        for variable in ("nvidia_driver_packages", "nvidia_driver_kernel_packages")
        for package in view.inputs.kept("nvidia_driver", variable) or ()
    }
    manager = view.facts.package_manager
    held = [name for name in manager.holds if is_driver_package(name) and name not in ours]
    if not held or driver.kept:
        return
    release = view.words("sudo apt-mark unhold", "sudo dnf versionlock delete")
    yield warning(
        "driver-held",
        "driver",
        f"{some(held)}: held by somebody, so that the planned {driver.version or driver.branch.branch} cannot come in",
        evidence="\n".join(f"{name} {manager.packages.get(name, '')}".strip() for name in held),
        advice=f"on {view.name}: {release} {' '.join(held)}"
        + (f"; or {keep}" if (keep := _keep_held(view, held)) else ""),
    )


def _keep_held(view: View, held: list[str]) -> str:
    """What to ask for so that the held driver is the planned one, where that can be; else empty."""
    packages = view.facts.package_manager.packages
    versions = {upstream_version(packages.get(name, "")) for name in held} - {""}
    if len(versions) != 1:
        return ""
    (version,) = versions
    way: dict[str, str | None] = {"driver_version": version}
    return words(way) if _is(view, tried(view, way), version) else ""
