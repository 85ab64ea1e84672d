"""CDI specifications on a node: what they name, and what in them is no longer true (failure mode cdi-stale)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import cdi
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host

LIBRARIES = "usr/lib/x86_64-linux-gnu"
# The shape of nvidia-ctk cdi generate 1.20.
SPEC = """---
cdiVersion: 0.7.0
containerEdits:
  additionalGids:
  - 44
  deviceNodes:
  - path: /dev/nvidia-uvm
  - major: 195
    minor: 255
    path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - nvidia-cdi-hook
    - update-ldcache
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.595.91.07
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.595.91.07
    options:
    - ro
    - rbind
  - containerPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2
    hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: GPU-5b1c8d53-9dc2-5f1c-8a66-2a7a2f1c9e11
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: all
kind: nvidia.com/gpu
"""
LIBCUDA = f"{LIBRARIES}/libcuda.so.595.91.07"


@pytest.fixture
def node(tmp_path):
    """A node on which the specification is right."""
    for name in (LIBCUDA, f"{LIBRARIES}/libnvidia-egl-gbm.so.1.1.2", "dev/nvidia0", "dev/nvidiactl", "dev/nvidia-uvm"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for directory in ("etc/cdi", "var/run/cdi"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "var/run/cdi/nvidia.yaml").write_text(SPEC)
    (tmp_path / "var/run/cdi/nvidia.yaml").chmod(0o644)
    return tmp_path


def found(node):
    return cdi.specs(Host(str(node)))


def test_what_a_specification_names(node):
    [spec] = found(node)
    assert spec.path == cdi.OURS
    assert spec.devices == ("0", "GPU-5b1c8d53-9dc2-5f1c-8a66-2a7a2f1c9e11", "all")
    assert spec.files == (f"/{LIBCUDA}", f"/{LIBRARIES}/libnvidia-egl-gbm.so.1.1.2")
    assert {node["path"] for node in spec.nodes} == {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"}
    assert next(n for n in spec.nodes if n["path"] == "/dev/nvidiactl") == {
        "major": "195",
        "minor": "255",
        "path": "/dev/nvidiactl",
    }
    assert cdi.mistakes(Host(str(node)), spec, "595.91.07") == []


def test_json_is_read_as_yaml_is(node):
    document = {
        "cdiVersion": "0.7.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "major": 195}]}}],
        "containerEdits": {"mounts": [{"hostPath": f"/{LIBCUDA}", "containerPath": "/x"}]},
    }
    spec = cdi.parse("/etc/cdi/nvidia.json", json.dumps(document))
    assert (spec.devices, spec.files) == (("0",), (f"/{LIBCUDA}",))
    assert [node["path"] for node in spec.nodes] == ["/dev/nvidia0"]


@pytest.mark.parametrize("text", ["", "{", "kind: vendor.com/nic\ndevices:\n- name: a\n", "[1, 2]", "- : x\n", "\0"])
def test_other_devices_and_rubbish_are_no_specification_of_gpus(text):
    assert cdi.parse("/etc/cdi/x.yaml", text) is None


def test_cdi_stale_after_a_driver_change(node):
    (node / LIBCUDA).rename(node / LIBRARIES / "libcuda.so.610.57.04")
    [spec] = found(node)
    assert cdi.mistakes(Host(str(node)), spec, "610.57.04") == [
        "it is of driver 595.91.07, and 610.57.04 is loaded",
        f"/{LIBCUDA} is not there",
    ]


def test_cdi_stale_by_its_mode(node):
    (node / "var/run/cdi/nvidia.yaml").chmod(0o600)
    [spec] = found(node)
    assert cdi.mistakes(Host(str(node)), spec, "595.91.07") == ["only root can read it (mode 0600)"]


def test_cdi_stale_by_a_device_that_is_gone(node):
    (node / "dev/nvidia-uvm").unlink()
    (node / "dev/nvidiactl").unlink()
    [spec] = found(node)
    assert cdi.mistakes(Host(str(node)), spec, "595.91.07") == ["/dev/nvidia-uvm, /dev/nvidiactl are not there"]


def test_cdi_stale_by_a_device_of_another_number():
    """The number of nvidia-uvm is given out anew at each boot."""
    null = Path("/dev/null").stat().st_rdev
    is_ = f"{os.major(null)}:{os.minor(null)}"
    text = "kind: nvidia.com/gpu\ncontainerEdits:\n  deviceNodes:\n  - path: /dev/null\n    major: 507\n    minor: 0\n"
    spec = cdi.parse(cdi.OURS, text)
    assert cdi.mistakes(Host(), spec, "595.91.07") == [f"/dev/null is {is_}, not 507:0"]


@pytest.mark.parametrize(
    ("names", "gpus", "said"),
    [
        (("0", "1", "all"), 2, ""),
        (("0", "all"), 4, "it names 1 of 4 GPUs"),
        (("0:0", "0:1", "all"), 1, ""),
        (("0", "MIG-5b1c", "all"), 2, ""),
    ],
)
def test_a_specification_that_lacks_gpus(names, gpus, said):
    assert cdi.too_few(cdi.Spec(cdi.OURS, 0o644, names, (), ()), gpus) == said


def test_cdi_stale_two_specifications_of_one_device(node):
    (node / "etc/cdi/nvidia.yaml").write_text(SPEC)
    (node / "etc/cdi/other.yaml").write_text(SPEC.replace('name: "0"', 'name: "mine"').replace("name: all", "name: a"))
    (node / "etc/cdi/third.yaml").write_text(SPEC.replace("nvidia.com/gpu", "vendor.com/nic"))
    assert cdi.named_twice(found(node)) == ["/etc/cdi/nvidia.yaml", "/etc/cdi/other.yaml"]
    text = "kind: nvidia.com/gpu\ndevices:\n- containerEdits: {}\n  name: mine\n"
    (node / "etc/cdi/other.yaml").write_text(text)
    assert cdi.named_twice(found(node)) == ["/etc/cdi/nvidia.yaml"]
