"""The stand-in for libcuda.so.1, by ctypes in a process of its own: what starts, devices, memory, copies, time."""

import importlib.util
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from gpustrap.lab.gpus import build, state
from gpustrap.lab.gpus import machine as gpus
from gpustrap.lab.gpus.machine import Fault, GpuError, inject

MIB = 1 << 20
INIT = "answer = code('cuInit', 0)"
DEVICES = """
call("cuInit", 0)
def attribute(number, ordinal):
    return new(c_int, "cuDeviceGetAttribute", number, ordinal).value
answer = []
for ordinal in range(new(c_int, "cuDeviceGetCount").value):
    name, uuid = ctypes.create_string_buffer(100), ctypes.create_string_buffer(16)
    call("cuDeviceGetName", name, 100, ordinal)
    call("cuDeviceGetUuid_v2", uuid, ordinal)
    answer.append({
        "name": name.value.decode(),
        "uuid": uuid.raw.hex(),
        "memory": new(c_size_t, "cuDeviceTotalMem_v2", ordinal).value,
        "compute": [attribute(75, ordinal), attribute(76, ordinal)],
        "bus": attribute(33, ordinal),
        "gflops": attribute(16, ordinal) * attribute(13, ordinal) / 1e6,
    })
"""


def healthy(profile="4x-rtx3090", branch="580"):
    return gpus.machine(profile, gpus.driver(branch, "proprietary" if "1080" in profile else "open"))


# --- the real API ---


def test_names_signatures_and_numbers_are_those_of_nvidias_header(tmp_path):
    spec = importlib.util.find_spec("nvidia.cuda_runtime")
    assert spec, "nvidia-cuda-runtime-cu12 is a dependency of the tests"
    header = Path(next(iter(spec.submodule_search_locations))) / "include/cuda.h"
    build.compare_cuda(header)
    other = tmp_path / "cuda.h"
    words = header.read_text(encoding="utf-8")
    changes = {
        "CUDA_ERROR_LAUNCH_FAILED                  = 719": "CUDA_ERROR_LAUNCH_FAILED                  = 718",
        "cuMemGetInfo(size_t *free, size_t *total);": "cuMemGetInfo(unsigned *free, size_t *total);",
        "cuStreamQuery(CUstream hStream);": "cuStreamAsk(CUstream hStream);",
    }
    for old, new in changes.items():
        assert old in words
        other.write_text(words.replace(old, new), encoding="utf-8")
        with pytest.raises(GpuError, match="cannot build"):
            build.compare_cuda(other)


def test_old_names_are_there_where_they_do_the_same(cuda):
    script = "answer = [hasattr(library, name) for name in ('cuDeviceGetUuid', 'cuEventElapsedTime', 'cuMemAlloc')]"
    assert cuda(healthy(), script) == [True, True, False], "the first cuMemAlloc has addresses of 32 bits"


def test_results_have_the_real_words(cuda):
    script = """
for number in (0, 100, 209, 700, 719, 802, 803, 804, 999, 12345):
    words, name = c_char_p(), c_char_p()
    found = code("cuGetErrorString", number, byref(words)), code("cuGetErrorName", number, byref(name))
    answer[number] = [*found, words.value and words.value.decode(), name.value and name.value.decode()]
"""
    found = cuda(healthy(), script)
    assert found["0"] == [0, 0, "no error", "CUDA_SUCCESS"]
    words = "system has unsupported display driver / cuda driver combination"
    assert found["803"] == [0, 0, words, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"]
    assert found["12345"] == [1, 1, None, None]


# --- what starts ---


@pytest.mark.parametrize("profile", [name for name in gpus.profiles() if not name.startswith(("mixed", "no-"))])
def test_devices_of_every_profile(cuda, profile):
    there = healthy(profile)
    found = cuda(there, DEVICES)
    assert [one["uuid"] for one in found] == [gpu.uuid.removeprefix("GPU-").replace("-", "") for gpu in there.gpus]
    for one, gpu in zip(found, there.gpus, strict=True):
        row = gpu.board.data
        assert (one["name"], one["bus"]) == (row["name"], int(gpu.address[5:7], 16))
        assert one["memory"] == (row["memory"] - row["reserved"]) * MIB
        assert one["compute"] == [int(part) for part in row["compute"].split(".")]
        assert one["gflops"] == pytest.approx(row["sms"] * row["clocks"]["max"] / 1000, rel=0.01)


HGX = gpus.machine("8x-h100-sxm", gpus.driver())
STARTS = [
    (gpus.machine("4x-rtx3090"), {}, 100),
    (gpus.machine("no-gpu", gpus.driver()), {}, 100),
    (replace(gpus.machine("1x-t4"), nouveau=True), {}, 100),
    (healthy(), {"CUDA_VISIBLE_DEVICES": ""}, 100),
    (healthy(), {"CUDA_VISIBLE_DEVICES": "4"}, 100),
    (inject(healthy(), Fault("version-mismatch")), {}, 804),
    (inject(healthy("1x-t4"), Fault("version-mismatch")), {}, 803),
    (inject(healthy(), Fault("version-mismatch", value="590.48.01")), {}, 803),
    (inject(HGX, Fault("fabric-pending", 3)), {}, 802),
    (inject(HGX, Fault("fabric-pending", 3)), {"CUDA_VISIBLE_DEVICES": "0,1"}, 0),
    (inject(healthy(), Fault("lost", 2)), {}, 999),
    (inject(healthy(), Fault("lost", 2)), {"CUDA_VISIBLE_DEVICES": "0,1,3"}, 0),
    (inject(healthy(), Fault("gsp-timeout", 1, "1")), {}, 999),
    *((inject(healthy(), Fault("cuda-error", value=str(code))), {}, code) for code in (100, 101, 802, 803, 804, 999)),
    (healthy(), {}, 0),
]


@pytest.mark.parametrize(("there", "environment", "wanted"), STARTS)
def test_cuda_starts_or_says_why_not(cuda, there, environment, wanted):
    assert cuda(there, INIT, **environment) == wanted


def test_a_driver_without_a_reboot(cuda, tmp_path):
    """The package's library is there at once, and tells its own CUDA."""
    (tmp_path / "libcuda.so.1").symlink_to("libcuda.so.610.57.04")
    environment = {"LAB_GPU_LIBRARY": str(tmp_path / "libcuda.so.1")}
    script = "answer = [code('cuInit', 0), new(c_int, 'cuDriverGetVersion').value]"
    assert cuda(healthy("1x-t4"), script, **environment) == [803, 13030]
    assert cuda(healthy("1x-t4"), script) == [0, 13000]


def test_device_files(cuda, tmp_path):
    names = ("nvidiactl", "nvidia-uvm", *(f"nvidia{at}" for at in range(4)))
    for name in names:
        (tmp_path / name).touch()
    there, environment = healthy(), {"LAB_GPU_DEV": str(tmp_path)}
    assert cuda(there, INIT, **environment) == 0
    (tmp_path / "nvidia1").unlink()  # as in a container that has the other three
    found = cuda(there, DEVICES, **environment)
    assert [one["bus"] for one in found] == [0x01, 0x81, 0xC1]
    (tmp_path / "nvidia-uvm").unlink()
    assert cuda(there, INIT, **environment) == 999
    (tmp_path / "nvidiactl").unlink()
    assert cuda(there, INIT, **environment) == 100


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's view takes root")
def test_device_files_of_a_group(cuda):
    """An ordinary user who is not in it: root starts CUDA, that user does not."""
    script = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534); answer = code('cuInit', 0)"
    there, names = healthy("1x-t4"), ("nvidiactl", "nvidia-uvm", "nvidia0")
    with tempfile.TemporaryDirectory() as words:
        seen_by_all = Path(words)
        seen_by_all.chmod(0o755)
        state.write(seen_by_all / "state", there)
        environment = {"LAB_GPU_STATE": str(seen_by_all / "state"), "LAB_GPU_DEV": words}
        for closed, wanted in (("", 0), ("nvidia-uvm", 999), ("nvidia0", 100), ("nvidiactl", 100)):
            for name in names:
                (seen_by_all / name).touch()
                (seen_by_all / name).chmod(0o660 if name == closed else 0o666)
            assert (closed, cuda(there, script, **environment)) == (closed, wanted)
            assert cuda(there, script.replace("[]", "[0]"), **environment) == 0, "in the group"
            assert cuda(there, INIT, **environment) == 0


def test_visible_devices_by_number_and_by_the_beginning_of_a_uuid(cuda):
    there = healthy()
    third = there.gpus[2].uuid
    for words, wanted in (("2,0", [2, 0]), (third, [2]), (third[:12], [2]), ("1,9,0", [1]), ("1,x", [1])):
        found = cuda(there, DEVICES, CUDA_VISIBLE_DEVICES=words)
        assert [one["uuid"] for one in found] == [there.gpus[at].uuid[4:].replace("-", "") for at in wanted]


def test_in_mig_mode_a_process_sees_one_instance(cuda):
    there = inject(HGX, Fault("mig", 1))
    assert len(cuda(there, DEVICES)) == 7
    settings = (gpus.Setting(1, "gi_9", "9 0 4 1 MIG-7a1cd8f2-0000-5000-8000-000000000009"),)
    (found,) = cuda(replace(there, settings=settings), DEVICES)
    assert found["name"] == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert found["uuid"].startswith("7a1cd8f2")
    assert found["memory"] < 45000 * MIB


def test_calls_before_init_and_without_a_context(cuda):
    script = """
answer = [code("cuDeviceGetCount", byref(c_int())), code("cuCtxSynchronize")]
call("cuInit", 0)
answer += [code("cuCtxSynchronize"), code("cuDeviceGet", byref(c_int()), 4)]
answer += [code("cuMemAlloc_v2", byref(c_ulonglong()), 1)]
"""
    assert cuda(healthy(), script) == [3, 3, 201, 101, 201]


# --- memory and copies ---


def test_memory_is_the_devices_own(cuda):
    script = """
call("cuInit", 0); context()
free, total = c_size_t(), c_size_t()
call("cuMemGetInfo_v2", byref(free), byref(total))
before = free.value
one, two = memory(1000), memory(256)
upload(one, bytes(range(250)) * 4)
call("cuMemcpyDtoD_v2", two, at(one, 3), c_size_t(256))
answer["copied"] = download(two, 256).hex()
call("cuMemsetD32_v2", two, 0x01020304, c_size_t(2))
answer["set"] = download(two, 9).hex()
call("cuMemGetInfo_v2", byref(free), byref(total))
answer["used"] = before - free.value
call("cuMemFree_v2", one)
answer["wrong"] = [
    code("cuMemcpyDtoH_v2", ctypes.create_string_buffer(300), two, c_size_t(257)),
    code("cuMemFree_v2", one),
    code("cuMemAlloc_v2", byref(c_ulonglong()), c_size_t(total.value)),
    code("cuMemsetD32_v2", at(two, 1), 0, c_size_t(1)),
]
answer["again"] = memory(900).value == one.value
"""
    found = cuda(healthy("1x-t4"), script)
    assert found["copied"] == (bytes(range(250)) * 4)[3:259].hex()
    assert found["set"] == "0403020104030201" + f"{11:02x}"
    assert found["used"] == 1256
    assert found["wrong"] == [1, 1, 2, 1]
    assert found["again"] is True


def test_a_large_allocation_that_nobody_writes_costs_nothing(cuda):
    script = """
call("cuInit", 0); context()
large = memory(70 << 30)
upload(at(large, 69 << 30), b"there")
answer = [download(at(large, 69 << 30), 5).decode(), peak() < 200_000]
"""
    assert cuda(HGX, script) == ["there", True]


PEERS = """
call("cuInit", 0)
second = context(1); first = context(0)
call("cuCtxSetCurrent", second)
there = memory(1 << 20)
call("cuCtxSetCurrent", first)
here = memory(1 << 20)
data = bytes(range(256)) * 4096
upload(here, data)
answer["can"] = new(c_int, "cuDeviceCanAccessPeer", 0, 1).value
answer["enabled"] = code("cuCtxEnablePeerAccess", second, 0) if %d else None
answer["ms"] = timed(lambda: call("cuMemcpyPeer", there, second, here, first, c_size_t(1 << 20)))
answer["wrong"] = sum(one != two for one, two in zip(data, download(there, 1 << 20)))
"""


@pytest.mark.parametrize(
    ("there", "direct", "can", "enabled", "wrong"),
    [
        (HGX, 1, 1, 0, 0),
        (healthy(), 1, 0, 217, 0),
        (inject(HGX, Fault("p2p-corrupt", 1)), 1, 1, 0, 256),
        (inject(HGX, Fault("p2p-corrupt", 1)), 0, 1, None, 0),  # by way of the host
        (inject(HGX, Fault("acs", 1)), 1, 1, 0, 0),  # not over PCIe
    ],
)
def test_copies_between_peers(cuda, there, direct, can, enabled, wrong):
    found = cuda(there, PEERS % direct)
    assert (found["can"], found["enabled"], found["wrong"]) == (can, enabled, wrong)


def test_nvlink_is_faster_than_the_way_by_the_host_and_slower_with_fewer_links(cuda):
    full, staged = cuda(HGX, PEERS % 1)["ms"], cuda(HGX, PEERS % 0)["ms"]
    down = cuda(inject(HGX, Fault("nvlink-down", 1, "0,1,2,3,4,5,6,7,8")), PEERS % 1)["ms"]
    assert staged > 5 * full
    assert down == pytest.approx(2 * full, rel=0.01)


# --- time ---


COPY = """
call("cuInit", 0); context()
there, size = memory(1 << 24), 1 << 24
data = b"x" * size
answer = size / timed(lambda: upload(there, data)) / 1e6
"""


def test_copies_take_what_the_link_takes(cuda):
    gigabytes = cuda(healthy(), COPY)
    assert gigabytes == pytest.approx(26, rel=0.03), "PCIe 4.0 x16"
    assert cuda(healthy(), COPY) == gigabytes, "the same in every run"
    assert cuda(inject(healthy(), Fault("narrow", 0, "8")), COPY) == pytest.approx(gigabytes / 2, rel=0.001)
    assert cuda(inject(healthy(), Fault("slow-link", 0, "3")), COPY) == pytest.approx(gigabytes / 2, rel=0.01)


def test_memory_takes_what_the_board_takes(cuda):
    script = """
call("cuInit", 0); context()
one, two = memory(1 << 24), memory(1 << 24)
answer = 2 * (1 << 24) / timed(lambda: call("cuMemcpyDtoD_v2", two, one, c_size_t(1 << 24))) / 1e6
"""
    whole = cuda(healthy(), script)
    assert whole == pytest.approx(936 * 0.9, rel=0.001)
    assert cuda(inject(healthy(), Fault("slow", 0, "50")), script) == pytest.approx(whole / 2, rel=0.001)


def test_a_bit_of_the_memory_that_is_stuck(cuda):
    """At its place, whoever has it, and nowhere else; copies and settings do not mend it."""
    there = inject(healthy(), Fault("stuck-bit", 1, "9,9"))
    script = """
call("cuInit", 0); context({gpu})
all = memory(16 << 20)
answer["first"] = all.value % (1 << 40) >> 20
call("cuMemsetD32_v2", all, 0, c_size_t(4 << 20))
data = download(all, 16 << 20)
answer["set"] = [len(data) - len(data.lstrip(b"\\0")), list(data.strip(b"\\0"))]
"""
    found = cuda(there, script.format(gpu=1))
    assert found["set"] == [(9 - found["first"] << 20) + 1, [2]]
    assert cuda(there, script.format(gpu=0))["set"] == [16 << 20, []]
