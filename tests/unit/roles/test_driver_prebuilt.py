"""Prebuilt modules, as Ubuntu has them: they move together with the driver and the kernel, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpustrap.ansible_plugins.module_utils import gpustrap_apt as apt
from gpustrap.ansible_plugins.module_utils import gpustrap_driver_files as files
from gpustrap.ansible_plugins.module_utils.gpustrap_driver import Asked, Driver
from gpustrap.ansible_plugins.module_utils.gpustrap_node.driver_set import Wanted
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host

NAMES = ("nvidia-headless-no-dkms-595-server-open", "nvidia-utils-595-server")
MODULES = "linux-modules-nvidia-595-server-open-generic"
KERNEL = ("linux-generic", "linux-image-generic")
NEW = Wanted("595", "open", "prebuilt", dict.fromkeys(NAMES, "595.71.05-0ubuntu0.24.04.1"))
OLD = NEW._replace(packages=dict.fromkeys(NAMES, "595.58.03-0ubuntu0.24.04.1"))


class Node(apt.Runner):
    """A node as an earlier apply left it, and an archive that has gone on since."""

    def __init__(self, root: Path) -> None:
        self.root, self.commands, self.simulation = root, [], ""
        stanza = "Package: {}\nStatus: hold ok installed\nArchitecture: amd64\nVersion: {}\n"
        there = [(name, OLD.version) for name in NAMES] + [(name, "6.8.0-90.91") for name in (MODULES, *KERNEL)]
        (root / "var/lib/dpkg/updates").mkdir(parents=True)
        (root / "var/lib/dpkg/status").write_text("\n".join(stanza.format(*one) for one in there))
        (root / "etc/apt/preferences.d").mkdir(parents=True)
        self.remember(*NAMES, MODULES, *KERNEL)

    def remember(self, *held: str) -> None:
        (self.root / files.PREFERENCES.lstrip("/")).write_text(files.preferences(OLD, "hold", held))

    def run(self, argv, timeout=0):
        self.commands.append(list(argv))
        if argv[:2] == ["apt-cache", "madison"]:
            found = [(name, version) for name in NAMES for version in (NEW.version, OLD.version)]
            found += [(name, version) for name in (MODULES, *KERNEL) for version in ("6.8.0-100.102", "6.8.0-90.91")]
            return 0, "".join(f" {name} | {version} | http://archive Packages\n" for name, version in found)
        return 0, self.simulation if "-s" in argv else ""


@pytest.fixture
def node(tmp_path) -> Node:
    return Node(tmp_path)


def ensure(node: Node, wanted: Wanted) -> dict[str, Any]:
    return Driver(
        node, Host(str(node.root)), Asked(wanted, [MODULES], "hold", 5, True, "6.8.0-90-generic"), False
    ).ensure()


def asked(node: Node) -> set[str]:
    acts = [argv for argv in node.commands if "install" in argv and "-s" not in argv]
    return set(acts[0][acts[0].index("--") + 1 :]) if acts else set()


def test_driver_lib_mismatch_modules_move_with_the_libraries(node):
    """Their package has the kernel's version: left as it is, it would hold the module of the old libraries."""
    ensure(node, NEW)
    assert asked(node) == {*(f"{name}={NEW.version}" for name in NAMES), MODULES, *KERNEL}


def test_newer_kernel_alone_moves_nothing(node):
    ensure(node, OLD)
    assert not ensure(node, OLD)["changed"]
    assert asked(node) == set()


def test_kernel_that_somebody_holds_stays(node):
    node.remember(*NAMES, MODULES)
    ensure(node, NEW)
    assert asked(node) == {*(f"{name}={NEW.version}" for name in NAMES), MODULES}


def test_kernel_that_somebody_holds_is_not_moved_by_apt_either(node):
    node.remember(*NAMES, MODULES)
    node.simulation = "The following held packages will be changed:\n  linux-generic\n"
    with pytest.raises(apt.AptError, match="held by somebody, linux-generic"):
        ensure(node, NEW)


def test_part_that_apt_takes_away_by_itself_is_told(node):
    """A desktop's libraries, for one: whoever reads the run must see that they went."""
    node.simulation = "Remv libnvidia-gl-595 [595.58.03-0ubuntu0.24.04.1]\n"
    assert "remove libnvidia-gl-595, which apt cannot keep beside it" in ensure(node, NEW)["done"]
    assert "libnvidia-gl-595-" in asked(node)
