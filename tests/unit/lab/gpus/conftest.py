"""What the tests of simulated GPUs share: the built library, and programs that ask it."""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gpustrap.lab.gpus import build, state
from gpustrap.lab.gpus.smi.main import main

ASK = r"""
import json, sys, pynvml as n
def ask(call, *arguments):
    try:
        found = call(*arguments)
    except n.NVMLError as error:
        return "!%d" % error.value
    if hasattr(found, "_fields_"):
        pairs = ((field[0], getattr(found, field[0])) for field in found._fields_)
        return {k: v.decode() if isinstance(v, bytes) else v for k, v in pairs}
    return found.decode() if isinstance(found, bytes) else found
def fields(handle):
    ids = {"recovery": 230, "remap_pending": 144, "ecc_unc_vol": 4, "tlimit_slowdown": 194, "brake": 271, "cap": 74}
    try:
        values = n.nvmlDeviceGetFieldValues(handle, list(ids.values()))
    except n.NVMLError as error:
        return "!%d" % error.value
    pick = {1: "uiVal", 3: "ullVal", 5: "siVal"}
    return {
        k: getattr(v.value, pick[v.valueType]) if v.nvmlReturn == 0 else "!%d" % v.nvmlReturn
        for k, v in zip(ids, values)
    }
CALLS = {
    "name": (), "uuid": ("UUID",), "serial": (), "brand": (), "architecture": (), "minor": ("MinorNumber",),
    "vbios": ("VbiosVersion",), "pci": ("PciInfo",), "memory": ("MemoryInfo",),
    "memory2": ("MemoryInfo", n.nvmlMemory_v2), "bar1": ("BAR1MemoryInfo",), "util": ("UtilizationRates",),
    "temp": ("Temperature", 0), "temp_v": ("TemperatureV", 0),
    "slowdown": ("TemperatureThreshold", 1), "margin": ("MarginTemperature",), "power": ("PowerUsage",),
    "limit": ("PowerManagementLimit",), "enforced": ("EnforcedPowerLimit",),
    "limits": ("PowerManagementLimitConstraints",), "default": ("PowerManagementDefaultLimit",),
    "graphics": ("ClockInfo", 0), "sm": ("ClockInfo", 1), "mem": ("ClockInfo", 2), "max_graphics": ("MaxClockInfo", 0),
    "reasons": ("CurrentClocksEventReasons",), "throttle": ("CurrentClocksThrottleReasons",),
    "ecc": ("EccMode",), "unc": ("TotalEccErrors", 1, 0), "cor": ("TotalEccErrors", 0, 0),
    "unc_agg": ("TotalEccErrors", 1, 1),
    "dram": ("MemoryErrorCounter", 1, 0, 2), "sram": ("MemoryErrorCounter", 1, 0, 7), "remapped": ("RemappedRows",),
    "histogram": ("RowRemapperHistogram",), "retired": ("RetiredPages", 1),
    "retired_pending": ("RetiredPagesPendingStatus",),
    "mig": ("MigMode",), "persistence": ("PersistenceMode",), "compute": ("CudaComputeCapability",),
    "fan": ("FanSpeed",),
    "gen": ("CurrPcieLinkGeneration",), "gen_max": ("MaxPcieLinkGeneration",), "width": ("CurrPcieLinkWidth",),
    "width_max": ("MaxPcieLinkWidth",), "pstate": ("PerformanceState",), "processes": ("ComputeRunningProcesses",),
    "compute_mode": ("ComputeMode",), "gsp": ("GspFirmwareVersion",), "repair": ("RepairStatus",),
    "nvlink": ("NvLinkState", 0),
    "encoder": ("EncoderUtilization",), "energy": ("TotalEnergyConsumption",),
}
def machine():
    answer = {}
    try:
        n.nvmlInit()
    except n.NVMLError as error:
        return {"init": error.value, "words": str(error)}
    answer["driver"], answer["nvml"] = n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetNVMLVersion()
    answer["cuda"], answer["count"], answer["gpus"] = n.nvmlSystemGetCudaDriverVersion_v2(), n.nvmlDeviceGetCount(), []
    for index in range(answer["count"]):
        try:
            handle = n.nvmlDeviceGetHandleByIndex(index)
        except n.NVMLError as error:
            answer["gpus"].append({"handle": "!%d" % error.value})
            continue
        one = {}
        for key, words in CALLS.items():
            name, arguments = (words[0], words[1:]) if words else (key[0].upper() + key[1:], ())
            one[key] = ask(getattr(n, "nvmlDeviceGet" + name), handle, *arguments)
        one["fields"] = fields(handle)
        sram, fabric = n.c_nvmlEccSramErrorStatus_v1_t(), n.c_nvmlGpuFabricInfo_v3_t()
        known = ask(n.nvmlDeviceGetSramEccErrorStatus, handle, n.byref(sram)) == 0
        one["exceeded"] = sram.bThresholdExceeded if known else "!"
        ext = n.nvmlPciInfoExt_v1_t()
        ask(n.nvmlDeviceGetPciInfoExt, handle, n.byref(ext))
        one["class"] = "%02x%02x" % (ext.baseClass, ext.subClass)
        ask(n.nvmlDeviceGetGpuFabricInfoV, handle, n.byref(fabric))
        one["fabric"] = fabric.state
        one["by_uuid"] = n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(one["uuid"]))
        one["by_bus"] = n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(one["pci"]["busId"]))
        one["by_short_bus"] = n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(one["pci"]["busIdLegacy"]))
        answer["gpus"].append(one)
    n.nvmlShutdown()
    return answer
for line in sys.stdin:
    print(json.dumps(machine()), flush=True)
"""


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """A way to ask a simulated machine: ``node.nvml(machine)`` and ``node.smi(machine, *arguments)``."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: the stand-in for NVML cannot be built")
    directory = tmp_path_factory.mktemp("gpus")
    build.library(directory)
    there = Node(directory)
    yield there
    there.server.stdin.close()
    there.server.wait(timeout=30)
    there.server.stdout.close()


class Node:
    def __init__(self, directory):
        self.directory = directory
        self.state = directory / "state"
        self.smi_program = build.smi(directory / "nvidia-smi", sys.executable)
        # One process answers all questions: the library reads the state file anew at every call.
        self.server = subprocess.Popen(
            [sys.executable, "-c", ASK],
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def environment(self):
        return os.environ | {"LD_LIBRARY_PATH": str(self.directory), "LAB_GPU_STATE": str(self.state)}

    def python(self, words, timeout=60):
        return subprocess.run(
            [sys.executable, "-c", words], env=self.environment(), capture_output=True, text=True, timeout=timeout
        )

    def nvml(self, there):
        """What nvidia-ml-py says of a machine."""
        state.write(self.state, there)
        self.server.stdin.write("\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def smi(self, there, *arguments):
        """What nvidia-smi says of a machine; its code is run here, `smi_process` runs the program."""
        state.write(self.state, there)
        said = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
            patch.setenv("LAB_GPU_STATE", str(self.state))
            code = main(list(arguments))
        return subprocess.CompletedProcess(arguments, code, said.getvalue(), "")

    def smi_process(self, there, *arguments, timeout=60):
        state.write(self.state, there)
        return subprocess.run(
            [str(self.smi_program), *arguments], env=self.environment(), capture_output=True, text=True, timeout=timeout
        )


class Captures:
    """Output of real machines, which is not ours to ship: beside the checkout, or where GPUSTRAP_CAPTURES says."""

    H100 = "nvidia-smi-text/nvidia-h100-80gb-hbm3__590.48.01.txt"
    H100_MIG = "nvidia-smi-text/nvidia-h100-mig__590.48.01.txt"
    TURING_610 = "nvidia-smi-text/nvidia-geforce-rtx-2080-super__610.57.04.txt"
    A100_NVLINK = "nvidia-smi-text/nvlink-status-a100.txt"

    def __init__(self):
        beside = sorted(Path(__file__).parents[5].glob("*/captures"))
        self.directory = Path(os.environ.get("GPUSTRAP_CAPTURES") or (beside[0] if beside else "captures"))

    def text(self, name):
        path = self.directory / name
        if not path.exists():
            pytest.skip(f"no captures of real machines here: {name}")
        return path.read_text(encoding="utf-8")

    def section(self, name, title):
        """One command's output in a capture of nvidia_gpu_exporter, and the command."""
        rest = self.text(name).split(f"# {title}", 1)[1]
        command, _, rest = rest.split("# $ ", 1)[1].partition("\n")
        return command, rest.split("#" * 80)[1].strip("\n")

    @staticmethod
    def labels(words):
        """The lines of ``-q`` without values; of processes only that there may be some."""
        found = []
        for line in words.splitlines():
            label, colon, _ = line.partition(" : ")
            process = "    +(GPU instance|Compute instance|Process) ID|            ( *)(Type|Name|Used GPU)"
            if not re.match(process, line):
                found.append(label.rstrip() + (":" if colon else ""))
        return [line for line in found if line.strip() and not line.startswith("GPU 0")]


@pytest.fixture(scope="session")
def real():
    return Captures()


CUDA = r"""
import ctypes, json
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
library = ctypes.CDLL("libcuda.so.1")
answer = {}
class Failed(Exception):
    pass
def call(name, *arguments):
    code = getattr(library, name)(*arguments)
    if code:
        raise Failed(code)
def new(kind, name, *arguments):
    value = kind()
    call(name, byref(value), *arguments)
    return value
def code(name, *arguments):
    return getattr(library, name)(*arguments)
def context(ordinal=0):
    found = new(c_void_p, "cuDevicePrimaryCtxRetain", ordinal)
    call("cuCtxSetCurrent", found)
    return found
def memory(size):
    return new(c_ulonglong, "cuMemAlloc_v2", c_size_t(size))
def upload(where, data):
    call("cuMemcpyHtoD_v2", where, c_char_p(bytes(data)), c_size_t(len(data)))
def download(where, size):
    data = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", data, where, c_size_t(size))
    return data.raw
def at(address, offset):
    return c_ulonglong(address.value + offset)
def event():
    return new(c_void_p, "cuEventCreate", 0)
def peak():
    # Most memory ever used, in KiB. getrusage would also count what the parent had before this program was started.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def timed(work):
    first, last = event(), event()
    call("cuEventRecord", first, None)
    work()
    call("cuEventRecord", last, None)
    call("cuEventSynchronize", last)
    return new(c_float, "cuEventElapsedTime_v2", first, last).value
"""
SAY = "print(json.dumps(answer))"


class Cuda:
    """Programs over the stand-in for libcuda.so.1 on a simulated machine."""

    def __init__(self, directory):
        self.directory = directory
        self.state = directory / "state"
        build.cuda_library(directory)

    def environment(self, **environment):
        names = {"LD_LIBRARY_PATH": str(self.directory), "LAB_GPU_STATE": str(self.state)}
        return {**os.environ, **names, **environment}

    def start(self, there, words, **environment):
        state.write(self.state, there)
        return subprocess.Popen(
            [sys.executable, "-c", f"{CUDA}\n{words}\n{SAY}"],
            env=self.environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, there, words, **environment):
        """What a program puts into ``answer``; the code where a call failed that should not."""
        careful = f"try:\n{textwrap.indent(words, chr(32))}\nexcept Failed as failed:\n answer = failed.args[0]"
        process = self.start(there, careful, **environment)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return json.loads(out)


@pytest.fixture(scope="session")
def cuda(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: the stand-in for CUDA cannot be built")
    return Cuda(tmp_path_factory.mktemp("cuda"))
