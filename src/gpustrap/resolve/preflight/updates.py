"""What would move the driver behind the loaded module's back."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.resolve.gpu.installed import PACKAGE
from gpustrap.resolve.preflight.view import Seen, View, is_driver_package, note, some

KERNEL = ("linux-generic", "linux-headers-", "linux-image-", "linux-modules-nvidia-")


def look_at_updates(view: View) -> Iterator[Seen]:
    """A driver that may move by itself; and one that may not, with what waits for it."""
    yield from _moves_by_itself(view)
    yield from _waits(view)


def _waits(view: View) -> Iterator[Seen]:
    """Driver and kernel are held together, so that nobody else's updates, not even for security, reach them."""
    manager = view.facts.package_manager
    held = [name for name in manager.holds if is_driver_package(name) or name.startswith(KERNEL)]
    waiting = {
        name: manager.candidates[name]
        for name in sorted(held)
        if manager.candidates.get(name, "") not in {"", manager.packages.get(name, "")}
    }
    if not waiting:
        return
    origins = {name: manager.candidate_origins.get(name, "") for name in waiting}
    security = [name for name, origin in origins.items() if "security" in origin]
    lines = [f"{n}: {manager.packages.get(n, '?')}, {version} from {origins[n]}" for n, version in waiting.items()]
    yield note(
        "updates-waiting",
        "driver",
        "newer versions of what is held wait" + (f", for security: {some(security)}" if security else ""),
        evidence="\n".join(lines),
        advice=f"gpustrap plan --upgrade --only driver {view.name}, then gpustrap apply {view.name}",
    )


def _moves_by_itself(view: View) -> Iterator[Seen]:
    """An installed driver that nothing holds, under unattended-upgrades."""
    policy, manager = view.facts.unattended_upgrades, view.facts.package_manager
    driver = [
        i.origin.removeprefix(PACKAGE)
        for i in view.facts.installs
        if i.what == "nvidia-driver" and i.origin.startswith(PACKAGE)
    ]
    # The list holds regular expressions of the node's, which are not ours to run.
    spared = any("nvidia" in entry for entry in policy.blacklist)
    covered = view.driver and (
        view.driver.packages.origin == "distribution" or any("nvidia" in o.lower() for o in policy.origins)
    )
    if not (policy.enabled and driver and covered) or spared or set(driver) & set(manager.holds):
        return
    yield note(
        "driver-moves-by-itself",
        "driver",
        "unattended-upgrades may move it, and until the next reboot nothing on the GPUs would start",
        evidence=f"neither held nor blacklisted: {some(driver)}\norigins: {', '.join(policy.origins) or 'unknown'}",
        advice=f"apply keeps it in place; until then, on {view.name}: sudo apt-mark hold {' '.join(driver[:3])}",
    )
