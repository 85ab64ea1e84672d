"""A node with GPUs and a driver that is decided already, for the parts of the plan that stand on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema import Catalog
from gpustrap.model.facts import Facts
from gpustrap.model.lock import NodeLock
from gpustrap.model.request import Request
from gpustrap.resolve.gpu.boards import node_gpus
from gpustrap.resolve.gpu.stack import Driver, Stack
from gpustrap.resolve.parts import Inputs, Part

NV_SWITCH = {"vendor": "10de", "device": "22a3", "pci_class": "0680"}


@dataclass(frozen=True)
class Node:
    """What a test says of a node; everything else is a healthy x86_64 server with Ubuntu 24.04 and driver 580.

    Attributes:
        gpus: PCI device ids; without more, one GeForce RTX 3090.
        can_have: Package -> versions that its package manager can get, newest first.
        driver: Branch, flavour and origin.
        version: Of the driver.
    """

    gpus: Sequence[str] = ("2204",)
    switches: int = 0
    distro: tuple[str, str] = ("ubuntu", "24.04")
    architecture: str = "x86_64"
    virtualization: str = "none"
    can_have: Mapping[str, Sequence[str]] | None = None
    origins: Mapping[str, str] | None = None
    installed: Mapping[str, str] | None = None
    installs: Sequence[Mapping[str, str]] = ()
    driver: tuple[str, str, str] = ("580", "open", "distribution")
    version: str = "580.178.04"
    kept: Mapping[str, Mapping[str, Any]] | None = None
    upgrade: Sequence[str] = ()
    offline: bool = False

    def facts(self) -> Facts:
        gpus = [{"vendor": "10de", "device": device, "pci_class": "0302"} for device in self.gpus]
        pci = [*gpus, *[NV_SWITCH] * self.switches]
        can_have = self.can_have or {}
        return Facts.model_validate(
            {
                "os": {"id": self.distro[0], "version_id": self.distro[1], "architecture": self.architecture},
                "kernel": {"running": "6.8.0-90-generic"},
                "virtualization": self.virtualization,
                "pci": [{"address": f"0000:{number:02x}:00.0", **device} for number, device in enumerate(pci, 1)],
                "package_manager": {
                    "kind": "apt",
                    "candidates": {name: versions[0] for name, versions in can_have.items()},
                    "candidate_origins": dict(self.origins or {}),
                    "versions": {name: list(versions) for name, versions in can_have.items()},
                    "packages": dict(self.installed or {}),
                },
                "installs": list(self.installs),
            }
        )

    def stack(self, catalog: Catalog | None = None, **request: Any) -> Stack:
        """What the parts are given; ``request`` without gpustrap_."""
        catalog, facts = catalog or load_catalog(), self.facts()
        distro = catalog.distro(*self.distro)
        assert distro
        kept = NodeLock(request_digest="", system_digest="", os="", choices=(), roles={}, pending=dict(self.kept or {}))
        inputs = Inputs(
            name="n1",
            facts=facts,
            request=Request.model_validate(request),
            catalog=catalog,
            distro=distro,
            keep=kept if self.kept else None,
            same_request=True,
            upgrade=frozenset(self.upgrade),
            offline=self.offline,
        )
        return Stack(inputs, node_gpus(facts, catalog), self._driver(catalog, distro.key))

    def _driver(self, catalog: Catalog, distro: str) -> Driver:
        number, flavour, origin = self.driver
        branch = catalog.driver(number)
        rows = (r for r in catalog.driver_packages if number in r.branches and distro in r.distros and not r.only_kept)
        row = next((r for r in rows if (r.flavour, r.origin) == (flavour, origin)), None)
        assert branch
        assert row, "no such packages in the catalog"
        package = row.version.format(version=self.version) if row.version else f"{self.version}-0ubuntu0.24.04.1"
        return Driver(branch, row, self.version, package if self.version else "")

    def again(self, role: str, part: Part, **change: Any) -> Node:
        """The same node with what was decided of a role in its lock."""
        return replace(self, kept={role: part.variables or {}}, **change)


@pytest.fixture
def node() -> type[Node]:
    return Node


@pytest.fixture
def catalog() -> Catalog:
    return load_catalog()
