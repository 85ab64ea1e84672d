"""What programs set on simulated GPUs: by nvidia-smi and by NVML, seen by both, kept by faults, lost at the boot."""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from gpustrap.lab.gpus import machine as gpus
from gpustrap.lab.gpus import state
from gpustrap.lab.gpus.machine import Fault, clear, inject

H100 = "8x-h100-sxm"
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes GPUs")
BUS = "00000000:1B:00.0"
WARNING = (
    f"Warning: persistence mode is disabled on device {BUS}. See the Known Issues section of the nvidia-smi(1) man"
)


@pytest.fixture
def smi(node):
    """nvidia-smi on a machine that it may change: ``smi("-pm", "1")`` on what ``smi.machine`` is then."""

    class Smi:
        def start(self, there):
            state.write(node.state, there)

        def __call__(self, *words):
            return node.smi(self.machine, *words)

        @property
        def machine(self):
            return state.parse(node.state.read_text(encoding="ascii"))

    return Smi()


def value(smi, index, key):
    words = state.text(smi.machine)
    return re.search(rf"^{index}\.{key}=(.*)$", words, re.MULTILINE).group(1)


@root
def test_persistence_mode(smi):
    smi.start(gpus.machine(H100, gpus.driver("590")))
    done = smi("-pm", "1", "-i", "0")
    assert (done.returncode, done.stdout) == (0, f"Enabled persistence mode for GPU {BUS}.\nAll done.\n")
    assert smi("-pm", "ENABLED", "-i", "0").stdout.startswith(f"Persistence mode is already Enabled for GPU {BUS}.\n")
    rows = smi("--query-gpu=persistence_mode", "--format=csv,noheader").stdout.split()
    assert rows == ["Enabled"] + ["Disabled"] * 7
    assert (smi("-pm", "2").returncode, smi("-pm").returncode) == (2, 255)


@root
def test_power_limit_is_held_to_the_boards_range(smi):
    smi.start(gpus.machine(H100, gpus.driver("590")))
    done = smi("-pl", "500", "-i", "0")
    assert done.stdout.startswith(f"Power limit for GPU {BUS} was set to 500.00 W from 700.00 W.\n\n{WARNING}")
    assert value(smi, 0, "power_limit") == "500000"
    done = smi("-pl", "50", "-i", "0")
    assert done.returncode == 2
    assert done.stdout == (
        f"Provided power limit 50.00 W is not a valid power limit which should be between 200.00 W and 700.00 W for "
        f"GPU {BUS}\nTerminating early due to previous errors.\n"
    )
    assert value(smi, 0, "power_limit") == "500000"
    assert smi("-pl", "some").returncode == 2
    both = smi("-pl", "500", "-pm", "1")
    assert (both.returncode, "Only one device modification may be done at a time" in both.stdout) == (2, True)


def test_only_root_changes_gpus(smi, monkeypatch):
    smi.start(gpus.machine(H100, gpus.driver("590")))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for words, said in {
        ("-pm", "1"): f"Unable to set persistence mode for GPU {BUS}: Insufficient Permissions",
        ("-pl", "500"): f"Failed to set power management limit for GPU {BUS}: Insufficient Permissions",
        ("-mig", "1"): f"Unable to enable MIG Mode for GPU {BUS}: Insufficient Permissions",
    }.items():
        done = smi(*words)
        assert (done.returncode, done.stdout) == (4, f"{said}\nTerminating early due to previous errors.\n")
    done = smi("-r", "-i", "0")
    assert (done.returncode, done.stdout) == (4, f"Unable to reset GPU {BUS}: Insufficient Permissions\n")
    assert smi.machine.settings == ()


@root
def test_a_fault_leaves_what_was_set(smi):
    smi.start(gpus.machine(H100, gpus.driver("590")))
    smi("-pl", "500", "-i", "3")
    smi.start(inject(smi.machine, Fault("hot", 3)))
    assert (value(smi, 3, "power_limit"), value(smi, 3, "temp")) == ("500000", "90")
    smi.start(clear(smi.machine))
    assert value(smi, 3, "power_limit") == "500000"
    assert smi.machine.faults == ()


@root
def test_nvml_sets_as_nvidia_smi_does(node):
    there = gpus.machine(H100, gpus.driver("590"))
    state.write(node.state, there)
    done = node.python("""
import pynvml as n
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(2)
n.nvmlDeviceSetPersistenceMode(device, 1)
n.nvmlDeviceSetPowerManagementLimit(device, 300000)
for limit in (199999, 700001):
    try:
        n.nvmlDeviceSetPowerManagementLimit(device, limit)
    except n.NVMLError_InvalidArgument:
        print("invalid")
print(n.nvmlDeviceGetPersistenceMode(device), n.nvmlDeviceGetEnforcedPowerLimit(device))
print(n.nvmlDeviceSetMigMode(device, 1), n.nvmlDeviceGetMigMode(device))
""")
    assert done.stdout == "invalid\ninvalid\n1 300000\n0 [1, 1]\n", done.stderr
    found = state.parse(node.state.read_text(encoding="ascii"))
    assert {(one.gpu, one.key) for one in found.settings} == {
        (2, key) for key in ("persistence", "power_limit", "mig", "mig_pending")
    }
    assert sorted(node.directory.glob("state*")) == [node.state, node.directory / "state.lock"]


@root
def test_nvml_lets_only_root_change_gpus(node, monkeypatch):
    with tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        monkeypatch.setattr(node, "state", Path(open_to_all) / "state")
        state.write(node.state, gpus.machine(H100, gpus.driver("590")))
        words = "import os, pynvml as n\nn.nvmlInit()\nos.seteuid(65534)\n"
        done = node.python(words + "n.nvmlDeviceSetPersistenceMode(n.nvmlDeviceGetHandleByIndex(0), 1)")
    assert "NVMLError_NoPermission" in done.stderr


@root
@pytest.mark.parametrize(
    ("profile", "fault", "gone", "stays"),
    [
        (H100, Fault("remap-pending", 1), ("remap_pending", "1", "0"), ("remap_unc", "1")),
        (H100, Fault("ecc-uncorrected", 1, "3"), ("ecc_unc_vol", "3", "0"), ("ecc_unc_agg", "3")),
        (H100, Fault("ecc-pending", 1), ("ecc", "1", "0"), ("ecc_pending", "0")),
        (H100, Fault("xid", 1, "48"), ("recovery", "1", "0"), ("name", "NVIDIA H100 80GB HBM3")),
        (H100, Fault("gsp-timeout", 1), ("recovery", "1", "0"), ("name", "NVIDIA H100 80GB HBM3")),
        ("1x-t4", Fault("retired-pending", 0), ("retired_pending", "1", "0"), ("retired_dbe", "1")),
    ],
    ids=lambda given: getattr(given, "kind", ""),
)
def test_a_reset_ends_what_waits_for_one(smi, tmp_path, monkeypatch, profile, fault, gone, stays):
    monkeypatch.setenv("LAB_GPU_PROC", str(tmp_path))
    smi.start(inject(gpus.machine(profile, gpus.driver("590")), fault))
    key, before, after = gone
    assert value(smi, fault.gpu, key) == before
    done = smi("-r", "-i", str(fault.gpu))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "All done."), done.stdout
    assert "was successfully reset." in done.stdout
    assert value(smi, fault.gpu, key) == after
    assert value(smi, fault.gpu, stays[0]) == stays[1]
    assert smi.machine.faults == ()
    assert smi("-L").returncode == 0


@root
def test_no_reset_while_a_program_holds_the_gpu(smi, tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_GPU_PROC", str(tmp_path))
    smi.start(inject(gpus.machine(H100, gpus.driver("590")), Fault("xid", 0, "48")))
    for number, (name, maps) in enumerate(
        {"python3": "/usr/lib/libcuda.so.1", "sh": "", "nvidia-persiste": ""}.items()
    ):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}/comm").write_text(f"{name}\n")
        (tmp_path / f"{number}/maps").write_text(f"7f0 r-xp {maps}\n")
    done = smi("-r", "-i", "0")
    assert done.returncode == 255
    assert done.stdout.startswith(
        f"The following GPUs could not be reset:\n  GPU {BUS}: In use by another client\n\n1 device is"
    )
    assert smi.machine.faults == (Fault("xid", 0, "48"),)
    (tmp_path / "0/maps").write_text("")
    assert smi("-r", "-i", "0").returncode == 0, "persistenced holds nothing while persistence mode is off"
    smi("-pm", "1")
    assert smi("-r", "-i", "0,1").stdout.count("In use by another client") == 2


@root
def test_a_lost_gpu_takes_a_reboot(smi, tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_GPU_PROC", str(tmp_path))
    smi.start(inject(gpus.machine(H100, gpus.driver("590")), Fault("lost", 0)))
    assert smi("-r", "-i", "0").returncode == 15
    assert smi.machine.faults == (Fault("lost", 0),)


def test_gsp_timeout_takes_its_time_and_fails(node):
    there = inject(gpus.machine("4x-rtx3090", gpus.driver()), Fault("gsp-timeout", 1, "2"))
    started = time.monotonic()
    done = node.smi(there)
    assert time.monotonic() - started >= 2
    assert done.returncode == 255
    assert "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error" in done.stdout
    started = time.monotonic()
    assert node.nvml(there)["gpus"][1]["handle"] == "!999"
    assert time.monotonic() - started >= 2


@pytest.mark.parametrize("program", ["smi", "nvml"])
def test_a_stuck_driver_is_only_killed(node, program):
    there = inject(gpus.machine("4x-rtx3090", gpus.driver()), Fault("stuck", 1))
    state.write(node.state, there)
    words = "import pynvml as n; n.nvmlInit(); n.nvmlDeviceGetHandleByIndex(1)"
    command = [str(node.smi_program)] if program == "smi" else [sys.executable, "-c", words]
    with subprocess.Popen(command, env=node.environment(), stdout=subprocess.PIPE) as stuck:
        with pytest.raises(subprocess.TimeoutExpired):
            stuck.wait(timeout=2)
        stuck.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            stuck.wait(timeout=2)
        stuck.kill()
        assert stuck.wait(timeout=20) == -9
