"""Whether the driver that is loaded is the one that programs on the node expect. Standard library only."""

from __future__ import annotations

from .gpustrap_node.boot import library_in_use
from .gpustrap_node.host import Host
from .gpustrap_node.nvidia import PROC, parse_module_version


def loaded(host: Host, wanted: str = "") -> tuple[str, str]:
    """The loaded driver's version if it can be worked with, else nothing and the reason, for a sentence.

    Args:
        host: The machine.
        wanted: The version it has to be; without one, that of the libraries.
    """
    module = parse_module_version(host.read(PROC + "/version") or "")
    if not module:
        return "", "no driver is loaded"
    expected, whose = (wanted, "installed") if wanted else (library_in_use(host), "what its libraries are")
    if expected and expected != module:
        return "", "driver %s is loaded, and %s is %s" % (module, expected, whose)
    return module, ""
