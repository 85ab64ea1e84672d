"""On what Ubuntu was tested, nodes of it or only what needs none: the report of the lane says so."""

from __future__ import annotations

from collections.abc import Callable

from gpustrap.errors import GpustrapError
from gpustrap.lab import images
from gpustrap.lab.manager import Lab, NodeSpec

UBUNTU = "ubuntu2404"
WITHOUT = "recorded facts, rendered files and check mode; no image could be pulled"


def test_ubuntu_nodes_boot_where_an_image_can_be_pulled(
    lab: Lab, record_testsuite_property: Callable[[str, object], None]
) -> None:
    try:
        images.ensure(lab.engine, UBUNTU)
    except GpustrapError as error:
        if {problem.code for problem in error.problems} != {"image-not-reachable"}:
            raise
        record_testsuite_property("ubuntu", WITHOUT)
        return
    node = lab.up([NodeSpec("ubuntu", UBUNTU)])[0]
    try:
        assert 'VERSION_ID="24.04"' in node.exec("cat /etc/os-release").stdout
    finally:
        lab.remove(node.name)
    record_testsuite_property("ubuntu", "nodes of Ubuntu 24.04")
