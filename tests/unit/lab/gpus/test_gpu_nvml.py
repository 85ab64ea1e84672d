"""nvidia-ml-py over the stand-in for libnvidia-ml.so.1: a healthy machine of every profile, and every fault."""

import ctypes
import subprocess
import sys

import pytest

from gpustrap.lab.gpus import build, state
from gpustrap.lab.gpus import machine as gpus
from gpustrap.lab.gpus.machine import Fault, inject

MIB = 1 << 20


def test_every_function_that_nvidia_ml_py_knows_is_there(node):
    library = ctypes.CDLL(str(node.directory / build.LIBRARY))
    names = build.functions()
    assert len(names) > 300
    assert [name for name in names if not hasattr(library, name)] == []


@pytest.mark.parametrize("profile", [name for name in gpus.profiles() if not name.startswith("mixed")])
def test_a_healthy_machine(node, profile):
    there = gpus.machine(profile, gpus.driver("580", "proprietary" if "1080" in profile else "open"))
    found = node.nvml(there)
    assert (found["driver"], found["cuda"], found["count"]) == ("580.178.04", 13000, len(there.gpus))
    assert found["nvml"] == "13.580.178.04"
    for index, (gpu, one) in enumerate(zip(there.gpus, found["gpus"], strict=True)):
        row = gpu.board.data
        assert (one["name"], one["uuid"], one["minor"]) == (row["name"], gpu.uuid, index)
        assert (one["by_uuid"], one["by_bus"], one["by_short_bus"]) == (index, index, index)
        assert one["memory2"]["total"] == row["memory"] * MIB
        assert one["memory"]["used"] == one["memory2"]["used"] + one["memory2"]["reserved"]
        assert one["memory"]["total"] == one["memory"]["used"] + one["memory"]["free"]
        assert one["pci"]["busId"].lower() == f"0000{gpu.address}"
        assert one["pci"]["pciDeviceId"] == int(row["device"] + "10de", 16)
        assert one["compute"] == [int(part) for part in row["compute"].split(".")]
        assert (one["width"], one["width_max"], one["gen_max"]) == (gpu.width, 16, row["gen"])
        assert one["limits"] == [row["power"]["min"] * 1000, row["power"]["max"] * 1000]
        assert one["default"] == one["limit"] == one["enforced"] == row["power"]["default"] * 1000
        assert (one["reasons"], one["throttle"]) == (1, 1)
        assert one["processes"] == []
        assert one["ecc"] == ([1, 1] if gpu.board.can("ecc") else "!3")
        assert one["unc"] == (0 if gpu.board.can("ecc") else "!3")
        assert one["remapped"] == ([0, 0, 0, 0] if gpu.board.can("remaps_rows") else "!3")
        assert one["mig"] == ([0, 0] if gpu.board.can("mig") else "!3")
        assert one["retired_pending"] == (0 if gpu.board.can("retires_pages") else "!3")
        assert one["fabric"] == (3 if gpu.board.can("nvlink") else 0)
        assert one["energy"] == "!3"  # what the library has not
        assert one["class"] == row["class"][:4]
        assert one["fields"]["recovery"] == 0


FAULTS = [
    ("8x-h100-sxm", Fault("lost", 3), {"handle": "!15"}),
    ("8x-h100-sxm", Fault("xid", 3, "95"), {"fields.recovery": 1}),
    ("8x-h100-sxm", Fault("ecc-corrected", 3, "70"), {"cor": 70, "unc": 0}),
    ("8x-h100-sxm", Fault("ecc-uncorrected", 3, "2"), {"unc": 2, "unc_agg": 2, "dram": 2, "sram": 0}),
    ("8x-h100-sxm", Fault("ecc-pending", 3), {"ecc": [1, 0]}),
    ("8x-h100-sxm", Fault("remap-pending", 3), {"remapped": [0, 1, 1, 0], "fields.remap_pending": 1}),
    ("8x-h100-sxm", Fault("remap-failed", 3), {"remapped": [0, 8, 0, 1], "histogram.none": 1, "histogram.max": 2559}),
    ("8x-h100-sxm", Fault("mig", 3), {"mig": [1, 1], "util": "!3"}),
    ("8x-h100-sxm", Fault("hot", 3), {"temp": 90, "margin": -3, "reasons": 0x68}),
    ("1x-t4", Fault("retired-pending", 0), {"retired": [0x100000], "retired_pending": 1}),
    ("1x-t4", Fault("hot", 0), {"temp": 94, "slowdown": 93, "reasons": 0x68}),
    ("4x-rtx3090", Fault("throttled", 2), {"reasons": 0x88, "throttle": 0x88}),
    ("4x-rtx3090", Fault("narrow", 2), {"width": 8, "width_max": 16}),
    ("4x-rtx3090", Fault("slow-link", 2, "3"), {"gen": 3, "gen_max": 4}),
    ("4x-rtx3090", Fault("err", 2), {"fan": "!999", "power": "!999"}),
]


@pytest.mark.parametrize(("profile", "fault", "wanted"), FAULTS, ids=lambda value: getattr(value, "kind", ""))
def test_a_fault_shows_on_its_gpu_alone(node, profile, fault, wanted):
    there = gpus.machine(profile, gpus.driver())
    healthy, broken = node.nvml(there)["gpus"], node.nvml(inject(there, fault))["gpus"]
    for path, value in wanted.items():
        found = broken[fault.gpu]
        for part in path.split("."):
            found = found[part]
        assert found == value
    assert [one for at, one in enumerate(broken) if at != fault.gpu] == [
        one for at, one in enumerate(healthy) if at != fault.gpu
    ]


def test_throttling_counts_up(node):
    there = inject(gpus.machine("1x-rtx3090", gpus.driver()), Fault("throttled", 0))
    first, second = (node.nvml(there)["gpus"][0]["fields"] for _ in range(2))
    assert second["brake"] > first["brake"] > 0
    assert first["cap"] == 0


def test_a_missing_gpu_is_not_counted(node):
    there = inject(gpus.machine("8x-h100-sxm", gpus.driver()), Fault("missing", 0))
    found = node.nvml(there)
    assert found["count"] == 7
    assert [one["uuid"] for one in found["gpus"]] == [gpu.uuid for gpu in there.gpus[1:]]


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (Fault("version-mismatch"), 18, "RM has detected an NVML/RM version mismatch."),
        (Fault("nvml-error"), 999, "Unknown Error"),
        (Fault("nvml-error", value="4"), 4, "Insufficient Permissions"),
    ],
)
def test_nvml_does_not_start(node, fault, code, words):
    found = node.nvml(inject(gpus.machine("1x-t4", gpus.driver()), fault))
    assert found == {"init": code, "words": words}


def test_nvml_does_not_start_without_a_module_or_a_state(node):
    assert node.nvml(gpus.machine("1x-t4"))["init"] == 9
    node.state.unlink()
    done = node.python("import pynvml; pynvml.nvmlInit()")
    assert "NVMLError_DriverNotLoaded" in done.stderr


def test_a_hung_gpu_hangs_until_the_fault_goes(node):
    there = gpus.machine("4x-rtx3090", gpus.driver())
    state.write(node.state, inject(there, Fault("hung", 1)))
    words = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByIndex(%d)))"
    assert node.python(words % 0).returncode == 0
    with subprocess.Popen(
        [sys.executable, "-c", words % 1], env=node.environment(), stdout=subprocess.PIPE, text=True
    ) as hung:
        with pytest.raises(subprocess.TimeoutExpired):
            hung.wait(timeout=2)
        state.write(node.state, there)
        assert "RTX 3090" in hung.communicate(timeout=60)[0]


def test_calls_before_init_are_refused(node):
    library = ctypes.CDLL(str(node.directory / build.LIBRARY))
    assert library.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint())) == 1
