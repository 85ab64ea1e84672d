"""What would move the driver behind the loaded module's back."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.resolve.gpu.installed import PACKAGE
from gpustrap.resolve.preflight.view import Seen, View, note, some


def look_at_updates(view: View) -> Iterator[Seen]:
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
